"""The schemas that others point to with `#/$defs/NAME`, and which of them a schema reaches."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_object
from toolpost.schema.subschemas import references, subschemas
from toolpost.sources.openapi.relaxation import without_references

if TYPE_CHECKING:
    from toolpost.schema.jsontypes import AnySchema

_PREFIX = "#/$defs/"


class Parts(NamedTuple):
    """The definitions that a schema points at itself, and how many schemas it is made of."""

    names: tuple[str, ...]
    size: int


class Definitions(Mapping[str, "AnySchema"]):
    """Schemas by name, shared by all operations of a document; one kept as JSON text is read when first asked for."""

    __slots__ = ("_alone", "_known", "_schemas")

    def __init__(self, schemas: dict[str, Any]) -> None:
        self._schemas = schemas
        self._alone: dict[str, AnySchema] = {}
        self._known: dict[str, Parts] = {}

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

    def reached_from(self, schema: AnySchema, *, most: int | None = None) -> dict[str, AnySchema]:
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
        level = self._fresh(parts_of(schema).names, seen)
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
            self._alone[name] = without_references(self[name])
        return self._alone[name]

    def _parts(self, name: str) -> Parts:
        parts = self._known.get(name)
        if parts is None:
            parts = self._known[name] = parts_of(self[name])
        return parts


def reached(
    schema: AnySchema, definitions: Mapping[str, AnySchema], *, most: int | None = None
) -> dict[str, AnySchema]:
    """The definitions that a schema needs out of all that there are."""
    known = definitions if isinstance(definitions, Definitions) else Definitions(dict(definitions))
    return known.reached_from(schema, most=most)


def parts_of(schema: AnySchema) -> Parts:
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
    return Parts(tuple(names), count)
