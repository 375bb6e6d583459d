"""The parts of a JSON Schema: subschemas, references within the document, shared definitions and the draft."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from typing import Any, Literal, NamedTuple, TypeVar, cast
from urllib.parse import quote, unquote, urljoin

import orjson

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import SCHEMA_MAPS, AnySchema, compact_encoder, is_array, is_object
from toolpost.schema.plain_schemas import is_plain_schema

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
    """Yield the schemas directly within this one; the booleans `true` and `false` are left out."""
    for keyword, value in schema.items():
        place = _PLACES.get(keyword)
        if place is None:
            continue
        for key, inner in _members(keyword, value):
            if is_object(inner):
                yield Subschema(place, keyword, key, inner)


def _members(keyword: str, value: Any) -> Iterator[tuple[str | int | None, Any]]:
    if is_array(value):
        yield from enumerate(value)
    elif keyword not in _MAPS:
        yield None, value
    elif is_object(value):
        yield from value.items()


def replace_subschemas(schema: JsonSchema, change: Callable[[JsonSchema], JsonSchema]) -> JsonSchema:
    """Copy a schema with each schema directly within it changed; booleans stay as they are."""

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
    """Return a copy of a schema that can stand at `path` of another document, and the definitions for its root."""
    inner = {word: part for word, part in schema.items() if word not in ("$schema", "$id", *_STORED)}
    stored = {word: schema[word] for word in _STORED if word in schema}

    def moved(part: JsonSchema) -> JsonSchema:
        if "$id" in part:  # a document of its own, whose references do not leave it
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
            known[id(schema)] = False  # for references that lead back here; each schema is looked at once
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
        """Return the target of a reference made in `source`; None when it is not in this document."""
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
        """Return what lies at the end of a path of keywords; references are followed."""
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
        # Only draft 4 spells it `id`; elsewhere that is a word anyone may use.
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


T = TypeVar("T")

_to_json = compact_encoder(allow_nan=False, ensure_ascii=False)
_KEPT_SCHEMAS = 8
_MOST_DEFINITIONS = 12


class _KnownSchema(NamedTuple):
    """A schema, kept so that no other one gets its identity; whether it is plain, or else its text."""

    schema: object
    is_plain: bool
    text: str | None


# The tools of one API carry the same definitions, often hundreds of them. Nobody may change a definition while its
# facts are in use; the cache lives as long as the tools of one listing.
class SharedDefinitions:
    """Cache of facts about definitions that many schemas share, by the identity of the definition."""

    def __init__(self) -> None:
        self._answers: dict[tuple[object, int], tuple[object, Any]] = {}
        self._seen: dict[int, object] = {}
        self._known: dict[int, _KnownSchema] = {}

    def is_plain(self, schema: Any) -> bool:
        """Return whether a schema is plain (see `is_plain_schema`); found once for all checks of its tool.

        A schema that shares its definitions is not: it would be looked through again for every tool.
        """
        return (self._known.get(id(schema)) or self._examine(schema)).is_plain

    def text(self, schema: Any) -> str | None:
        """Return a schema that is not plain as JSON, encoded once; None where it shares its definitions.

        What the text does not contain need not be searched for in the schema. None also where it is not JSON.
        """
        return (self._known.get(id(schema)) or self._examine(schema)).text

    def _examine(self, schema: Any) -> _KnownSchema:
        definitions = definitions_of(schema)
        shared = definitions is not None and self._are_shared(definitions)
        is_plain = not shared and is_plain_schema(schema)
        text = None if is_plain or shared else _write(schema)
        if len(self._known) >= _KEPT_SCHEMAS:
            self._known.clear()
        facts = self._known[id(schema)] = _KnownSchema(schema, is_plain, text)
        return facts

    def _are_shared(self, definitions: Mapping[str, Any]) -> bool:
        """Return whether definitions are many, or another schema has some of them too."""
        seen, shared = self._seen, len(definitions) > _MOST_DEFINITIONS
        for definition in definitions.values():
            shared = shared or id(definition) in seen
            seen[id(definition)] = definition
        return shared

    def once(self, question: Callable[[Any], T], definition: object) -> T:
        """Return `question(definition)`, computed once."""
        key = (question, id(definition))
        answer = self._answers.get(key)
        if answer is None:
            # The definition is kept beside its answer, so that no other object gets its identity.
            answer = self._answers[key] = (definition, question(definition))
        return cast("T", answer[1])


def _write(schema: Any) -> str | None:
    """Encode a schema as JSON; None where it is not JSON."""
    with suppress(orjson.JSONEncodeError):  # such as an integer of more than 64 bits
        text = orjson.dumps(schema).decode()
        if "null" not in text:  # which may stand for a number that is not JSON
            return text
    try:
        return _to_json(schema)
    except (TypeError, ValueError, RecursionError):
        return None


def definitions_of(schema: Any) -> Mapping[str, Any] | None:
    """Return the definitions of a schema; None where it has none."""
    definitions = schema.get("$defs") if is_object(schema) else None
    return definitions if is_object(definitions) and definitions else None


def without_definitions(schema: JsonSchema) -> JsonSchema:
    """Copy a schema without its definitions."""
    return {word: value for word, value in schema.items() if word != "$defs"}


def any_part(schema: Any, question: Callable[[Any], bool], shared: SharedDefinitions | None) -> bool:
    """Return whether `question` is true of the schema or of any of its definitions."""
    definitions = None if shared is None else definitions_of(schema)
    if shared is None or definitions is None:
        return question(schema)
    if question([*definitions]) or question(without_definitions(schema)):
        return True
    return any(shared.once(question, definition) for definition in definitions.values())


DEFAULT_DRAFT = "https://json-schema.org/draft/2020-12/schema"

_DRAFTS = {
    "json-schema.org/draft-04/schema": "http://json-schema.org/draft-04/schema#",
    "json-schema.org/draft-06/schema": "http://json-schema.org/draft-06/schema#",
    "json-schema.org/draft-07/schema": "http://json-schema.org/draft-07/schema#",
    "json-schema.org/draft/2019-09/schema": "https://json-schema.org/draft/2019-09/schema",
    "json-schema.org/draft/2020-12/schema": DEFAULT_DRAFT,
}
_KNOWN = frozenset(_DRAFTS.values())


def normalize_draft(schema: JsonSchema) -> JsonSchema:
    """Return the schema, with an unknown or unusually spelled `$schema` replaced by a known one."""
    declared = schema.get("$schema")
    if not isinstance(declared, str) or declared in _KNOWN:
        return schema
    # A private dialect (such as OpenAPI's) is close to the current draft; fetching it is out of the question.
    bare = declared.removeprefix("https://").removeprefix("http://").rstrip("#")
    return {**schema, "$schema": _DRAFTS.get(bare, DEFAULT_DRAFT)}
