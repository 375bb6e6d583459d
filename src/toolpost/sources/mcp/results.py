"""Convert results to tool output: structured content, JSON, text, or files stored as artifacts."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.context import ToolContext


async def parse_result(raw: dict[str, Any], context: Callable[[], ToolContext]) -> ToolOutput:
    """Convert the result of a tools/call; raise ToolClientError when it reports an error."""
    blocks = _blocks(raw)
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not raw.get("isError"):
        text = str(blocks[0].get("text", ""))  # the most common result
        structured = raw.get("structuredContent")
        return ToolOutput(_parse_json_text(text), text) if structured is None else ToolOutput(structured, text or None)
    if raw.get("isError"):
        raise ToolClientError(f"MCP tool error: {_error_text(raw, blocks)}", code="tool_reported_error")
    return await _combine_parts(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    return [block for block in content if is_object(block)]


def _error_text(raw: dict[str, Any], blocks: list[dict[str, Any]]) -> str:
    text = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
    structured = raw.get("structuredContent")
    if structured is not None and not text:
        text = json.dumps(structured)[:2000]
    return text or "the tool reported a failure without saying why"


async def _combine_parts(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": json.dumps(structured, ensure_ascii=False)})  # for the model
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
        raise ToolOutputError(f"the MCP server's answer holds a file that is not base64: {error}") from error


def _render_part(part: dict[str, Any], *, named: bool) -> str:
    """Render a part as text for the model; `named` puts the URI before a resource's text."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


def _parse_json_text(text: str) -> Any:
    """Parse a text that is a whole JSON object or array; return any other text unchanged."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_reject_constant)
    except (ValueError, RecursionError):
        return text


def _reject_constant(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
