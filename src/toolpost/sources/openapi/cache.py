"""Disk cache of API descriptions, by the bytes that they were read from."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from toolpost.schema.json_values import AnySchema
from toolpost.sources.openapi import models
from toolpost.sources.openapi.definitions import Definitions

if TYPE_CHECKING:
    from toolpost.stores.encryption import CacheFolder

_HERE = Path(__file__).parent
_KEY = re.compile(r"[0-9a-f]{40}")


class ApiCache:
    """Cache folder; a damaged file is a miss."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def load(self, raw: bytes, origin: str) -> CachedApi | None:
        """Return the API cached for exactly these bytes."""
        return self._read(_key(raw, origin))

    def last(self, origin: str) -> CachedApi | None:
        """Return the API last cached for an origin, for use while its address does not respond."""
        key = self._last_key(origin)
        return None if key is None else self._read(key)

    def save(self, raw: bytes, origin: str, api: models.ApiDescription, others: Mapping[str, bytes]) -> None:
        """Store an API and remove the previous one of the same origin."""
        key, before = _key(raw, origin), self._last_key(origin)
        try:
            packed = _encode(api, {url: digest(other) for url, other in others.items()})
        except ValueError:  # half of a surrogate pair in a YAML document cannot be encoded
            return
        self._folder.write(f"{key}.json", packed)
        self._folder.write(_pointer(origin), key.encode())
        if before is not None and before != key:
            self._folder.remove(f"{before}.json")

    def _last_key(self, origin: str) -> str | None:
        key = (self._folder.read(_pointer(origin)) or b"").decode("ascii", "replace")
        return key if _KEY.fullmatch(key) else None

    def _read(self, key: str) -> CachedApi | None:
        data = self._folder.read(f"{key}.json")
        try:
            return None if data is None else _decode(data)
        except msgspec.MsgspecError:
            return None


def _pointer(origin: str) -> str:
    return f"{digest(origin.encode('utf-8', 'surrogatepass'))}.last"


def _key(raw: bytes, origin: str) -> str:
    return digest(b"\0".join([code_version().encode(), origin.encode("utf-8", "surrogatepass"), raw]))


class _StoredApi(Struct):
    """File format: the definitions that all operations share are stored once, each as JSON text."""

    api: models.ApiDescription
    definitions: dict[str, str]
    response_definitions: dict[str, str] | None  # None if they are the same as `definitions`
    others: dict[str, str]


def _encode(api: models.ApiDescription, others: dict[str, str]) -> bytes:
    first = api.operations[0] if api.operations else None
    nothing: Mapping[str, AnySchema] = {}
    sent, received = (first.definitions, first.response_definitions) if first else (nothing, nothing)
    operations = tuple(replace(one, definitions={}, response_definitions={}) for one in api.operations)
    return msgspec.json.encode(
        _StoredApi(
            replace(api, operations=operations), _texts(sent), None if received is sent else _texts(received), others
        )
    )


def _texts(definitions: Mapping[str, AnySchema]) -> dict[str, str]:
    return {name: json.dumps(schema) for name, schema in definitions.items()}


def _decode(data: bytes) -> CachedApi:
    stored = msgspec.json.decode(data, type=_StoredApi)
    sent = Definitions(stored.definitions)
    received = sent if stored.response_definitions is None else Definitions(stored.response_definitions)
    operations = tuple(replace(one, definitions=sent, response_definitions=received) for one in stored.api.operations)
    return CachedApi(replace(stored.api, operations=operations), stored.others)


class CachedApi(NamedTuple):
    """Cached API, and the digests of the other documents it was read from."""

    api: models.ApiDescription
    others: dict[str, str]


def digest(raw: bytes) -> str:
    """Return a digest of a document."""
    return hashlib.sha256(raw).hexdigest()[:40]


def code_version() -> str:
    """Return a digest of this package's code, so that another version does not reuse its results."""
    hasher = hashlib.sha256()
    for path in sorted(_HERE.glob("*.py")):
        hasher.update(path.read_bytes())
    return hasher.hexdigest()
