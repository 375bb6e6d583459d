"""A file among the arguments of a call: an artifact, base64 or text, perhaps with a name and a media type."""

from __future__ import annotations

import base64
import binascii
import mimetypes
import re
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolClientError
from toolpost.schema.jsontypes import is_object
from toolpost.web.encoding import (
    UnsendableError,
    sendable_header,
)
from toolpost.web.media_types import OCTETS, media_type

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.contracts.spec import JsonSchema
    from toolpost.contracts.storage import ArtifactStore

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
"""What a file takes, as an argument."""

_CONTENTS = ("artifact_id", "base64", "text")
_KEYS = frozenset({*_CONTENTS, "filename", "content_type"})
_SAYS = (
    'write {"artifact_id": ...}, {"base64": ...} or {"text": ...}, with "filename" and "content_type" if they matter'
)


class File(NamedTuple):
    """Bytes with the media type and the name they go by; empty where nobody said."""

    data: bytes
    media_type: str = ""
    name: str = ""


def is_file(value: object) -> bool:
    """Whether a value has the form of a file: exactly one content, and nothing beside it but name and type."""
    return is_object(value) and value.keys() <= _KEYS and sum(key in value for key in _CONTENTS) == 1


def artifact_id_of(value: object) -> str | None:
    """The artifact that a file is taken from."""
    return str(value["artifact_id"]) if is_object(value) and is_file(value) and "artifact_id" in value else None


def file_of(value: object, artifacts: Mapping[str, File]) -> File:
    """Read a file; `artifacts` holds those that the call refers to. A plain text is its own content."""
    if isinstance(value, str):
        return File(value.encode())
    if not (is_object(value) and is_file(value)):
        raise UnsendableError(f"it is not a file; {_SAYS}")
    found = _content(value, artifacts)
    name, said = str(value.get("filename") or found.name), str(value.get("content_type") or "")
    if said and not media_type(sendable_header(said)).essence:
        raise UnsendableError("its content_type is not a media type such as image/png")
    known = "" if found.media_type == OCTETS else found.media_type  # whoever kept it did not know either
    return File(found.data, said or known, name)


async def files_at(artifact_ids: Iterable[str], store: ArtifactStore | None, tenant: str) -> dict[str, File]:
    """The artifacts that a call takes its files from; each must belong to the tenant that calls."""
    found: dict[str, File] = {}
    for artifact_id in artifact_ids:
        info = None if store is None else await store.info(artifact_id, tenant=tenant)
        if store is None or info is None:
            raise ToolClientError(f"there is no artifact {artifact_id!r}", code="artifact_not_found")
        found[artifact_id] = File(await store.read(artifact_id, tenant=tenant), info.media_type, info.name)
    return found


def type_of(file: File, offered: str = "") -> str:
    """The media type to send a file as: its own, else the one the API asks for, else what its name suggests."""
    wanted = [part for part in re.split(r"\s*,\s*", offered) if part and not media_type(part).is_range]
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
