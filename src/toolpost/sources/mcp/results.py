"""What a server sent back, as output: structured content, JSON, text, or files kept as artifacts."""

from __future__ import annotations

import base64
import binascii
import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.context import ToolContext


async def output_of(raw: dict[str, Any], context: Callable[[], ToolContext]) -> ToolOutput:
    """The output of a tools/call; a result that reports an error is raised as one."""
    blocks = _blocks(raw)
    if len(blocks) == 1 and blocks[0].get("type") == "text" and not raw.get("isError"):
        text = str(blocks[0].get("text", ""))  # by far the most common answer
        structured = raw.get("structuredContent")
        return ToolOutput(_parsed(text), text) if structured is None else ToolOutput(structured, text or None)
    if raw.get("isError"):
        raise ToolClientError(f"MCP tool error: {_complaint(raw, blocks)}", code="tool_reported_error")
    return await _gathered(raw, blocks, context)


def _blocks(raw: dict[str, Any]) -> list[dict[str, Any]]:
    content = raw.get("content")
    if content is None and "structuredContent" in raw:
        return []
    if not is_array(content):
        raise ToolOutputError("the MCP server's answer has no list of content")
    return [block for block in content if is_object(block)]


def _complaint(raw: dict[str, Any], blocks: list[dict[str, Any]]) -> str:
    said = "\n".join(str(block.get("text", "")) for block in blocks if block.get("type") == "text").strip()
    structured = raw.get("structuredContent")
    if structured is not None and not said:
        said = json.dumps(structured)[:2000]
    return said or "the tool reported a failure without saying why"


async def _gathered(
    raw: dict[str, Any], blocks: list[dict[str, Any]], context: Callable[[], ToolContext]
) -> ToolOutput:
    structured = raw.get("structuredContent")
    if structured is None and len(blocks) == 1 and (file := _file(blocks[0])):
        return ToolOutput(file[0], media_type=file[1])
    parts = [await _part(block, context) for block in blocks]
    if structured is not None and not any(part.get("type") == "text" for part in parts):
        parts.insert(0, {"type": "text", "text": json.dumps(structured, ensure_ascii=False)})  # for the model to read
    text = "\n".join(_in_words(part, named=len(parts) > 1) for part in parts)
    if structured is not None:
        return ToolOutput(structured, text)
    if all(part.get("type") == "text" for part in parts):
        return ToolOutput(text, text)
    return ToolOutput(parts, text)


async def _part(block: dict[str, Any], context: Callable[[], ToolContext]) -> dict[str, Any]:
    """A block as plain data, with an artifact in place of a file's bytes."""
    file = _file(block)
    if file is None:
        inner = block.get("resource")
        return {"type": "resource", **inner} if is_object(inner) else block
    data, media_type, name = file
    artifact_id = await context().save_artifact(data, media_type=media_type, name=name)
    kept: dict[str, Any] = {"type": block["type"], "artifact_id": artifact_id, "media_type": media_type}
    return {**kept, "size": len(data), **({"uri": name} if name else {})}


def _file(block: dict[str, Any]) -> tuple[bytes, str, str] | None:
    """The bytes, media type and name of a block that holds a file."""
    kind, inner = block.get("type"), block.get("resource")
    if kind in ("image", "audio"):
        return _decoded(block.get("data")), str(block.get("mimeType", "application/octet-stream")), ""
    if kind == "resource" and is_object(inner) and "blob" in inner:
        media_type = str(inner.get("mimeType", "application/octet-stream"))
        return _decoded(inner["blob"]), media_type, str(inner.get("uri", ""))
    return None


def _decoded(data: Any) -> bytes:
    try:
        return base64.b64decode("".join(data.split()), validate=True)
    except (AttributeError, binascii.Error, TypeError, ValueError) as error:
        raise ToolOutputError(f"the MCP server's answer holds a file that is not base64: {error}") from error


def _in_words(part: dict[str, Any], *, named: bool) -> str:
    """A part as a model reads it; `named` says where a text is from, which matters beside others."""
    if "artifact_id" in part:
        return f"[{part['media_type']}, {part['size']} bytes, kept as {part['artifact_id']}]"
    if "text" in part:
        return f"{part['uri']}:\n{part['text']}" if named and part.get("uri") else str(part["text"])
    return json.dumps(part, ensure_ascii=False)


def _parsed(text: str) -> Any:
    """A text that is a JSON object or list as a whole is that; everything else stays text."""
    if text[:1] not in ("{", "["):
        return text
    try:
        return json.loads(text, parse_constant=_no_number)
    except (ValueError, RecursionError):
        return text


def _no_number(word: str) -> Any:
    raise ValueError(f"{word} is not JSON")
