"""What a field takes, as JSON Schema: its arguments, with the types that they reach as definitions."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING, NamedTuple, TypeAlias, cast

from graphql import (
    GraphQLEnumType,
    GraphQLInputObjectType,
    GraphQLScalarType,
    is_required_argument,
    is_required_input_field,
    value_from_ast_untyped,
)

from toolpost.sources.graphql.kinds import item_type, never_null, sent_type, type_of
from toolpost.sources.graphql.texts import shortened
from toolpost.sources.graphql.uploads import UPLOAD
from toolpost.web.encoding import UnsendableError, compact_json
from toolpost.web.files import FILE

if TYPE_CHECKING:
    from graphql import GraphQLArgument, GraphQLField, GraphQLInputField, GraphQLType

    from toolpost.contracts.spec import JsonSchema

    Named: TypeAlias = GraphQLEnumType | GraphQLInputObjectType
    Reached: TypeAlias = dict[str, Named]

_INT: JsonSchema = {"type": ["integer"], "minimum": -(2**31), "maximum": 2**31 - 1}
_SCALARS: dict[str, JsonSchema] = {
    "Int": _INT,
    "Float": {"type": ["number"]},
    "String": {"type": ["string"]},
    "Boolean": {"type": ["boolean"]},
    "ID": {"type": ["string", "integer"]},
}
_NULL: JsonSchema = {"type": "null"}
_MORE_FOR_ARGUMENTS = 3  # they are worth more words than what lies below them
_WORDS_OF_ARGUMENTS = 120  # at least
# Where everything leads to everything, the nearest definitions are kept and the server checks what lies beyond.
_ROOM = 40_000
_VIEW_ROOM = 15_600  # 4,000 tokens, and some air
_FEWER_WORDS = (160, 60, 0)


class Inputs:
    """The arguments of one schema's fields; each type is written down once for all of them."""

    def __init__(self) -> None:
        self._whole = [_Writer(_ROOM, words) for words in _FEWER_WORDS]
        self._views = [_Writer(_VIEW_ROOM, words) for words in _FEWER_WORDS]

    def schema(self, field: GraphQLField) -> JsonSchema:
        """The schema of a field's arguments."""
        return _first_fitting(self._whole, field, {})

    def view(self, field: GraphQLField, beside: JsonSchema) -> JsonSchema:
        """What a model is shown of a large schema: the arguments and those `beside` them, and below as much as fits.

        Nothing in it is stricter than the schema.
        """
        return _first_fitting(self._views, field, beside)


def _first_fitting(writers: list[_Writer], field: GraphQLField, beside: JsonSchema) -> JsonSchema:
    """What arguments are made of is worth more than words about it."""
    for writer in writers[:-1]:
        written = writer.written(field, beside)
        if written.has_all_arguments:
            return written.schema
    return writers[-1].written(field, beside).schema


def is_large(schema: JsonSchema) -> bool:
    """Whether a schema is longer than a model should read."""
    return _size(schema) > _VIEW_ROOM


class _Written(NamedTuple):
    schema: JsonSchema
    has_all_arguments: bool


class _Definition(NamedTuple):
    """A named type, written down; `size` and `least` are in characters, `reached` is what it refers to."""

    schema: JsonSchema
    size: int
    stub: JsonSchema
    least: int
    reached: Reached


class _Writer:
    """Writes schemas within some room, with some words for each part."""

    def __init__(self, room: int, words: int) -> None:
        self._room = room
        self._words = words
        self._known: dict[str, _Definition] = {}

    def written(self, field: GraphQLField, beside: JsonSchema) -> _Written:
        reached: Reached = {}
        given = {name: self._argument(inner, reached) for name, inner in field.args.items()}
        schema: JsonSchema = {
            "type": "object",
            "properties": {**given, **beside},
            "required": [name for name, inner in field.args.items() if is_required_argument(inner)],
            "additionalProperties": False,
        }
        definitions, cut = self._definitions(reached, self._room - _size(schema))
        whole = {**schema, "$defs": definitions} if definitions else schema
        return _Written(whole, cut.isdisjoint(reached))

    def _definitions(self, reached: Reached, room: int) -> tuple[dict[str, JsonSchema], set[str]]:
        """What is reached, nearest first; where the room is up, only what kind of value it is."""
        found = {name: self._definition(kind) for name, kind in reached.items()}
        room -= sum(one.least for one in found.values())
        cut: set[str] = set()
        waiting = deque(found)
        while waiting:
            name = waiting.popleft()
            one = found[name]
            new = {inner: self._definition(kind) for inner, kind in one.reached.items() if inner not in found}
            cost = one.size - one.least + sum(inner.least for inner in new.values())
            if cost > room:
                cut.add(name)
                continue
            room -= cost
            found |= new
            waiting += new
        return {name: one.stub if name in cut else one.schema for name, one in found.items()}, cut

    def _definition(self, kind: Named) -> _Definition:
        known = self._known.get(kind.name)
        if known is None:
            reached: Reached = {}
            schema, stub = self._defined(kind, reached), self._stub(kind)
            around = len(kind.name) + 6  # its name, quoted, and what parts it from the next
            known = _Definition(schema, _size(schema) + around, stub, _size(stub) + around, reached)
            self._known[kind.name] = known
        return known

    def _argument(self, inner: GraphQLArgument, reached: Reached) -> JsonSchema:
        """One argument; models write null for what they leave out, so what need not be given may be null."""
        words = max(_WORDS_OF_ARGUMENTS, _MORE_FOR_ARGUMENTS * self._words)
        return _annotated(self._schema(sent_type(inner), reached), inner, words)

    def _schema(self, kind: GraphQLType, reached: Reached, *, null: bool = True) -> JsonSchema:
        if (inner := never_null(kind)) is not None:
            return self._schema(inner, reached, null=False)
        if (item := item_type(kind)) is not None:
            return {"type": ["array", "null"] if null else "array", "items": self._schema(item, reached)}
        if isinstance(kind, GraphQLScalarType):
            return self._scalar(kind, null=null)
        named = cast("Named", kind)
        reached[named.name] = named
        reference = {"$ref": f"#/$defs/{named.name}"}
        return {"anyOf": [reference, _NULL]} if null else reference

    def _scalar(self, kind: GraphQLScalarType, *, null: bool) -> JsonSchema:
        """A scalar; of those that a server made up only the server knows what they take."""
        if kind.name == UPLOAD:
            return {**FILE, "type": ["object", "null"]} if null else FILE
        known = _SCALARS.get(kind.name)
        if known is None:
            said = f"{kind.name}: {kind.description or 'any value'}"
            return {"description": shortened(said, self._words) or kind.name}
        types: list[str] = [*known["type"], *(["null"] if null else [])]
        return {**known, "type": types[0] if len(types) == 1 else types}

    def _defined(self, kind: Named, reached: Reached) -> JsonSchema:
        if isinstance(kind, GraphQLEnumType):
            return {**self._stub(kind), "enum": list(kind.values)}
        schema = {
            **self._stub(kind),
            "properties": {name: self._field(kind, inner, reached) for name, inner in kind.fields.items()},
            "additionalProperties": False,
        }
        if kind.is_one_of:
            return {**schema, "minProperties": 1, "maxProperties": 1}
        return {**schema, "required": [name for name, inner in kind.fields.items() if is_required_input_field(inner)]}

    def _field(self, owner: GraphQLInputObjectType, inner: GraphQLInputField, reached: Reached) -> JsonSchema:
        return _annotated(self._schema(type_of(inner), reached, null=not owner.is_one_of), inner, self._words)

    def _stub(self, kind: Named) -> JsonSchema:
        said = shortened(kind.description, self._words)
        schema = {"type": "string" if isinstance(kind, GraphQLEnumType) else "object"}
        return {**schema, "description": said} if said else schema


def left_out_when_null(field: GraphQLField) -> frozenset[str]:
    """The arguments that need not be given but cannot be null: a default stands for them."""
    return frozenset(
        name
        for name, inner in field.args.items()
        if never_null(type_of(inner)) is not None and not is_required_argument(inner)
    )


def _size(schema: JsonSchema) -> int:
    return len(json.dumps(schema))


def _annotated(schema: JsonSchema, inner: GraphQLArgument | GraphQLInputField, longest: int) -> JsonSchema:
    """The schema with what is said of this one place, beside what its type says."""
    said = " ".join(filter(None, (shortened(inner.description, longest), schema.get("description"))))
    if said:
        schema = {**schema, "description": said}
    if inner.deprecation_reason is not None:
        schema = {**schema, "deprecated": True}
    return {**schema, **_default(inner)}


def _default(inner: GraphQLArgument | GraphQLInputField) -> JsonSchema:
    literal = None if inner.default is None else inner.default.literal
    if literal is None:
        return {}
    try:
        value = value_from_ast_untyped(literal)
        compact_json(value)
    except (UnsendableError, ValueError, RecursionError):
        return {}  # such as 1e999, which JSON has no number for
    return {"default": value}
