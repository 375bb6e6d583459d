"""JSON Schemas of the arguments and results of GraphQL fields."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias, cast

from graphql import (
    GraphQLArgument,
    GraphQLEnumType,
    GraphQLField,
    GraphQLInputField,
    GraphQLInputObjectType,
    GraphQLScalarType,
    GraphQLType,
    is_required_argument,
    is_required_input_field,
    value_from_ast_untyped,
)

from toolpost.contracts.spec import JsonSchema
from toolpost.http.encoding import UnsendableError, compact_json
from toolpost.schema.unions import allow_null, types_of
from toolpost.sources.files import FILE
from toolpost.sources.graphql.selections import TYPENAME, Selection
from toolpost.sources.graphql.types import UPLOAD, item_type, truncate, type_of, unwrap_non_null

DefinedType: TypeAlias = GraphQLEnumType | GraphQLInputObjectType
References: TypeAlias = dict[str, DefinedType]
_INT: JsonSchema = {"type": "integer", "minimum": -(2**31), "maximum": 2**31 - 1}
_SCALARS: dict[str, JsonSchema] = {
    "Int": _INT,
    "Float": {"type": "number"},
    "String": {"type": "string"},
    "Boolean": {"type": "boolean"},
    "ID": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
}
# Descriptions of arguments may be longer than those of the fields below them.
_ARGUMENT_FACTOR = 3
_MIN_ARGUMENT_CHARS = 120
# In densely connected schemas the nearest definitions are kept; the server validates what was cut.
_MAX_CHARS = 40_000
_MAX_VIEW_CHARS = 15_600  # about 4,000 tokens
_DESCRIPTION_LIMITS = (160, 60, 0)


class ArgumentSchemas:
    """Converter of field arguments to JSON Schema, with a cache of the definition of each type."""

    def __init__(self) -> None:
        self._full = [_SchemaWriter(_MAX_CHARS, limit) for limit in _DESCRIPTION_LIMITS]
        self._views = [_SchemaWriter(_MAX_VIEW_CHARS, limit) for limit in _DESCRIPTION_LIMITS]

    def schema(self, field: GraphQLField) -> JsonSchema:
        return _first_complete(self._full, field, {})

    def view(self, field: GraphQLField, beside: JsonSchema) -> JsonSchema:
        """Return a smaller schema for models: all arguments, the properties in `beside`, and definitions that fit.

        It accepts everything that the full schema accepts.
        """
        return _first_complete(self._views, field, beside)


def _first_complete(writers: list[_SchemaWriter], field: GraphQLField, beside: JsonSchema) -> JsonSchema:
    """Return the first schema that defines every argument type; later writers use shorter descriptions."""
    for writer in writers[:-1]:
        schema, is_complete = writer.write(field, beside)
        if is_complete:
            return schema
    return writers[-1].write(field, beside)[0]


class _SchemaWriter:
    """Writer of schemas of at most `budget` characters, with descriptions of at most `limit` characters."""

    def __init__(self, budget: int, limit: int) -> None:
        self._budget = budget
        self._limit = limit
        self._definitions_by_name: dict[str, _TypeDefinition] = {}

    def write(self, field: GraphQLField, beside: JsonSchema) -> tuple[JsonSchema, bool]:
        """Return the schema, and whether no type of an argument was cut to a stub."""
        references: References = {}
        limit = max(_MIN_ARGUMENT_CHARS, _ARGUMENT_FACTOR * self._limit)
        arguments = {
            name: _annotate(self._schema(type_of(inner), references), inner, limit)
            for name, inner in field.args.items()
        }
        schema: JsonSchema = {
            "type": "object",
            "properties": {**arguments, **beside},
            "required": [name for name, inner in field.args.items() if is_required_argument(inner)],
            "additionalProperties": False,
        }
        definitions, cut = self._definitions(references, self._budget - _size(schema))
        whole = {**schema, "$defs": definitions} if definitions else schema
        return whole, cut.isdisjoint(references)

    def _definitions(self, references: References, budget: int) -> tuple[dict[str, JsonSchema], set[str]]:
        """Return the definitions, breadth first, and the names of those cut to a stub by the budget."""
        definitions = {name: self._definition(kind) for name, kind in sorted(references.items())}
        budget -= sum(one.stub_size for one in definitions.values())
        cut: set[str] = set()
        waiting = deque(definitions)
        while waiting:
            name = waiting.popleft()
            one = definitions[name]
            nearest = sorted(one.references.items())
            new = {inner: self._definition(kind) for inner, kind in nearest if inner not in definitions}
            cost = one.size - one.stub_size + sum(inner.stub_size for inner in new.values())
            if cost > budget:
                cut.add(name)
                continue
            budget -= cost
            definitions |= new
            waiting += new
        return {name: one.stub if name in cut else one.schema for name, one in definitions.items()}, cut

    def _definition(self, kind: DefinedType) -> _TypeDefinition:
        definition = self._definitions_by_name.get(kind.name)
        if definition is None:
            references: References = {}
            schema, stub = self._full_definition(kind, references), self._stub(kind)
            overhead = len(kind.name) + 6  # the quoted name and the separators
            definition = _TypeDefinition(schema, _size(schema) + overhead, stub, _size(stub) + overhead, references)
            self._definitions_by_name[kind.name] = definition
        return definition

    def _schema(self, kind: GraphQLType, references: References, *, null: bool = True) -> JsonSchema:
        if (inner := unwrap_non_null(kind)) is not None:
            return self._schema(inner, references, null=False)
        schema = self._never_null(kind, references)
        return allow_null(schema) if null else schema

    def _never_null(self, kind: GraphQLType, references: References) -> JsonSchema:
        if (item := item_type(kind)) is not None:
            return {"type": "array", "items": self._schema(item, references)}
        if isinstance(kind, GraphQLScalarType):
            return self._scalar(kind)
        named = cast("DefinedType", kind)
        references[named.name] = named
        return {"$ref": f"#/$defs/{named.name}"}

    def _scalar(self, kind: GraphQLScalarType) -> JsonSchema:
        """Return the schema of a scalar; a custom scalar accepts any value."""
        if kind.name == UPLOAD:
            return FILE
        scalar = _SCALARS.get(kind.name)
        if scalar is None:
            description = f"{kind.name}: {kind.description or 'any value'}"
            return {"description": truncate(description, self._limit) or kind.name}
        return scalar

    def _full_definition(self, kind: DefinedType, references: References) -> JsonSchema:
        if isinstance(kind, GraphQLEnumType):
            return {**self._stub(kind), "enum": list(kind.values)}
        schema = {
            **self._stub(kind),
            "properties": {name: self._field(kind, inner, references) for name, inner in kind.fields.items()},
            "additionalProperties": False,
        }
        if kind.is_one_of:
            return {**schema, "minProperties": 1, "maxProperties": 1}
        return {**schema, "required": [name for name, inner in kind.fields.items() if is_required_input_field(inner)]}

    def _field(self, owner: GraphQLInputObjectType, inner: GraphQLInputField, references: References) -> JsonSchema:
        return _annotate(self._schema(type_of(inner), references, null=not owner.is_one_of), inner, self._limit)

    def _stub(self, kind: DefinedType) -> JsonSchema:
        description = truncate(kind.description, self._limit)
        schema = {"type": "string" if isinstance(kind, GraphQLEnumType) else "object"}
        return {**schema, "description": description} if description else schema


def _size(schema: JsonSchema) -> int:
    return len(json.dumps(schema))


def _annotate(schema: JsonSchema, inner: GraphQLArgument | GraphQLInputField, limit: int) -> JsonSchema:
    description = " ".join(filter(None, (truncate(inner.description, limit), schema.get("description"))))
    if description:
        schema = {**schema, "description": description}
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
        return {}  # such as 1e999, which JSON cannot represent
    return {"default": value}


def is_large(schema: JsonSchema) -> bool:
    """Return whether a schema is too long to show to a model."""
    return _size(schema) > _MAX_VIEW_CHARS


def output_schema(kind: GraphQLType, object_part: JsonSchema | None) -> JsonSchema:
    """Return the schema of a result; `object_part` describes its objects."""
    return _result_schema(kind, object_part, null=True)


def _result_schema(kind: GraphQLType, object_part: JsonSchema | None, *, null: bool) -> JsonSchema:
    if (inner := unwrap_non_null(kind)) is not None:
        return _result_schema(inner, object_part, null=False)
    if (item := item_type(kind)) is not None:
        return {**_build_type(["array"], null=null), "items": _result_schema(item, object_part, null=True)}
    if isinstance(kind, GraphQLScalarType):
        scalar = _SCALARS.get(kind.name)
        # The type alone: some servers return integers of more than 32 bits.
        return {} if scalar is None else _build_type(types_of(scalar), null=null)
    if isinstance(kind, GraphQLEnumType):
        return _build_type(["string"], null=null)  # without values: the server may have added some
    return {**_build_type(["object"], null=null), **(object_part or {})}


def _build_type(types: list[str], *, null: bool) -> JsonSchema:
    every = [*types, "null"] if null else types
    return {"type": every[0] if len(every) == 1 else every}


def object_schema(selection: Selection) -> JsonSchema:
    """Return the properties of an object with this selection; none is required, as a call may select others."""
    properties = {
        key: output_schema(selected.type, None if selected.inner is None else object_schema(selected.inner))
        for key, selected in selection.fields.items()
    }
    schema: JsonSchema = {"properties": properties}
    has_fragments = any(fragment.selection.fields for fragment in selection.fragments.values())
    return {**schema, "anyOf": list(_fragment_schemas(selection))} if has_fragments else schema


class _TypeDefinition(NamedTuple):
    """The definition of an enum or input type, its stub, their sizes in characters, and the types it refers to."""

    schema: JsonSchema
    size: int
    stub: JsonSchema
    stub_size: int
    references: References


def _fragment_schemas(selection: Selection) -> Iterator[JsonSchema]:
    """Yield one alternative per fragment, and one for the types without a fragment."""
    covered: set[str] = set()
    for types, inner in selection.fragments.values():
        covered.update(types)
        part = object_schema(inner)
        yield {**part, "properties": {**part["properties"], TYPENAME: {"enum": list(types)}}}
    yield {"properties": {TYPENAME: {"not": {"enum": sorted(covered)}}}}
