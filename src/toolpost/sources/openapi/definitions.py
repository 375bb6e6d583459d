"""Schema definitions that the operations of an API share."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import AnySchema, is_array, is_object
from toolpost.schema.subschemas import references, subschemas

DEFINITION_PREFIX = "#/$defs/"
ONE = frozenset({"additionalProperties", "items", "contains", "propertyNames", "contentSchema"})
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
# Negations and "unevaluated" keywords: a relaxed subschema would make them stricter.
_TIGHTER = frozenset({"not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "maxContains"})


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

        With `most`, the farthest definitions are skipped if all together contain more subschemas
        than that; references to them accept anything.
        """
        levels = list(self._levels(schema))
        nearest = levels if most is None else levels[: self._count_fitting(levels, most)]
        last = nearest[-1] if len(nearest) < len(levels) else ()
        names = sorted(name for level in nearest for name in level)
        return {name: self._alone_or_whole(name, alone=name in last) for name in names}

    def _count_fitting(self, levels: Sequence[list[str]], most: int) -> int:
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


class _SchemaStats(NamedTuple):
    """Definitions that a schema references directly, and its number of subschemas."""

    names: tuple[str, ...]
    size: int


def _schema_stats(schema: AnySchema) -> _SchemaStats:
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
            schemas = [inner(word, item) for item in value]
            relaxed = "anyOf" if word == "oneOf" else word
            if relaxed not in copy:
                copy[relaxed] = schemas
            else:
                copy.setdefault("allOf", []).append({relaxed: schemas})
        elif word in BY_NAME and is_object(value):
            copy[word] = {name: inner(word, item) for name, item in value.items()}
        elif word not in _TIGHTER:
            copy[word] = value
    return copy


def remove_references(schema: AnySchema) -> AnySchema:
    """Remove all references; anything is valid in their place."""
    if not is_object(schema):
        return schema
    copy = relax(schema, lambda _, value: remove_references(value))
    copy.pop("$ref", None)
    return copy
