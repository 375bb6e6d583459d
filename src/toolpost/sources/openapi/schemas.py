"""Convert OpenAPI schemas to self-contained JSON Schema 2020-12, with referenced schemas as definitions."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from itertools import combinations
from typing import Any, Literal, NamedTuple

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.engine import compile_engine
from toolpost.schema.json_values import AnySchema, as_object, is_array, is_object, json_type
from toolpost.schema.patterns import translate_pattern
from toolpost.sources.openapi.definitions import DEFINITION_PREFIX
from toolpost.sources.openapi.naming import DefinitionNames
from toolpost.sources.openapi.references import DocumentRegistry, ResolvedNode
from toolpost.sources.openapi.schema_keywords import CLEANERS, DROPPED, clean_name_lists, normalize

_NO_NAMES: frozenset[str] = frozenset()
# Deeper subschemas become definitions, because validators limit nesting.
_DEEPEST = 20
_ONE = frozenset(
    {
        "not", "if", "then", "else", "additionalProperties", "unevaluatedProperties", "unevaluatedItems", "contains",
        "propertyNames", "contentSchema",
    }
)  # fmt: skip
_SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
_BY_NAME = frozenset({"patternProperties", "dependentSchemas", "dependencies"})
# Keywords honored beside a `$ref` in OpenAPI 3.0 and Swagger 2.
_BESIDE_REFERENCE = ("title", "description", "default", "deprecated", "example", "nullable", "x-nullable")
AccessFlag = Literal["readOnly", "writeOnly"]
_MAX_HOPS = 50
_MOST = 40
_ALL = frozenset({"string", "number", "boolean", "object", "array", "null"})


class SchemaReader:
    """Converter of schemas; `access_filter` excludes read-only or write-only properties.

    `definitions` are complete after `finish`; each is converted once, also if it is recursive.
    """

    def __init__(
        self,
        registry: DocumentRegistry,
        names: DefinitionNames,
        patterns: PatternCache,
        problems: list[str],
        *,
        siblings: bool,
        access_filter: ReadWriteFilter | None,
    ) -> None:
        self.definitions: dict[str, AnySchema] = {}
        self._registry = registry
        self._names = names
        self._patterns = patterns
        self._problems = problems
        self._siblings = siblings
        self._access_filter = access_filter
        self._waiting: deque[tuple[str, Any, str]] = deque()

    def read(self, node: Any, base: str) -> AnySchema:
        """Convert one schema; the schemas that it references are converted by `finish`."""
        return self._convert(node, _Position(base))

    def finish(self) -> None:
        while self._waiting:
            name, node, base = self._waiting.popleft()
            self.definitions[name] = self._convert(node, _Position(base))

    def _convert(self, node: Any, place: _Position) -> AnySchema:
        if not is_object(node):
            return node if isinstance(node, bool) else {}
        if place.depth > _DEEPEST:
            return self._define(node, place.base, "part")
        base = self._registry.base_uri(node, place.base)
        schema: JsonSchema = {}
        reference = node.get("$ref", node.get("$dynamicRef"))
        if isinstance(reference, str):
            schema.update(self._convert_reference(reference, base))
            if not self._siblings:
                node = {word: node[word] for word in _BESIDE_REFERENCE if word in node}
        excluded = place.excluded
        if self._access_filter is not None:
            excluded |= self._access_filter.excluded_properties(node, base)
        self._convert_keywords(schema, node, _Position(base, place.depth, excluded))
        return normalize(node, _relax_required(schema, excluded))

    def _convert_keywords(self, schema: JsonSchema, node: dict[str, Any], place: _Position) -> None:
        for word, value in node.items():
            cleaner = CLEANERS.get(word)
            if cleaner is not None:
                clean = cleaner[1](value)
                if clean is not DROPPED:
                    schema[cleaner[0]] = clean
            elif word == "pattern":
                if (pattern := self._patterns.supported(value)) is not None:
                    schema[word] = pattern
            else:
                self._convert_subschemas(schema, node, word, place)

    def _convert_reference(self, reference: str, base: str) -> JsonSchema:
        target = self._registry.lookup(reference, base)
        if target is None or not (is_object(target.node) or isinstance(target.node, bool)):
            self._problems.append(
                f"the reference {reference[:200]!r} does not lead to a schema; any value is accepted instead"
            )
            return {}
        return self._define(target.node, target.base, reference)

    def _define(self, node: Any, base: str, reference: str) -> JsonSchema:
        name = self._names.of(node, reference)
        if name not in self.definitions:
            self.definitions[name] = {}
            self._waiting.append((name, node, base))
        return {"$ref": DEFINITION_PREFIX + name}

    def _convert_subschemas(self, schema: JsonSchema, node: dict[str, Any], word: str, place: _Position) -> None:
        if word == "properties":
            schema[word] = self._properties(node[word], place)
        elif word in _ONE:
            self._convert_one(schema, word, node[word], place)
        elif word in _SEVERAL:
            self._convert_list(schema, word, node[word], place)
        elif word == "items":
            self._convert_items(schema, node, place)
        elif word in _BY_NAME and is_object(node[word]):
            self._convert_named(schema, word, node[word], place)

    def _properties(self, value: Any, place: _Position) -> JsonSchema:
        if not is_object(value):
            return {}
        access_filter, below = self._access_filter, _Position(place.base, place.depth + 1)
        if access_filter is None:
            return {name: self._convert(node, below) for name, node in value.items()}
        visible = {name: node for name, node in value.items() if not access_filter.excludes(node, place.base)}
        return {name: self._convert(node, below) for name, node in visible.items()}

    def _convert_one(self, schema: JsonSchema, word: str, value: Any, place: _Position) -> None:
        if not isinstance(value, dict | bool):
            return
        converted = self._convert(value, _Position(place.base, place.depth + 1))
        # An empty schema accepts anything; its negation would refuse everything.
        if converted or word != "not":
            schema[word] = converted

    def _convert_list(self, schema: JsonSchema, word: str, value: Any, place: _Position) -> None:
        if not is_array(value) or not value:
            return
        excluded = _NO_NAMES if word == "prefixItems" else place.excluded
        if word == "oneOf" and "anyOf" not in schema and _may_overlap(value, place.base, self._registry):
            word = "anyOf"
        schema[word] = [self._convert(item, _Position(place.base, place.depth + 1, excluded)) for item in value]

    def _convert_items(self, schema: JsonSchema, node: dict[str, Any], place: _Position) -> None:
        """Convert `items`; the array form of older drafts becomes `prefixItems`, and `additionalItems` `items`."""
        value = node["items"]
        if not is_array(value):
            schema["items"] = self._convert(value, _Position(place.base, place.depth + 1))
            return
        self._convert_list(schema, "prefixItems", value, place)
        self._convert_one(schema, "items", node.get("additionalItems"), place)

    def _convert_named(self, schema: JsonSchema, word: str, value: dict[str, Any], place: _Position) -> None:
        below = _Position(place.base, place.depth + 1)
        schemas = {key: self._convert(node, below) for key, node in value.items() if isinstance(node, dict | bool)}
        if word == "patternProperties":
            fitting = {key: self._patterns.supported(key) for key in schemas}
            schema[word] = {pattern or "": {} if pattern is None else schemas[key] for key, pattern in fitting.items()}
            return
        if schemas:
            schema["dependentSchemas"] = {**schema.get("dependentSchemas", {}), **schemas}
        if lists := clean_name_lists(value):
            schema["dependentRequired"] = lists


class _Position(NamedTuple):
    """Position in a document: base URI, nesting depth, and excluded properties."""

    base: str
    depth: int = 0
    excluded: frozenset[str] = _NO_NAMES


def _relax_required(schema: JsonSchema, excluded: frozenset[str]) -> JsonSchema:
    """Drop excluded properties from `required`, and those that `additionalProperties: false` forbids."""
    if "required" not in schema:
        return schema
    required = [name for name in schema["required"] if name not in excluded]
    if schema.get("additionalProperties") is False and "patternProperties" not in schema:
        required = [name for name in required if name in schema.get("properties", ())]
    schema["required"] = required
    return schema


# `oneOf` rejects a value that matches two alternatives. Formats are annotations here, so alternatives that differ
# only by format would reject each other's values, and many documents list a type beside one that includes it.
# Such alternatives become `anyOf`.
def _may_overlap(options: list[Any], base: str, registry: DocumentRegistry) -> bool:
    """Return whether one value could match two alternatives."""
    if len(options) > _MOST:
        return True
    targets = [registry.resolve(option, base) for option in options]
    nodes = [target.node if target is not None and is_object(target.node) else {} for target in targets]
    return any(_overlap(one, other) for one, other in combinations(nodes, 2))


def _overlap(one: dict[str, Any], other: dict[str, Any]) -> bool:
    shared = _allowed_types(one) & _allowed_types(other)
    if not shared:
        return False
    if _enum_values(one) is not None and _enum_values(other) is not None:
        return bool(set(map(repr, _enum_values(one) or ())) & set(map(repr, _enum_values(other) or ())))
    if shared == frozenset({"object"}):
        return not _is_disjoint(one, other)
    if shared == frozenset({"array"}):
        items = (one.get("items"), other.get("items"))
        return not all(map(is_object, items)) or bool(_allowed_types(items[0]) & _allowed_types(items[1]))
    return True


def _is_disjoint(one: dict[str, Any], other: dict[str, Any]) -> bool:
    """Return whether two object schemas differ by a tag or by required properties."""
    mine, theirs = _properties(one), _properties(other)
    for name in mine.keys() & theirs.keys():
        tags = _enum_values(mine[name]), _enum_values(theirs[name])
        if None not in tags and not set(map(repr, tags[0] or ())) & set(map(repr, tags[1] or ())):
            return True
    mine_required, theirs_required = _read_required(one), _read_required(other)
    return bool(mine_required - theirs_required) and bool(theirs_required - mine_required)


def _allowed_types(node: Any) -> frozenset[str]:
    """Return the JSON types that a schema allows; all if it names none."""
    if not is_object(node):
        return _ALL
    kind = node.get("type")
    if kind is None and (listed := _enum_values(node)) is not None:
        kind = [json_type(value) for value in listed]
    if kind is None and ("properties" in node or "required" in node):
        kind = "object"
    if kind is None:
        return _ALL
    kinds = kind if is_array(kind) else [kind]
    return frozenset("number" if name == "integer" else str(name) for name in kinds)


def _enum_values(node: Any) -> list[Any] | None:
    if not is_object(node):
        return None
    if "const" in node:
        return [node["const"]]
    options = node.get("enum")
    return options if is_array(options) else None


def _properties(node: dict[str, Any]) -> dict[str, Any]:
    properties = node.get("properties")
    return as_object(properties)


def _read_required(node: dict[str, Any]) -> frozenset[str]:
    required = node.get("required")
    return frozenset(name for name in required if isinstance(name, str)) if is_array(required) else frozenset()


class PatternCache:
    """Regular expressions rewritten for the validation engine; unsupported ones are None."""

    def __init__(self, problems: list[str]) -> None:
        self._problems = problems
        self._known: dict[str, str | None] = {}

    def supported(self, pattern: Any) -> str | None:
        """Return the pattern, or an equivalent spelling that the engine supports, or None."""
        if not isinstance(pattern, str):
            return None
        if pattern not in self._known:
            self._known[pattern] = self._find_supported(pattern)
        return self._known[pattern]

    def _find_supported(self, pattern: str) -> str | None:
        for spelling in (pattern, translate_pattern(pattern)):
            try:
                compile_engine({"pattern": spelling})
            except ValueError:
                continue
            return spelling
        self._problems.append(
            f"the pattern {pattern[:200]!r} is not checked: the validation engine does not support it"
        )
        return None


class ReadWriteFilter:
    """The properties to exclude: read-only ones from requests, write-only ones from responses."""

    def __init__(self, registry: DocumentRegistry, flag: AccessFlag) -> None:
        self._registry = registry
        self._flag: AccessFlag = flag
        # With the node, so that its id() is not reused.
        self._known: dict[int, tuple[Any, frozenset[str]]] = {}

    def excludes(self, node: Any, base: str) -> bool:
        """Return whether a property, or the schema that it references, carries the flag."""
        if not is_object(node):
            return False
        if node.get(self._flag) is True:
            return True
        target = self._registry.resolve(node, base) if "$ref" in node else None
        return target is not None and is_object(target.node) and target.node.get(self._flag) is True

    def excluded_properties(self, node: dict[str, Any], base: str, hops: int = _MAX_HOPS) -> frozenset[str]:
        """Return the excluded properties of a schema and its `allOf` members."""
        if hops <= 0 or ("properties" not in node and "allOf" not in node):
            return _NO_NAMES
        property_names = self._known.get(id(node))
        if property_names is not None:
            return property_names[1]
        self._known[id(node)] = (node, _NO_NAMES)
        properties = node.get("properties")
        names: set[str] = set()
        if is_object(properties):
            names.update(name for name, inner in properties.items() if self.excludes(inner, base))
        for member in self._members(node, base):
            names |= self.excluded_properties(member.node, member.base, hops - 1)
        excluded = frozenset(names)
        self._known[id(node)] = (node, excluded)
        return excluded

    def _members(self, node: dict[str, Any], base: str) -> Iterator[ResolvedNode]:
        members = node.get("allOf")
        for member in members if is_array(members) else ():
            target = self._registry.resolve(member, base)
            if target is not None and is_object(target.node):
                yield target
