"""File arguments: an artifact, base64 or text, with an optional name and media type."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.spec import JsonSchema
from toolpost.contracts.storage import ArtifactStore
from toolpost.schema.json_values import is_object
from toolpost.web.content import OCTETS, parse_media_type
from toolpost.web.requests import UnsendableError, check_header_value

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
"""The schema of a file argument."""

_CONTENTS = ("artifact_id", "base64", "text")
_KEYS = frozenset({*_CONTENTS, "filename", "content_type"})
_SAYS = (
    'write {"artifact_id": ...}, {"base64": ...} or {"text": ...}, with "filename" and "content_type" if they matter'
)


class File(NamedTuple):
    """Bytes with their media type and file name; empty where unknown."""

    data: bytes
    media_type: str = ""
    name: str = ""


def is_file(value: object) -> bool:
    """Return whether a value is a file argument: exactly one content, and nothing beside it but name and type."""
    return is_object(value) and value.keys() <= _KEYS and sum(key in value for key in _CONTENTS) == 1


def find_artifact_id(value: object) -> str | None:
    """Return the artifact id of a file argument, if it has one."""
    return str(value["artifact_id"]) if is_object(value) and is_file(value) and "artifact_id" in value else None


def parse_file(value: object, artifacts: Mapping[str, File]) -> File:
    """Parse a file argument; `artifacts` holds those that the call refers to. A plain text is its own content."""
    if isinstance(value, str):
        return File(value.encode())
    if not (is_object(value) and is_file(value)):
        raise UnsendableError(f"it is not a file; {_SAYS}")
    found = _content(value, artifacts)
    name, content_type = str(value.get("filename") or found.name), str(value.get("content_type") or "")
    if content_type and not parse_media_type(check_header_value(content_type)).essence:
        raise UnsendableError("its content_type is not a media type such as image/png")
    known = "" if found.media_type == OCTETS else found.media_type  # whoever kept it did not know either
    return File(found.data, content_type or known, name)


async def load_artifacts(artifact_ids: Iterable[str], store: ArtifactStore | None, tenant: str) -> dict[str, File]:
    """Load artifacts by id; each must belong to the tenant."""
    found: dict[str, File] = {}
    for artifact_id in artifact_ids:
        info = None if store is None else await store.info(artifact_id, tenant=tenant)
        if store is None or info is None:
            raise ToolClientError(f"there is no artifact {artifact_id!r}", code="artifact_not_found")
        found[artifact_id] = File(await store.read(artifact_id, tenant=tenant), info.media_type, info.name)
    return found


def choose_media_type(file: File, offered: str = "") -> str:
    """Choose the media type of a file: its own, else the one the API asks for, else a guess by its name."""
    wanted = [part for part in re.split(r"\s*,\s*", offered) if part and not parse_media_type(part).is_range]
    guessed = mimetypes.guess_type(file.name)[0] if file.name else None
    return file.media_type or (wanted[0] if len(wanted) == 1 else "") or guessed or next(iter(wanted), OCTETS)


def _content(value: dict[str, Any], artifacts: Mapping[str, File]) -> File:
    if "text" in value:
        return File(str(value["text"]).encode())
    if "base64" in value:
        return File(_decoded(value["base64"]))
    artifact_id = str(value["artifact_id"])
    if artifact_id not in artifacts:
        raise UnsendableError(f"there is no artifact {artifact_id!r} for this user")
    return artifacts[artifact_id]


def _decoded(text: Any) -> bytes:
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except (AttributeError, TypeError, ValueError, binascii.Error) as error:
        raise UnsendableError(f"its base64 cannot be read: {error}") from error
