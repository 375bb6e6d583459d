"""Schemas of documents as JSON Schema 2020-12, closed in themselves: all that they refer to are definitions."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.fast_engine import fast_engine
from toolpost.schema.jsontypes import is_array, is_object
from toolpost.schema.patterns import portable
from toolpost.sources.openapi.alternatives import may_overlap
from toolpost.sources.openapi.directions import NOTHING
from toolpost.sources.openapi.keywords import CLEANERS, DROPPED, name_lists, settle

if TYPE_CHECKING:
    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.jsontypes import AnySchema
    from toolpost.sources.openapi.directions import Direction
    from toolpost.sources.openapi.naming import DefinitionNames
    from toolpost.sources.openapi.references import Library

DEFS = "#/$defs/"
# Schemas within schemas; what lies deeper becomes a definition, so that nothing is nested too deeply to be checked.
_DEEPEST = 20
_ONE = frozenset(
    {
        "not",
        "if",
        "then",
        "else",
        "additionalProperties",
        "unevaluatedProperties",
        "unevaluatedItems",
        "contains",
        "propertyNames",
        "contentSchema",
    }
)
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_BY_NAME = frozenset({"patternProperties", "dependentSchemas", "dependencies"})
# All that OpenAPI 3.0 lets stand beside a `$ref`, and what people write there and mean.
_BESIDE_REFERENCE = ("title", "description", "default", "deprecated", "example", "nullable", "x-nullable")


class Place(NamedTuple):
    """Where a schema stands: what its references are relative to, how deep it lies, which properties are left out."""

    base: str
    depth: int = 0
    dropped: frozenset[str] = NOTHING


class Patterns:
    """Regular expressions as the fast engine takes them; None for those that it cannot."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._known: dict[str, str | None] = {}

    def fitting(self, pattern: Any) -> str | None:
        """The pattern itself, respelled, or None."""
        if not isinstance(pattern, str):
            return None
        if pattern not in self._known:
            self._known[pattern] = self._tried(pattern)
        return self._known[pattern]

    def _tried(self, pattern: str) -> str | None:
        for spelling in (pattern, portable(pattern)):
            try:
                fast_engine({"pattern": spelling})
            except ValueError:
                continue
            return spelling
        self._problems.append(f"the pattern {pattern[:200]!r} is not checked: no engine that is safe to run takes it")
        return None


class SchemaReader:
    """Reads schemas, with a direction for one way only: what never goes that way is left out.

    `definitions` fill up as schemas are read and are complete after `finish`; each is
    read once, however many refer to it, also to itself.
    """

    def __init__(
        self,
        library: Library,
        names: DefinitionNames,
        patterns: Patterns,
        problems: list[str],
        *,
        siblings: bool,
        direction: Direction | None,
    ) -> None:
        self.definitions: dict[str, AnySchema] = {}
        self._library = library
        self._names = names
        self._patterns = patterns
        self._problems = problems
        self._siblings = siblings
        self._direction = direction
        self._waiting: deque[tuple[str, Any, str]] = deque()

    def read(self, node: Any, base: str) -> AnySchema:
        """One schema; what it refers to waits until `finish`."""
        return self._schema(node, Place(base))

    def finish(self) -> None:
        """Read the definitions that wait, and those that they need."""
        while self._waiting:
            name, node, base = self._waiting.popleft()
            self.definitions[name] = self._schema(node, Place(base))

    def _schema(self, node: Any, place: Place) -> AnySchema:
        if not is_object(node):
            return node if isinstance(node, bool) else {}
        if place.depth > _DEEPEST:
            return self._defined(node, place.base, "part")
        base = self._library.base_within(node, place.base)
        schema: JsonSchema = {}
        reference = node.get("$ref", node.get("$dynamicRef"))
        if isinstance(reference, str):
            schema.update(self._referred(reference, base))
            if not self._siblings:
                node = {word: node[word] for word in _BESIDE_REFERENCE if word in node}
        dropped = place.dropped
        if self._direction is not None:
            dropped |= self._direction.dropped(node, base)
        self._words(schema, node, Place(base, place.depth, dropped))
        return settle(node, _asking_less(schema, dropped))

    def _words(self, schema: JsonSchema, node: dict[str, Any], place: Place) -> None:
        """Everything that a schema says; words that are not of JSON Schema are left out."""
        for word, value in node.items():
            cleaner = CLEANERS.get(word)
            if cleaner is not None:
                clean = cleaner[1](value)
                if clean is not DROPPED:
                    schema[cleaner[0]] = clean
            elif word == "pattern":
                if (pattern := self._patterns.fitting(value)) is not None:
                    schema[word] = pattern
            else:
                self._structure(schema, node, word, place)

    def _referred(self, reference: str, base: str) -> JsonSchema:
        target = self._library.target(reference, base)
        if target is None or not (is_object(target.node) or isinstance(target.node, bool)):
            self._problems.append(f"the reference {reference[:200]!r} leads to no schema; anything is taken instead")
            return {}
        return self._defined(target.node, target.base, reference)

    def _defined(self, node: Any, base: str, reference: str) -> JsonSchema:
        name = self._names.of(node, reference)
        if name not in self.definitions:
            self.definitions[name] = {}
            self._waiting.append((name, node, base))
        return {"$ref": DEFS + name}

    def _structure(self, schema: JsonSchema, node: dict[str, Any], word: str, place: Place) -> None:
        """One word that holds schemas."""
        if word == "properties":
            schema[word] = self._properties(node[word], place)
        elif word in _ONE:
            self._one(schema, word, node[word], place)
        elif word in _SEVERAL:
            self._several(schema, word, node[word], place)
        elif word == "items":
            self._items(schema, node, place)
        elif word in _BY_NAME and is_object(node[word]):
            self._by_name(schema, word, node[word], place)

    def _properties(self, value: Any, place: Place) -> JsonSchema:
        if not is_object(value):
            return {}
        direction, below = self._direction, Place(place.base, place.depth + 1)
        if direction is None:
            return {name: self._schema(node, below) for name, node in value.items()}
        kept = {name: node for name, node in value.items() if not direction.drops(node, place.base)}
        return {name: self._schema(node, below) for name, node in kept.items()}

    def _one(self, schema: JsonSchema, word: str, value: Any, place: Place) -> None:
        if not isinstance(value, dict | bool):
            return
        read = self._schema(value, Place(place.base, place.depth + 1))
        # Where something could not be understood, anything is taken; the opposite of that would refuse everything.
        if read or word != "not":
            schema[word] = read

    def _several(self, schema: JsonSchema, word: str, value: Any, place: Place) -> None:
        if not is_array(value) or not value:
            return
        dropped = NOTHING if word == "prefixItems" else place.dropped
        if word == "oneOf" and "anyOf" not in schema and may_overlap(value, place.base, self._library):
            word = "anyOf"
        schema[word] = [self._schema(item, Place(place.base, place.depth + 1, dropped)) for item in value]

    def _items(self, schema: JsonSchema, node: dict[str, Any], place: Place) -> None:
        """`items`, which was also a list of them in older drafts, with `additionalItems` for the rest."""
        value = node["items"]
        if not is_array(value):
            schema["items"] = self._schema(value, Place(place.base, place.depth + 1))
            return
        self._several(schema, "prefixItems", value, place)
        self._one(schema, "items", node.get("additionalItems"), place)

    def _by_name(self, schema: JsonSchema, word: str, value: dict[str, Any], place: Place) -> None:
        below = Place(place.base, place.depth + 1)
        read = {key: self._schema(node, below) for key, node in value.items() if isinstance(node, dict | bool)}
        if word == "patternProperties":
            schema[word] = self._with_patterns(read)
            return
        if read:
            schema["dependentSchemas"] = {**schema.get("dependentSchemas", {}), **read}
        if lists := name_lists(value):
            schema["dependentRequired"] = lists

    def _with_patterns(self, read: dict[str, AnySchema]) -> dict[str, AnySchema]:
        """Schemas by pattern; one that is lost allows every name, or what it allowed would count as unknown."""
        fitting = {key: self._patterns.fitting(key) for key in read}
        return {pattern or "": {} if pattern is None else read[key] for key, pattern in fitting.items()}


def _asking_less(schema: JsonSchema, dropped: frozenset[str]) -> JsonSchema:
    """The schema, no longer asking for properties that are left out, nor for those that it forbids by oversight."""
    if "required" not in schema:
        return schema
    asked = [name for name in schema["required"] if name not in dropped]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        asked = [name for name in asked if name in schema.get("properties", ())]
    schema["required"] = asked
    return schema
