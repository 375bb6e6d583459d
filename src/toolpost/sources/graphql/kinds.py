"""The types of a schema as far as they matter here: what a wrapper holds, and what has parts."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias, cast

from graphql import (
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLUnionType,
    get_named_type,
    is_required_argument,
)

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from graphql import GraphQLArgument, GraphQLField, GraphQLInputField, GraphQLNamedType, GraphQLType

Composite: TypeAlias = GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType


def type_of(place: GraphQLField | GraphQLArgument | GraphQLInputField) -> GraphQLType:
    """The type of a field or an argument."""
    return cast("GraphQLType", cast("Any", place).type)


def sent_type(argument: GraphQLArgument) -> GraphQLType:
    """The type of an argument's variable: one with a default behind it need not be given, whatever its type says."""
    kind = type_of(argument)
    return kind if is_required_argument(argument) else never_null(kind) or kind


def never_null(kind: GraphQLType) -> GraphQLType | None:
    """What a non-null type holds; None for a type that may be null."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLNonNull) else None


def item_type(kind: GraphQLType) -> GraphQLType | None:
    """What a list holds; None for a type that is no list."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLList) else None


def named_type(kind: GraphQLType) -> GraphQLNamedType:
    """What all wrappers hold."""
    return cast("GraphQLNamedType", cast("Any", get_named_type)(kind))


def composite_of(kind: GraphQLType) -> Composite | None:
    """The type behind all wrappers, if it has parts to choose from."""
    named = named_type(kind)
    return named if isinstance(named, GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType) else None


def fields_of(kind: Composite) -> Mapping[str, GraphQLField]:
    """The fields that all objects of a type have; those of a union have none in common."""
    return {} if isinstance(kind, GraphQLUnionType) else kind.fields
