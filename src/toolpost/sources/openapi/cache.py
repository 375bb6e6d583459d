"""Disk cache of parsed APIs, for fast starts and starts without a network.

Files hold plain JSON. The key is a digest of the document's bytes, the origin (its address and
the base URL) and this package's code.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.json_values import is_object
from toolpost.sources.openapi.definitions import Definitions
from toolpost.sources.openapi.models import (
    ApiDescription,
    ApiOperation,
    ApiResponse,
    FieldEncoding,
    Parameter,
    RequestBody,
    SecurityRequirement,
    SecurityScheme,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.schema.json_values import AnySchema
    from toolpost.stores.sealing import CacheFolder

_HERE = Path(__file__).parent
_KEY = re.compile(r"[0-9a-f]{40}")


class CachedApi(NamedTuple):
    """Cached API, and the digests of the other documents it was read from."""

    api: ApiDescription
    others: dict[str, str]


class ApiCache:
    """Cache folder; a damaged file counts as a miss."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def load(self, raw: bytes, origin: str) -> CachedApi | None:
        """Return the API cached for exactly these bytes."""
        return self._read(_key(raw, origin))

    def last(self, origin: str) -> CachedApi | None:
        """Return the API last cached for an origin, for use while its address does not respond."""
        key = self._last_key(origin)
        return None if key is None else self._read(key)

    def save(self, raw: bytes, origin: str, api: ApiDescription, others: Mapping[str, bytes]) -> None:
        """Store an API and remove the previous one of the same origin."""
        key, before = _key(raw, origin), self._last_key(origin)
        packed = _encode(api, {url: digest(other) for url, other in others.items()})
        self._folder.write(_file(key), packed.encode())
        self._folder.write(_pointer(origin), key.encode())
        if before is not None and before != key:
            self._folder.remove(_file(before))

    def _last_key(self, origin: str) -> str | None:
        key = (self._folder.read(_pointer(origin)) or b"").decode("ascii", "replace")
        return key if _KEY.fullmatch(key) else None

    def _read(self, key: str) -> CachedApi | None:
        data = self._folder.read(_file(key))
        try:
            return None if data is None else _decode(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _file(key: str) -> str:
    return f"{key}.json"


def _pointer(origin: str) -> str:
    return f"{digest(origin.encode('utf-8', 'surrogatepass'))}.last"


def digest(raw: bytes) -> str:
    """Return a digest of a document."""
    return hashlib.sha256(raw).hexdigest()[:40]


def _key(raw: bytes, origin: str) -> str:
    return digest(b"\0".join([code_version().encode(), origin.encode("utf-8", "surrogatepass"), raw]))


def code_version() -> str:
    """Return a digest of this package's code, so that another version does not reuse its results."""
    found = hashlib.sha256()
    for path in sorted(_HERE.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _encode(api: ApiDescription, others: dict[str, str]) -> str:
    first = api.operations[0] if api.operations else None
    nothing: Mapping[str, AnySchema] = {}
    sent = first.definitions if first else nothing
    answered = first.response_definitions if first else nothing
    return json.dumps(
        {
            "api": _record(api, without=("operations",)),
            "operations": [_record(one, without=("definitions", "response_definitions")) for one in api.operations],
            "definitions": _texts(sent),
            "response_definitions": None if answered is sent else _texts(answered),
            "others": others,
        }
    )


def _texts(definitions: Mapping[str, AnySchema]) -> dict[str, str]:
    """Encode each definition as its own JSON text, to be parsed on first use."""
    return {name: json.dumps(schema) for name, schema in definitions.items()}


def _record(record: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """Return the fields of a record that differ from their defaults."""
    values = {one.name: (getattr(record, one.name), _default(one)) for one in fields(record) if one.name not in without}
    return {name: _plain(value) for name, (value, default) in values.items() if value != default}


def _default(one: Field[Any]) -> Any:
    """Return the default of a field; MISSING for required ones."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _record(value)
    if isinstance(value, tuple):
        return list(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType] - a tuple of anything
    if is_object(value):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _decode(data: dict[str, Any]) -> CachedApi:
    sent = Definitions(data["definitions"])
    answered = sent if data["response_definitions"] is None else Definitions(data["response_definitions"])
    api = data["api"]
    schemes = {name: SecurityScheme(**scheme) for name, scheme in api.get("schemes", {}).items()}
    operations = tuple(_operation(one, sent, answered) for one in data["operations"])
    return CachedApi(
        ApiDescription(
            title=api.get("title", ""),
            version=api.get("version", ""),
            operations=operations,
            schemes=schemes,
            problems=tuple(api.get("problems", ())),
            files=tuple(api.get("files", ())),
        ),
        data["others"],
    )


def _operation(data: dict[str, Any], sent: Definitions, answered: Definitions) -> ApiOperation:
    body = data.pop("body", None)
    return ApiOperation(
        servers=tuple(data.pop("servers", ())),
        tags=tuple(data.pop("tags", ())),
        parameters=tuple(Parameter(**one) for one in data.pop("parameters", ())),
        body=None if body is None else _body(body),
        responses=tuple(ApiResponse(**one) for one in data.pop("responses", ())),
        security=tuple(tuple(map(_need, needs)) for needs in data.pop("security", ())),
        definitions=sent,
        response_definitions=answered,
        **data,
    )


def _body(data: dict[str, Any]) -> RequestBody:
    parts = {name: FieldEncoding(**part) for name, part in data.pop("parts", {}).items()}
    return RequestBody(parts=parts, **data)


def _need(data: dict[str, Any]) -> SecurityRequirement:
    return SecurityRequirement(scheme=data["scheme"], scopes=tuple(data.get("scopes", ())))
