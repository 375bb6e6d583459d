"""Results of an MCP server: convert them to outputs, and select the members of `_meta` that are passed on.

The `_meta` of a server is for programs, such as the page of an MCP App. It does not reach a model, and Toolpost does
not use it. Not passed on are members for one hop between two peers, members in Toolpost's namespace, and all members
if their total size exceeds the limit.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    LOG_LEVEL_META_KEY,
    PROTOCOL_VERSION_META_KEY,
    SERVER_INFO_META_KEY,
)
from msgspec.structs import replace

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.contracts.outcomes import OWN_META, SERVER_META
from toolpost.processes.json_documents import check_large_json
from toolpost.schema.json_size import SMALL, CheckedJson, JsonLimits, too_large
from toolpost.schema.json_values import is_array, is_object, nested_deeper_than, text_within

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

_MAX_BLOCKS = 10_000
_MAX_SPELLED = 4096
_LIMITS = JsonLimits()
MAX_RESULT_META = 262_144
_MAX_DEPTH = 64
_OF_THE_HOP = frozenset(
    {
        CLIENT_CAPABILITIES_META_KEY,
        CLIENT_INFO_META_KEY,
        LOG_LEVEL_META_KEY,
        PROTOCOL_VERSION_META_KEY,
        SERVER_INFO_META_KEY,
        "io.modelcontextprotocol/related-task",
        "io.modelcontextprotocol/subscriptionId",
        "progressToken",
        "traceparent",
        "tracestate",
        "baggage",
    }
)


async def parse_result(
    raw: dict[str, Any], context: Callable[[], ToolContext], limits: JsonLimits = _LIMITS
) -> ToolOutput:
    """Convert the result of a tools/call; raise ToolClientError when it reports an error."""
    output = await _parse_output(raw, context, limits)
    passed = passed_meta(raw["_meta"]) if "_meta" in raw else None
    return replace(output, meta={**output.meta, SERVER_META: passed}) if passed else output


async def _parse_output(raw: dict[str, Any], context: Callable[[], ToolContext], limits: JsonLimits) -> ToolOutput:
    match raw:
        case {"content": [{"type": "text"} as block]} if not raw.get("isError"):  # the most common result
            text = str(block.get("text", ""))
            structured = raw.get("structuredContent")
            if structured is not None:
                return ToolOutput(structured, text or None)
            return ToolOutput(await _parse_json_text(text, limits) if text[:1] in ("{", "[") else text, text)
        case _:
            blocks = _blocks(raw)
    if raw.get("isError"):
        text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
        structured = raw.get("structuredContent")
        if structured is not None and not text:
            text = _spell(structured)[:2000]
        message = f"MCP tool error: {text or 'the tool reported a failure without saying why'}"
        error = ToolClientError(message, code="tool_reported_error")
        error.server_meta = passed_meta(raw.get("_meta"))
        raise error
    return await _combine_parts(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    if len(content) > _MAX_BLOCKS:
        raise too_large(f"it has {len(content):,} parts, and at most {_MAX_BLOCKS:,} are accepted")
    return [block for block in content if is_object(block)]


async def _combine_parts(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": _spell(structured)})  # for the model
    text = "\n".join(_render_part(part, named=len(parts) > 1) for part in parts)
    if structured is not None:
        return ToolOutput(structured, text)
    if all(part.get("type") == "text" for part in parts):
        return ToolOutput(text, text)
    return ToolOutput(parts, text)


async def _part(block: dict[str, Any], context: Callable[[], ToolContext]) -> dict[str, Any]:
    """Convert a content block to plain data; a file's bytes are replaced by an artifact id."""
    file = _file(block)
    if file is None:
        inner = block.get("resource")
        return {"type": "resource", **inner} if is_object(inner) else block
    data, media_type, name = file
    artifact_id = await context().save_artifact(data, media_type=media_type, name=name)
    kept: dict[str, Any] = {"type": block["type"], "artifact_id": artifact_id, "media_type": media_type}
    return {**kept, "size": len(data), **({"uri": name} if name else {})}


def _file(block: dict[str, Any]) -> tuple[bytes, str, str] | None:
    """Return the bytes, media type and name of a block that contains a file."""
    kind, inner = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _decode_base64(block.get("data")), str(block.get("mimeType", "application/octet-stream")), ""
    if kind == "resource" and is_object(inner) and "blob" in inner:
        media_type = str(inner.get("mimeType", "application/octet-stream"))
        return _decode_base64(inner["blob"]), media_type, str(inner.get("uri", ""))
    return None


def _decode_base64(data: Any) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (AttributeError, binascii.Error, TypeError, ValueError) as error:
        raise ToolOutputError(f"the MCP server's answer contains a file that is not base64: {error}") from error


def _render_part(part: dict[str, Any], *, named: bool) -> str:
    """Render a part as text for the model; `named` puts the URI before a resource's text."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


def _spell(structured: Any) -> str:
    """Write structured content as JSON; one that is JSON already is cut, because it is stored whole."""
    if isinstance(structured, CheckedJson):
        return structured[:_MAX_SPELLED].decode("utf-8", "replace")
    return json.dumps(structured, ensure_ascii=False)


async def _parse_json_text(text: str, limits: JsonLimits) -> Any:
    """Parse a text that is a whole JSON object or array; return any other text unchanged.

    A text of many values is checked in another process, and stays JSON.
    """
    if len(text) > SMALL:
        data = await check_large_json(text.encode("utf-8", "surrogatepass"), limits)
        if isinstance(data, CheckedJson):
            return data
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")


def passed_meta(meta: Any, *, most: int = MAX_RESULT_META) -> dict[str, Any]:
    """Return the members of a server's `_meta` that are passed on; none if they have more than `most` characters."""
    match meta:
        case {}:  # any object
            kept = {
                name: value for name, value in meta.items() if name not in _OF_THE_HOP and not name.startswith(OWN_META)
            }
        case _:
            return {}
    if not kept or nested_deeper_than(_MAX_DEPTH, kept) or not text_within(most, kept):
        return {}
    return kept


def with_passed_meta(item: dict[str, Any]) -> dict[str, Any]:
    """Return a resource, a prompt or a result with those members of its `_meta` that are passed on."""
    if "_meta" not in item:
        return item
    rest = {name: value for name, value in item.items() if name != "_meta"}
    passed = passed_meta(item["_meta"])
    return {**rest, "_meta": passed} if passed else rest
