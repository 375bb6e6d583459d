"""Typed access to the types of graphql-core, and texts of a schema."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, TypeAlias, cast

from graphql import (
    GraphQLArgument,
    GraphQLField,
    GraphQLInputField,
    GraphQLInterfaceType,
    GraphQLList,
    GraphQLNamedType,
    GraphQLNonNull,
    GraphQLObjectType,
    GraphQLType,
    GraphQLUnionType,
    get_named_type,
    is_required_argument,
)

Composite: TypeAlias = GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType
# The limit of OpenAI's function calling.
MAX_DESCRIPTION_CHARS = 1024
UPLOAD = "Upload"  # the conventional name of the scalar of a file
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def type_of(place: GraphQLField | GraphQLArgument | GraphQLInputField) -> GraphQLType:
    """Return the type of a field or an argument."""
    return cast("GraphQLType", cast("Any", place).type)


def variable_type(argument: GraphQLArgument) -> GraphQLType:
    """Return the type of an argument's variable: nullable when the argument has a default."""
    kind = type_of(argument)
    return kind if is_required_argument(argument) else unwrap_non_null(kind) or kind


def unwrap_non_null(kind: GraphQLType) -> GraphQLType | None:
    """Return the type inside a non-null type; None for a nullable type."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLNonNull) else None


def item_type(kind: GraphQLType) -> GraphQLType | None:
    """Return the item type of a list; None for other types."""
    return cast("Any", kind).of_type if isinstance(kind, GraphQLList) else None


def named_type(kind: GraphQLType) -> GraphQLNamedType:
    """Return the named type inside all wrappers."""
    return cast("GraphQLNamedType", cast("Any", get_named_type)(kind))


def composite_of(kind: GraphQLType) -> Composite | None:
    """Return the named type if it is an object, interface or union."""
    named = named_type(kind)
    return named if isinstance(named, GraphQLObjectType | GraphQLInterfaceType | GraphQLUnionType) else None


def fields_of(kind: Composite) -> Mapping[str, GraphQLField]:
    """Return the fields of a type; a union has none."""
    return {} if isinstance(kind, GraphQLUnionType) else kind.fields


def truncate(text: str | None, limit: int = MAX_DESCRIPTION_CHARS) -> str:
    """Remove control characters and cut the text after the last whole word that fits."""
    plain = _CONTROL.sub("", text or "").strip() if limit else ""
    if len(plain) <= limit:
        return plain
    head = plain[: limit - 1]
    return f"{head.rsplit(maxsplit=1)[0] if ' ' in head else head}…"
