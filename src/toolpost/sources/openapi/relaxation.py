"""Schemas with parts cut out: what is left takes at least all that the whole schema takes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.spec import JsonSchema
    from toolpost.schema.jsontypes import AnySchema

ONE = frozenset({"additionalProperties", "items", "contains", "propertyNames", "contentSchema"})
SEVERAL = frozenset({"allOf", "anyOf", "oneOf", "prefixItems"})
BY_NAME = frozenset({"properties", "patternProperties", "dependentSchemas"})
# They refuse what a schema within takes, or what none took: with less in that, they would refuse more.
_TIGHTER = frozenset({"not", "if", "then", "else", "unevaluatedProperties", "unevaluatedItems", "maxContains"})


def relaxed(schema: JsonSchema, inner: Callable[[str, Any], AnySchema]) -> JsonSchema:
    """A copy whose subschemas are changed by `inner`, which is told the word that they stand under.

    `inner` may only loosen what it is given. `oneOf` becomes `anyOf`, because alternatives
    that took different values may then take the same.
    """
    copy: JsonSchema = {}
    for word, value in schema.items():
        if word in ONE:
            copy[word] = inner(word, value)
        elif word in SEVERAL and is_array(value):
            _add(copy, word, [inner(word, item) for item in value])
        elif word in BY_NAME and is_object(value):
            copy[word] = {name: inner(word, item) for name, item in value.items()}
        elif word not in _TIGHTER:
            copy[word] = value
    return copy


def _add(copy: JsonSchema, word: str, schemas: list[AnySchema]) -> None:
    word = "anyOf" if word == "oneOf" else word
    if word not in copy:
        copy[word] = schemas
    else:
        copy.setdefault("allOf", []).append({word: schemas})


def without_references(schema: AnySchema) -> AnySchema:
    """The schema by itself: where it refers to another, anything is taken."""
    if not is_object(schema):
        return schema
    copy = relaxed(schema, lambda _, value: without_references(value))
    copy.pop("$ref", None)
    return copy
