"""The schemas that others point to with `#/$defs/NAME`, and which of them a schema reaches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.subschemas import references, subschemas

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.jsontypes import AnySchema


_PREFIX = "#/$defs/"


class _SchemaStats(NamedTuple):
    """The definitions that a schema points at itself, and how many schemas it is made of."""

    names: tuple[str, ...]
    size: int


class Definitions(Mapping[str, "AnySchema"]):
    """Schemas by name, shared by all operations of a document; one kept as JSON text is read when first asked for."""

    __slots__ = ("_alone", "_known", "_schemas")

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._alone: dict[str, AnySchema] = {}
        self._known: dict[str, _SchemaStats] = {}

    def __getitem__(self, name: str) -> AnySchema:
        schema: AnySchema | str = self._schemas[name]
        if not isinstance(schema, str):
            return schema
        read: AnySchema = json.loads(schema)
        self._schemas[name] = read
        return read

    def __iter__(self) -> Iterator[str]:
        return iter(self._schemas)

    def __len__(self) -> int:
        return len(self._schemas)

    def collect(self, schema: AnySchema, *, most: int | None = None) -> dict[str, AnySchema]:
        """The definitions that a schema needs, also by way of others.

        With `most`, those that are reached last are left out when all together hold more
        schemas than that: the ones before them then take anything in their place.
        """
        levels = list(self._levels(schema))
        kept = levels if most is None else levels[: self._fitting(levels, most)]
        last = kept[-1] if len(kept) < len(levels) else ()
        names = sorted(name for level in kept for name in level)
        return {name: self._alone_or_whole(name, alone=name in last) for name in names}

    def _fitting(self, levels: Sequence[list[str]], most: int) -> int:
        """How many levels stay within the bound; the first one is kept in any case."""
        held = 0
        for number, level in enumerate(levels):
            held += sum(self._parts(name).size for name in level)
            if held > most:
                return max(number, 1)
        return len(levels)

    def _levels(self, schema: AnySchema) -> Iterator[list[str]]:
        """The names that are reached with one reference, with two, and so on; each once."""
        seen: set[str] = set()
        level = self._fresh(_schema_stats(schema).names, seen)
        while level:
            yield level
            level = self._fresh((found for name in level for found in self._parts(name).names), seen)

    def _fresh(self, names: Iterable[str], seen: set[str]) -> list[str]:
        fresh = [name for name in dict.fromkeys(names) if name not in seen and name in self._schemas]
        seen.update(fresh)
        return fresh

    def _alone_or_whole(self, name: str, *, alone: bool) -> AnySchema:
        if not alone or not self._parts(name).names:
            return self[name]
        if name not in self._alone:
            self._alone[name] = remove_references(self[name])
        return self._alone[name]

    def _parts(self, name: str) -> _SchemaStats:
        parts = self._known.get(name)
        if parts is None:
            parts = self._known[name] = _schema_stats(self[name])
        return parts


def collect_definitions(
    schema: AnySchema, definitions: Mapping[str, AnySchema], *, most: int | None = None
) -> dict[str, AnySchema]:
    """The definitions that a schema needs out of all that there are."""
    known = definitions if isinstance(definitions, Definitions) else Definitions(dict(definitions))
    return known.collect(schema, most=most)


def _schema_stats(schema: AnySchema) -> _SchemaStats:
    """Look through a schema."""
    names: dict[str, None] = {}
    count = 0
    stack = [schema]
    while stack:
        node = stack.pop()
        if is_object(node):
            count += 1
            names.update((text.removeprefix(_PREFIX), None) for text in references(node) if text.startswith(_PREFIX))
            stack.extend(inner.schema for inner in subschemas(node))
    return _SchemaStats(tuple(names), count)


ONE = frozenset({"additionalProperties", "items", "contains", "propertyNames", "contentSchema"})
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
# They refuse what a schema within takes, or what none took: with less in that, they would refuse more.
_TIGHTER = frozenset({"not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "maxContains"})


def relax(schema: JsonSchema, inner: Callable[[str, Any], AnySchema]) -> JsonSchema:
    """A copy whose subschemas are changed by `inner`, which is told the word that they stand under.

    `inner` may only loosen what it is given. `oneOf` becomes `anyOf`, because alternatives
    that took different values may then take the same.
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
    """The schema by itself: where it refers to another, anything is taken."""
    if not is_object(schema):
        return schema
    copy = relax(schema, lambda _, value: remove_references(value))
    copy.pop("$ref", None)
    return copy
