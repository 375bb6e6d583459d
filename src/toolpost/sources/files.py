"""File arguments of tools, and multipart bodies that contain files."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
import secrets
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolpost.contracts import errors
from toolpost.contracts.principal import Principal
from toolpost.contracts.spec import JsonSchema
from toolpost.contracts.storage import ArtifactStore
from toolpost.http.content import OCTETS, parse_media_type
from toolpost.http.encoding import Pair, UnsendableError, check_header_value
from toolpost.schema.json_values import is_object

_UNQUOTABLE = re.compile(r'[\x00-\x1f"\x7f]')
FILE: JsonSchema = {
    "type": "object",
    "description": "A file: an artifact, its bytes in base64, or its text; a local one is read into one of these.",
    "properties": {
        "artifact_id": {"type": "string"},
        "base64": {"type": "string", "contentEncoding": "base64"},
        "text": {"type": "string"},
        "filename": {"type": "string"},
        "content_type": {"type": "string"},
    },
    "oneOf": [{"required": ["artifact_id"]}, {"required": ["base64"]}, {"required": ["text"]}],
    "additionalProperties": False,
}
_CONTENTS = ("artifact_id", "base64", "text")
_KEYS = frozenset({*_CONTENTS, "filename", "content_type"})
_FORMAT = (
    'write {"artifact_id": ...}, {"base64": ...} or {"text": ...}, with "filename" and "content_type" if they matter'
)


class File(NamedTuple):
    """Bytes with their media type and file name; empty where unknown."""

    data: bytes
    media_type: str = ""
    name: str = ""


class FormPart(NamedTuple):
    """One part of a multipart body; with a `filename` it is a file."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None
    headers: tuple[Pair, ...] = ()


def is_file(value: object) -> bool:
    """Return whether a value is a file argument: exactly one content, and optionally a name and a media type."""
    return is_object(value) and value.keys() <= _KEYS and sum(key in value for key in _CONTENTS) == 1


def parse_file(value: object, artifacts: Mapping[str, File]) -> File:
    """Parse a file argument; `artifacts` are those that the call refers to. A string is the content itself."""
    if isinstance(value, str):
        return File(value.encode())
    if not (is_object(value) and is_file(value)):
        raise UnsendableError(f"it is not a file; {_FORMAT}")
    content = _content(value, artifacts)
    name, content_type = str(value.get("filename") or content.name), str(value.get("content_type") or "")
    if content_type and not parse_media_type(check_header_value(content_type)).essence:
        raise UnsendableError("its content_type is not a media type such as image/png")
    stored_type = "" if content.media_type == OCTETS else content.media_type  # the default, not a known type
    return File(content.data, content_type or stored_type, name)


def _content(value: dict[str, Any], artifacts: Mapping[str, File]) -> File:
    if "text" in value:
        return File(str(value["text"]).encode())
    if "base64" in value:
        return File(_decode_base64(value["base64"]))
    artifact_id = str(value["artifact_id"])
    if artifact_id not in artifacts:
        raise UnsendableError(f"the artifact {artifact_id!r} does not exist for this user")
    return artifacts[artifact_id]


def _decode_base64(text: Any) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error) as error:
        raise UnsendableError(f"its base64 cannot be read: {error}") from error


def find_artifact_id(value: object) -> str | None:
    """Return the artifact ID of a file argument, if it has one."""
    return str(value["artifact_id"]) if is_object(value) and is_file(value) and "artifact_id" in value else None


async def load_artifacts(artifact_ids: Iterable[str], store: ArtifactStore | None, owner: Principal) -> dict[str, File]:
    """Load artifacts by ID; each must belong to the owner."""
    tenant, user = owner
    files: dict[str, File] = {}
    for artifact_id in artifact_ids:
        info = None if store is None else await store.info(artifact_id, tenant=tenant, user=user)
        if store is None or info is None:
            raise errors.ToolClientError(f"the artifact {artifact_id!r} does not exist", code="artifact_not_found")
        files[artifact_id] = File(await store.read(artifact_id, tenant=tenant), info.media_type, info.name)
    return files


def file_media_type(file: File, offered: str = "") -> str:
    """Choose the media type of a file: its own, the one that the API requires, or a guess by its name."""
    media_types = [part for part in re.split(r"\s*,\s*", offered) if part and not parse_media_type(part).is_range]
    guessed = mimetypes.guess_type(file.name)[0] if file.name else None
    return (
        file.media_type
        or (media_types[0] if len(media_types) == 1 else "")
        or guessed
        or next(iter(media_types), OCTETS)
    )


def encode_multipart(parts: Iterable[FormPart]) -> tuple[bytes, str]:
    """Encode a multipart body (RFC 7578); return it with the boundary for its Content-Type."""
    boundary = secrets.token_hex(16)
    opening = b"--" + boundary.encode()
    pieces = [piece for part in parts for piece in (opening, _part_head(part), part.data)]
    return b"\r\n".join([*pieces, opening + b"--", b""]), boundary


def _part_head(part: FormPart) -> bytes:
    disposition = f'form-data; name="{_quote(part.name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quote(part.filename)}"'
    lines = [f"Content-Disposition: {disposition}"]
    if part.content_type:
        lines.append(f"Content-Type: {check_header_value(part.content_type)}")
    lines += [f"{check_header_value(name)}: {check_header_value(value)}" for name, value in part.headers]
    return "\r\n".join([*lines, ""]).encode()


def _quote(text: str) -> str:
    """Escape a quoted name as browsers and RFC 7578 do: UTF-8, with quotes and control characters percent-encoded."""
    return _UNQUOTABLE.sub(lambda match: f"%{ord(match[0]):02X}", text)
