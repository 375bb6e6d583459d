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
from toolpost.web.encoding import UnsendableError, compact_json

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
_LONGEST = 480
_LONGEST_BELOW = 160
# Where everything leads to everything, the nearest definitions are kept and the server checks what lies beyond.
_ROOM = 40_000


class Inputs:
    """The arguments of one schema's fields; each type is written down once for all of them."""

    def __init__(self) -> None:
        self._known: dict[str, _Definition] = {}

    def schema(self, field: GraphQLField) -> JsonSchema:
        """The schema of a field's arguments."""
        reached: Reached = {}
        schema: JsonSchema = {
            "type": "object",
            "properties": {name: _argument(inner, reached) for name, inner in field.args.items()},
            "required": [name for name, inner in field.args.items() if is_required_argument(inner)],
            "additionalProperties": False,
        }
        definitions = self._definitions(reached)
        return {**schema, "$defs": definitions} if definitions else schema

    def _definitions(self, reached: Reached) -> dict[str, JsonSchema]:
        """What is reached, nearest first; where the room is up, only what kind of value it is."""
        found: dict[str, JsonSchema] = {}
        waiting, room = deque(reached.values()), _ROOM
        while waiting:
            kind = waiting.popleft()
            if kind.name in found:
                continue
            whole = self._definition(kind)
            fits = whole.size <= room
            found[kind.name] = whole.schema if fits else _stub(kind)
            if fits:
                room -= whole.size
                waiting.extend(whole.reached.values())
        return found

    def _definition(self, kind: Named) -> _Definition:
        known = self._known.get(kind.name)
        if known is None:
            reached: Reached = {}
            schema = _defined(kind, reached)
            known = self._known[kind.name] = _Definition(schema, len(json.dumps(schema)), reached)
        return known


class _Definition(NamedTuple):
    """A named type, written down; `size` is in characters, `reached` what it refers to."""

    schema: JsonSchema
    size: int
    reached: Reached


def left_out_when_null(field: GraphQLField) -> frozenset[str]:
    """The arguments that need not be given but cannot be null: a default stands for them."""
    return frozenset(
        name
        for name, inner in field.args.items()
        if never_null(type_of(inner)) is not None and not is_required_argument(inner)
    )


def _argument(inner: GraphQLArgument, reached: Reached) -> JsonSchema:
    """One argument; models write null for what they leave out, so what need not be given may be null."""
    return _annotated(_schema(sent_type(inner), reached), inner, _LONGEST)


def _schema(kind: GraphQLType, reached: Reached, *, null: bool = True) -> JsonSchema:
    if (inner := never_null(kind)) is not None:
        return _schema(inner, reached, null=False)
    if (item := item_type(kind)) is not None:
        return {"type": ["array", "null"] if null else "array", "items": _schema(item, reached)}
    if isinstance(kind, GraphQLScalarType):
        return _scalar(kind, null=null)
    named = cast("Named", kind)
    reached[named.name] = named
    reference = {"$ref": f"#/$defs/{named.name}"}
    return {"anyOf": [reference, _NULL]} if null else reference


def _defined(kind: Named, reached: Reached) -> JsonSchema:
    if isinstance(kind, GraphQLEnumType):
        return {**_stub(kind), "enum": list(kind.values)}
    schema = {
        **_stub(kind),
        "properties": {name: _field(kind, inner, reached) for name, inner in kind.fields.items()},
        "additionalProperties": False,
    }
    if kind.is_one_of:
        return {**schema, "minProperties": 1, "maxProperties": 1}
    return {**schema, "required": [name for name, inner in kind.fields.items() if is_required_input_field(inner)]}


def _field(owner: GraphQLInputObjectType, inner: GraphQLInputField, reached: Reached) -> JsonSchema:
    return _annotated(_schema(type_of(inner), reached, null=not owner.is_one_of), inner, _LONGEST_BELOW)


def _scalar(kind: GraphQLScalarType, *, null: bool) -> JsonSchema:
    """A scalar; of those that a server made up only the server knows what they take."""
    known = _SCALARS.get(kind.name)
    if known is None:
        return {"description": shortened(f"{kind.name}: {kind.description or 'any value'}", _LONGEST_BELOW)}
    types: list[str] = [*known["type"], *(["null"] if null else [])]
    return {**known, "type": types[0] if len(types) == 1 else types}


def _stub(kind: Named) -> JsonSchema:
    said = shortened(kind.description, _LONGEST_BELOW)
    schema = {"type": "string" if isinstance(kind, GraphQLEnumType) else "object"}
    return {**schema, "description": said} if said else schema


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
