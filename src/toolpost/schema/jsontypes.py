"""The types of JSON, told apart in Python values."""

from __future__ import annotations

from decimal import Decimal
from typing import Any, TypeAlias, TypeGuard

from toolpost.contracts.spec import JsonSchema

AnySchema: TypeAlias = JsonSchema | bool


def is_object(value: object) -> TypeGuard[dict[str, Any]]:
    """Whether a value is a JSON object."""
    return isinstance(value, dict)


def is_array(value: object) -> TypeGuard[list[Any]]:
    """Whether a value is a JSON array."""
    return isinstance(value, list)


def json_type(value: object) -> str:
    """The JSON type of a Python value, or the name of its Python type."""
    match value:
        case None:
            return "null"
        case bool():
            return "boolean"
        case int():
            return "integer"
        case float() | Decimal():
            return "number"
        case str():
            return "string"
        case list() | tuple():
            return "array"
        case dict():
            return "object"
        case _:
            return f"Python {type(value).__name__}"
