"""APIs that were read once, kept in a folder, so that the next start is fast and works without a network.

A file holds JSON and nothing else. It is found by the bytes of the API's document, the origin
it was read for (its address and what its servers are relative to) and the code that read it;
where any of them differs, it is not found.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import MISSING, Field, fields, is_dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_object
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

    from toolpost.schema.jsontypes import AnySchema
    from toolpost.stores.cache_folder import CacheFolder

_HERE = Path(__file__).parent
_KEY = re.compile(r"[0-9a-f]{40}")


class CachedApi(NamedTuple):
    """An API from the cache, and the digests of the other documents that it was read from."""

    api: ApiDescription
    others: dict[str, str]


class ApiCache:
    """A folder of APIs; whatever is wrong with a file, it counts as not there."""

    def __init__(self, folder: CacheFolder) -> None:
        self._folder = folder

    def load(self, raw: bytes, origin: str) -> CachedApi | None:
        """The API that was read from just these bytes."""
        return self._kept(_key(raw, origin))

    def last(self, origin: str) -> CachedApi | None:
        """The API that was read for this origin last, for when its address does not answer."""
        key = self._last_key(origin)
        return None if key is None else self._kept(key)

    def save(self, raw: bytes, origin: str, api: ApiDescription, others: Mapping[str, bytes]) -> None:
        """Keep an API in place of the one that was read for the same origin before."""
        key, before = _key(raw, origin), self._last_key(origin)
        packed = _packed(api, {url: digest(other) for url, other in others.items()})
        self._folder.write(_file(key), packed.encode())
        self._folder.write(_pointer(origin), key.encode())
        if before is not None and before != key:
            self._folder.remove(_file(before))

    def _last_key(self, origin: str) -> str | None:
        key = (self._folder.read(_pointer(origin)) or b"").decode("ascii", "replace")
        return key if _KEY.fullmatch(key) else None

    def _kept(self, key: str) -> CachedApi | None:
        data = self._folder.read(_file(key))
        try:
            return None if data is None else _unpacked(json.loads(data))
        except (ValueError, TypeError, KeyError, AttributeError):
            return None


def _file(key: str) -> str:
    return f"{key}.json"


def _pointer(origin: str) -> str:
    return f"{digest(origin.encode('utf-8', 'surrogatepass'))}.last"


def digest(raw: bytes) -> str:
    """What tells one document from another."""
    return hashlib.sha256(raw).hexdigest()[:40]


def _key(raw: bytes, origin: str) -> str:
    return digest(b"\0".join([code_version().encode(), origin.encode("utf-8", "surrogatepass"), raw]))


def code_version() -> str:
    """A digest of the modules that read documents: other code may read the same document differently."""
    found = hashlib.sha256()
    for path in sorted(_HERE.glob("*.py")):
        found.update(path.read_bytes())
    return found.hexdigest()


def _packed(api: ApiDescription, others: dict[str, str]) -> str:
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
    """Each definition as a text of its own, so that only those are parsed that are asked for."""
    return {name: json.dumps(schema) for name, schema in definitions.items()}


def _record(record: Any, without: tuple[str, ...] = ()) -> dict[str, Any]:
    """The fields of a record that are not as they are by default."""
    told = {one.name: (getattr(record, one.name), _usual(one)) for one in fields(record) if one.name not in without}
    return {name: _plain(value) for name, (value, usual) in told.items() if value != usual}


def _usual(one: Field[Any]) -> Any:
    """What a field holds where nothing is said; what must be said is never usual."""
    return one.default if one.default_factory is MISSING else one.default_factory()


def _plain(value: Any) -> Any:
    if is_dataclass(value):
        return _record(value)
    if isinstance(value, tuple):
        return list(map(_plain, value))  # pyright: ignore[reportUnknownArgumentType] - a tuple of anything
    if is_object(value):
        return {key: _plain(item) for key, item in value.items()}
    return value


def _unpacked(data: dict[str, Any]) -> CachedApi:
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
