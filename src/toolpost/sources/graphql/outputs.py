"""What a field gives, as JSON Schema, derived from what is asked of it.

A call may ask for something else, so that nothing has to be there; what is there has its type.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from graphql import GraphQLEnumType, GraphQLScalarType

from toolpost.sources.graphql.kinds import item_type, never_null
from toolpost.sources.graphql.selections import TYPENAME

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphql import GraphQLType

    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.graphql.selections import Picked, Selection

# Wider than what may be given: servers that answer with more than 32 bits, or with ids as numbers, are understood.
_SCALARS: dict[str, list[str]] = {
    "Int": ["integer"],
    "Float": ["number"],
    "String": ["string"],
    "Boolean": ["boolean"],
    "ID": ["string", "integer"],
}


def output_schema(kind: GraphQLType, parts: JsonSchema | None) -> JsonSchema:
    """The schema of an answer; `parts` is what its objects have."""
    return _schema(kind, parts, null=True)


def object_schema(selection: Selection) -> JsonSchema:
    """What an object has of which this is asked."""
    schema = _properties(selection)
    asked = {name: inner for name, inner in selection.fragments.items() if inner.selection.fields}
    return {**schema, "anyOf": list(_alternatives(selection))} if asked else schema


def _schema(kind: GraphQLType, parts: JsonSchema | None, *, null: bool) -> JsonSchema:
    if (inner := never_null(kind)) is not None:
        return _schema(inner, parts, null=False)
    if (item := item_type(kind)) is not None:
        return {**_typed(["array"], null=null), "items": _schema(item, parts, null=True)}
    if isinstance(kind, GraphQLScalarType):
        types = _SCALARS.get(kind.name)
        return {} if types is None else _typed(types, null=null)
    if isinstance(kind, GraphQLEnumType):
        return _typed(["string"], null=null)  # the server may know new values by now
    return {**_typed(["object"], null=null), **(parts or {})}


def _typed(types: list[str], *, null: bool) -> JsonSchema:
    every = [*types, "null"] if null else types
    return {"type": every[0] if len(every) == 1 else every}


def _properties(selection: Selection) -> JsonSchema:
    return {"properties": {key: _picked(picked) for key, picked in selection.fields.items()}}


def _picked(picked: Picked) -> JsonSchema:
    return output_schema(picked.type, None if picked.inner is None else object_schema(picked.inner))


def _alternatives(selection: Selection) -> Iterator[JsonSchema]:
    """What each type has of its own; a type of which nothing of its own is asked has nothing."""
    told: set[str] = set()
    for types, inner in selection.fragments.values():
        told.update(types)
        part = object_schema(inner)
        yield {**part, "properties": {**part["properties"], TYPENAME: {"enum": list(types)}}}
    yield {"properties": {TYPENAME: {"not": {"enum": sorted(told)}}}}
