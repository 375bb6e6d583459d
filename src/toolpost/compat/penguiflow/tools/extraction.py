"""Store files and long texts within a result as artifacts, and leave a summary in their place."""

from __future__ import annotations

import base64
import binascii
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.compat.penguiflow.tools.config import (
        ArtifactExtractionConfig,
        ArtifactFieldConfig,
        BinaryDetectionConfig,
    )
    from toolpost.contracts.context import ToolContext

_TYPES = {"pdf": "application/pdf", "image": "image/png", "text": "text/plain"}
_MAGIC = {"pdf": b"%PDF", "png": b"\x89PNG", "jpeg": b"\xff\xd8\xff", "gif": b"GIF8", "zip": b"PK"}


class _File(NamedTuple):
    data: bytes
    media_type: str
    summary: str
    content_type: str = "binary"


async def extract_artifacts(
    result: Any, config: ArtifactExtractionConfig, context: ToolContext, fields: list[ArtifactFieldConfig]
) -> Any:
    """Return the result of a tool with its files and long texts replaced by references; `fields` are files always."""
    for field in fields:
        result = await _replace_at(result, field.field_path.split("."), field, context, config)
    return await _walk(result, config, context)


async def _replace_at(
    value: Any, path: list[str], field: ArtifactFieldConfig, context: ToolContext, config: ArtifactExtractionConfig
) -> Any:
    """Replace the text at a path; each item of a list on the way is looked into."""
    if is_array(value):
        return [await _replace_at(item, path, field, context, config) for item in value]
    if path and is_object(value) and path[0] in value:
        return {**value, path[0]: await _replace_at(value[path[0]], path[1:], field, context, config)}
    if path or not isinstance(value, str):
        return value
    media_type = field.mime_type or _TYPES.get(field.content_type, "application/octet-stream")
    data = None if field.content_type == "text" else _decode(value)
    if data is None:
        data = value.encode()
    elif field.mime_type is None and (found := _detect(value, config.binary_detection)) is not None:
        media_type = found.media_type
    return await _store(_File(data, media_type, field.summary_template, field.content_type), context)


async def _walk(value: Any, config: ArtifactExtractionConfig, context: ToolContext) -> Any:
    if is_array(value):
        return [await _walk(item, config, context) for item in value]
    if is_object(value):
        return {key: await _walk(item, config, context) for key, item in value.items()}
    if not isinstance(value, str):
        return value
    if (file := _detect(value, config.binary_detection)) is not None:
        return await _store(file._replace(summary=config.default_binary_summary), context)
    if config.auto_artifact_large_content and len(value) > config.max_inline_size:
        text = _File(value.encode("utf-8", "surrogatepass"), "text/plain", config.default_text_summary, "text")
        return await _store(text, context, size=len(value))
    return value


def _detect(text: str, config: BinaryDetectionConfig) -> _File | None:
    """Return the file that a text is in base64; None for other texts."""
    if not config.enabled or not config.min_size_for_detection <= len(text) <= config.max_decode_bytes * 4 // 3 + 4:
        return None
    found = next((kind for start, kind in config.signatures.items() if text.startswith(start)), None)
    data = None if found is None else _decode(text)
    if found is None or data is None:
        return None
    extension, media_type = found
    if config.require_magic_bytes and not data.startswith(_MAGIC.get(extension, b"")):
        return None
    return _File(data, media_type, "")


def _decode(text: str) -> bytes | None:
    try:
        return base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return None


async def _store(file: _File, context: ToolContext, *, size: int | None = None) -> dict[str, Any]:
    """Store a file and return what stands in its place; unknown names in a summary are left as they are."""
    artifact_id = await context.save_artifact(file.data, media_type=file.media_type)
    length = len(file.data) if size is None else size
    facts = {"artifact_id": artifact_id, "mime_type": file.media_type, "size": length}
    told = file.summary.format_map(_Known({**facts, "content_type": file.content_type}))
    return {**facts, "summary": told}


class _Known(dict[str, Any]):
    """Facts of a summary."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        super().__init__(facts)

    def __missing__(self, key: str) -> str:
        return "{" + key + "}"
