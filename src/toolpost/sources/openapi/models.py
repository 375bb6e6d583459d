"""Data model of an OpenAPI description: operations, parameters, bodies, security schemes, and shared definitions."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from msgspec import Struct, field

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import AnySchema, is_array, is_object
from toolpost.schema.subschemas import references, subschemas

Location = Literal["path", "query", "header", "cookie"]
Style = Literal["simple", "label", "matrix", "form", "spaceDelimited", "pipeDelimited", "deepObject"]

DEFINITION_PREFIX = "#/$defs/"
# RFC 9110 §5.6.2: a header name is a token.
HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")


class Parameter(Struct, frozen=True, kw_only=True):
    """Parameter of an operation; `argument` is its name in the tool, unique across locations.

    With a `content_type` the value is sent as one document of that type, and `style` does not apply.
    `item_delimiters` join the items of nested lists, one character per level (Swagger 2).
    """

    name: str
    location: Location
    argument: str
    schema: JsonSchema | bool
    required: bool = False
    description: str = ""
    style: Style = "form"
    explode: bool = True
    allow_reserved: bool = False
    allow_empty: bool = False
    content_type: str | None = None
    deprecated: bool = False
    item_delimiters: str = ""


class FieldEncoding(Struct, frozen=True, kw_only=True):
    """Encoding of one form field (OpenAPI Encoding Object)."""

    content_type: str | None = None
    style: Style = "form"
    explode: bool = True
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    is_file: bool = False
    item_delimiters: str = ""


class RequestBody(Struct, frozen=True, kw_only=True):
    """Request body in the media type chosen among those that the document offers."""

    argument: str
    content_type: str
    schema: JsonSchema | bool
    required: bool = False
    description: str = ""
    parts: Mapping[str, FieldEncoding] = field(default_factory=dict[str, FieldEncoding])


class ApiResponse(Struct, frozen=True, kw_only=True):
    """Response schemas of one status (`200`, `2XX`, `default`), by media type."""

    status: str
    description: str = ""
    content: Mapping[str, JsonSchema | bool | None] = field(default_factory=dict[str, "JsonSchema | bool | None"])
    links: Mapping[str, Any] = field(default_factory=dict[str, Any])


class SecurityRequirement(Struct, frozen=True, kw_only=True):
    """Security scheme that an operation requires, with its scopes."""

    scheme: str
    scopes: tuple[str, ...] = ()


class SecurityScheme(Struct, frozen=True, kw_only=True):
    """Security scheme declared in the document."""

    name: str
    type: Literal["apiKey", "http", "oauth2", "openIdConnect", "mutualTLS"]
    location: Literal["query", "header", "cookie"] = "header"
    parameter: str = ""
    scheme: str = ""
    token_url: str | None = None
    flows: Mapping[str, Any] = field(default_factory=dict[str, Any])


class ApiOperation(Struct, frozen=True, kw_only=True):
    """One method on one path.

    `tool_name` is unique within the document and legal as the second part of a tool's
    name. `servers` are absolute URLs; the first is called. `security` lists alternatives,
    each a set of schemes required together; without alternatives no credential is sent.
    `definitions` are the schemas that parameters and body reference with `#/$defs/NAME`,
    `response_definitions` those of responses: requests exclude read-only properties and
    responses write-only ones, so one name may have two schemas.
    """

    tool_name: str
    method: str
    path: str
    servers: tuple[str, ...]
    summary: str = ""
    description: str = ""
    operation_id: str | None = None
    tags: tuple[str, ...] = ()
    deprecated: bool = False
    parameters: tuple[Parameter, ...] = ()
    body: RequestBody | None = None
    responses: tuple[ApiResponse, ...] = ()
    security: tuple[tuple[SecurityRequirement, ...], ...] = ()
    definitions: Mapping[str, JsonSchema | bool] = field(default_factory=dict[str, "JsonSchema | bool"])
    response_definitions: Mapping[str, JsonSchema | bool] = field(default_factory=dict[str, "JsonSchema | bool"])


class ApiDescription(Struct, frozen=True, kw_only=True):
    """API read from its documents: operations, security schemes and problems found.

    `files` are the paths of the other files that the API was read from.
    """

    title: str
    version: str
    operations: tuple[ApiOperation, ...]
    schemes: Mapping[str, SecurityScheme] = field(default_factory=dict[str, SecurityScheme])
    problems: tuple[str, ...] = ()
    files: tuple[str, ...] = ()


class _SchemaStats(NamedTuple):
    """Definitions that a schema references directly, and its number of subschemas."""

    names: tuple[str, ...]
    size: int


class Definitions(Mapping[str, "AnySchema"]):
    """Definitions shared by all operations of a document; those stored as JSON text are parsed on first access."""

    __slots__ = ("_alone", "_known", "_schemas")

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._alone: dict[str, AnySchema] = {}
        self._known: dict[str, _SchemaStats] = {}

    def __getitem__(self, name: str) -> AnySchema:
        schema: AnySchema | str = self._schemas[name]
        if not isinstance(schema, str):
            return schema
        value: AnySchema = json.loads(schema)
        self._schemas[name] = value
        return value

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def collect(self, schema: AnySchema, *, most: int | None = None) -> dict[str, AnySchema]:
        """Return the definitions that a schema references, directly or through others.

        With `most`, the farthest definitions are left out if all together hold more subschemas
        than that; references to them accept anything.
        """
        levels = list(self._levels(schema))
        nearest = levels if most is None else levels[: self._count_fitting(levels, most)]
        last = nearest[-1] if len(nearest) < len(levels) else ()
        names = sorted(name for level in nearest for name in level)
        return {name: self._alone_or_whole(name, alone=name in last) for name in names}

    def _count_fitting(self, levels: Sequence[list[str]], most: int) -> int:
        """Return how many levels fit the limit, at least one."""
        size = 0
        for number, level in enumerate(levels):
            size += sum(self._stats(name).size for name in level)
            if size > most:
                return max(number, 1)
        return len(levels)

    def _levels(self, schema: AnySchema) -> Iterator[list[str]]:
        """Yield the names reached with one reference, then with two, and so on."""
        seen: set[str] = set()
        level = self._unseen(_schema_stats(schema).names, seen)
        while level:
            yield level
            level = self._unseen((reference for name in level for reference in self._stats(name).names), seen)

    def _unseen(self, names: Iterable[str], seen: set[str]) -> list[str]:
        fresh = [name for name in dict.fromkeys(names) if name not in seen and name in self._schemas]
        seen.update(fresh)
        return fresh

    def _alone_or_whole(self, name: str, *, alone: bool) -> AnySchema:
        if not alone or not self._stats(name).names:
            return self[name]
        if name not in self._alone:
            self._alone[name] = remove_references(self[name])
        return self._alone[name]

    def _stats(self, name: str) -> _SchemaStats:
        parts = self._known.get(name)
        if parts is None:
            parts = self._known[name] = _schema_stats(self[name])
        return parts


def _schema_stats(schema: AnySchema) -> _SchemaStats:
    """Collect the references of a schema and count its subschemas."""
    names: dict[str, None] = {}
    count = 0
    stack = [schema]
    while stack:
        node = stack.pop()
        if is_object(node):
            count += 1
            names.update(
                (text.removeprefix(DEFINITION_PREFIX), None)
                for text in references(node)
                if text.startswith(DEFINITION_PREFIX)
            )
            stack.extend(inner.schema for inner in subschemas(node))
    return _SchemaStats(tuple(names), count)


ONE = frozenset({"additionalProperties", "items", "contains", "propertyNames", "contentSchema"})
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Negations and "unevaluated" keywords: a relaxed subschema would make them stricter.
_TIGHTER = frozenset({"not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "maxContains"})


def relax(schema: JsonSchema, inner: Callable[[str, Any], AnySchema]) -> JsonSchema:
    """Return a copy with `inner(keyword, subschema)` applied to each subschema.

    The copy accepts at least what the schema accepts, if `inner` only relaxes. `oneOf` becomes
    `anyOf`, because relaxed alternatives may overlap.
    """
    copy: JsonSchema = {}
    for word, value in schema.items():
        if word in ONE:
            copy[word] = inner(word, value)
        elif word in SEVERAL and is_array(value):
            _add(copy, word, [inner(word, item) for item in value])
        elif word in BY_NAME and is_object(value):
            copy[word] = {name: inner(word, item) for name, item in value.items()}
        elif word not in _TIGHTER:
            copy[word] = value
    return copy


def _add(copy: JsonSchema, word: str, schemas: list[AnySchema]) -> None:
    word = "anyOf" if word == "oneOf" else word
    if word not in copy:
        copy[word] = schemas
    else:
        copy.setdefault("allOf", []).append({word: schemas})


def remove_references(schema: AnySchema) -> AnySchema:
    """Remove all references; anything is valid in their place."""
    if not is_object(schema):
        return schema
    copy = relax(schema, lambda _, value: remove_references(value))
    copy.pop("$ref", None)
    return copy
