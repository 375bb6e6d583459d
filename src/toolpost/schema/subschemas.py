"""The parts of a JSON Schema: subschemas, and references within the document."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Literal, NamedTuple
from urllib.parse import quote, unquote, urljoin

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import SCHEMA_MAPS, AnySchema, is_array, is_object

Place = Literal["here", "below", "stored"]

REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")

_PLACES: dict[str, Place] = {
    "allOf": "here",
    "anyOf": "here",
    "oneOf": "here",
    "not": "here",
    "if": "here",
    "then": "here",
    "else": "here",
    "dependentSchemas": "here",
    "dependencies": "here",
    "properties": "below",
    "patternProperties": "below",
    "additionalProperties": "below",
    "unevaluatedProperties": "below",
    "propertyNames": "below",
    "items": "below",
    "prefixItems": "below",
    "additionalItems": "below",
    "unevaluatedItems": "below",
    "contains": "below",
    "contentSchema": "below",
    "$defs": "stored",
    "definitions": "stored",
}
_MAPS = SCHEMA_MAPS | {"dependencies"}
_STORED = ("$defs", "definitions")
_INDEX = re.compile(r"\d{1,6}", re.ASCII)


class Subschema(NamedTuple):
    """A schema within a schema: applied to the same value, to a part of the value, or only stored."""

    place: Place
    keyword: str
    key: str | int | None
    schema: JsonSchema


def subschemas(schema: JsonSchema) -> Iterator[Subschema]:
    """Yield the schemas directly within this one; the booleans `true` and `false` are skipped."""
    for keyword, value in schema.items():
        place = _PLACES.get(keyword)
        if place is None:
            continue
        for key, inner in _members(keyword, value):
            if is_object(inner):
                yield Subschema(place, keyword, key, inner)


def has_subschemas(schema: JsonSchema) -> bool:
    """Return whether a schema has keywords of subschemas; most schemas have none."""
    return not schema.keys().isdisjoint(_PLACES)


def _members(keyword: str, value: Any) -> Iterator[tuple[str | int | None, Any]]:
    if is_array(value):
        yield from enumerate(value)
    elif keyword not in _MAPS:
        yield None, value
    elif is_object(value):
        yield from value.items()


def replace_subschemas(schema: JsonSchema, change: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
    """Copy a schema with each schema directly within it changed; booleans are unchanged."""

    def changed(inner: Any) -> Any:
        return change(inner) if is_object(inner) else inner

    copy = dict(schema)
    for keyword, value in schema.items():
        if keyword not in _PLACES:
            continue
        if is_array(value):
            copy[keyword] = [changed(inner) for inner in value]
        elif keyword not in _MAPS:
            copy[keyword] = changed(value)
        elif is_object(value):
            copy[keyword] = {name: changed(inner) for name, inner in value.items()}
    return copy


def nest_schema(schema: JsonSchema, *path: str) -> tuple[JsonSchema, JsonSchema]:
    """Return a copy of a schema for the location `path` of another document, and the definitions for its root."""
    inner = {word: part for word, part in schema.items() if word not in ("$schema", "$id", *_STORED)}
    stored = {word: schema[word] for word in _STORED if word in schema}

    def moved(part: JsonSchema) -> JsonSchema:
        if "$id" in part:  # a separate document, whose references stay inside it
            return part
        return rename_references(replace_subschemas(part, moved), move)

    def move(steps: list[str]) -> list[str]:
        return steps if steps[:1] and steps[0] in _STORED else [*path, *steps]

    return moved(inner), replace_subschemas(stored, moved)


def rename_references(schema: JsonSchema, change: Callable[[list[str]], Iterable[str]]) -> JsonSchema:
    """Change the pointers (RFC 6901) by which a schema itself refers to others in the same document."""
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str) and (reference == "#" or reference.startswith("#/")):
            steps = [step.replace("~1", "/").replace("~0", "~") for step in unquote(reference[2:]).split("/")]
            changed = change(steps if reference != "#" else [])
            written = (quote(step.replace("~", "~0").replace("/", "~1"), safe="$~") for step in changed)
            schema[keyword] = "/".join(["#", *written])
    return schema


def references(schema: JsonSchema) -> Iterator[str]:
    """Yield the references that this schema itself makes."""
    for keyword in REFERENCES:
        reference = schema.get(keyword)
        if isinstance(reference, str):
            yield reference


def is_object_schema(root: JsonSchema) -> bool:
    """Return whether a schema admits only objects: by its `type`, a reference within it, or its alternatives."""
    known: dict[int, bool] = {}

    def admits_only_objects(schema: Any) -> bool:
        if not is_object(schema):
            return False
        if "type" in schema:
            return schema["type"] in ("object", ["object"])
        if id(schema) not in known:
            known[id(schema)] = False  # for recursive references; each schema is visited once
            known[id(schema)] = any(map(admits_only_objects, _conjuncts(root, schema))) or any(
                all(map(admits_only_objects, options))
                for word in ("anyOf", "oneOf")
                if is_array(options := schema.get(word)) and options
            )
        return known[id(schema)]

    try:
        return admits_only_objects(root)
    except RecursionError:
        return False


def _conjuncts(root: JsonSchema, schema: JsonSchema) -> Iterator[Any]:
    reference, parts = schema.get("$ref"), schema.get("allOf")
    if isinstance(reference, str) and reference.startswith("#/"):
        yield _follow(root, reference[1:])
    if is_array(parts):
        yield from parts


class SchemaDocument:
    """A whole schema that resolves references within itself; nothing is ever fetched.

    A `closed` document is known to have no `$id` and no anchor, and is not searched for any.
    """

    __slots__ = ("_bases", "_names", "root")

    def __init__(self, root: JsonSchema, *, closed: bool = False) -> None:
        self.root = root
        self._names: dict[str, JsonSchema] = {"": root} if closed else {}
        self._bases: dict[int, str] = {id(root): ""} if closed else {}

    def target(self, reference: str, source: JsonSchema) -> AnySchema | None:
        """Return the target of a reference made in `source`; None if it is not in this document."""
        if not self._names:
            self._index()
        base = self._bases.get(id(source), self._bases[id(self.root)])
        address, _, fragment = reference.partition("#")
        address = urljoin(base, address) if address else base
        resource = self._names.get(address)
        if resource is None or not fragment:
            return resource
        if not fragment.startswith("/"):
            return self._names.get(f"{address}#{fragment}")
        return _follow(resource, fragment)

    def walk(self, path: Iterable[str | int]) -> Any:
        """Return the value at a path of keywords; references are followed."""
        node: Any = self.root
        for step in path:
            if is_object(node) and step in REFERENCES:
                node = self.target(node[str(step)], node)
            elif is_object(node):
                node = node.get(str(step))
            elif is_array(node) and isinstance(step, int):
                node = node[step]
        return node

    def applied(self, schema: JsonSchema) -> Iterator[Subschema]:
        """Yield the schemas that apply when this one does: subschemas and targets of references."""
        for reference in references(schema):
            target = self.target(reference, schema)
            if isinstance(target, dict):
                yield Subschema("here", "$ref", reference, target)
        for inner in subschemas(schema):
            if inner.place != "stored":
                yield inner

    def _index(self) -> None:
        """Index every `$id` and `$anchor`; references are relative to the nearest `$id` above."""
        self._names[""] = self.root
        self._bases[id(self.root)] = ""
        # Only draft 4 has `id` as a keyword; elsewhere it may be an ordinary member.
        id_keyword = "id" if "draft-04" in str(self.root.get("$schema")) else "$id"
        stack: list[tuple[Any, str]] = [(self.root, "")]
        seen: set[int] = set()
        while stack:
            node, base = stack.pop()
            if id(node) in seen:
                continue
            if is_object(node):
                seen.add(id(node))
                base = self._named(node, base, node.get(id_keyword))
                stack.extend((child, base) for child in node.values())
            elif is_array(node):
                seen.add(id(node))
                stack.extend((child, base) for child in node)

    def _named(self, schema: JsonSchema, base: str, own: Any) -> str:
        """Index the names of one schema and return the base URI within it."""
        if isinstance(own, str) and own.startswith("#"):
            self._names.setdefault(base + own, schema)
        elif isinstance(own, str):
            base = urljoin(base, own).removesuffix("#")
            self._names.setdefault(base, schema)
        for keyword in ("$anchor", "$dynamicAnchor"):
            anchor = schema.get(keyword)
            if isinstance(anchor, str):
                self._names.setdefault(f"{base}#{anchor}", schema)
        if base:
            self._bases[id(schema)] = base
        return base


def _follow(resource: JsonSchema, pointer: str) -> AnySchema | None:
    """Return the schema at a JSON Pointer (RFC 6901) in a URI fragment."""
    node: Any = resource
    for part in unquote(pointer).split("/")[1:]:
        key = part.replace("~1", "/").replace("~0", "~")
        if is_object(node):
            node = node.get(key)
        elif is_array(node) and _INDEX.fullmatch(key):
            node = next(iter(node[int(key) :]), None)
        else:
            return None
    return node if is_object(node) or isinstance(node, bool) else None
