"""The words of a schema that hold no schemas: each made legal in JSON Schema 2020-12, or left out.

Documents in the wild hold counts as text, booleans where numbers belong and types of their
own. What cannot be understood is dropped: a tool that takes too much beats one that cannot be called.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.sources.openapi.description import as_markdown

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.spec import JsonSchema

DROPPED: Any = object()

_TYPES = {
    **{kind: kind for kind in ("string", "number", "integer", "boolean", "object", "array", "null")},
    **dict.fromkeys(("int", "int32", "int64", "long"), "integer"),
    **dict.fromkeys(("float", "double", "decimal"), "number"),
    "bool": "boolean",
    **dict.fromkeys(("str", "text", "date", "datetime", "date-time", "uuid", "email", "uri", "url", "byte"), "string"),
    **dict.fromkeys(("file", "binary"), "string"),
    **dict.fromkeys(("map", "dict", "hash"), "object"),
    "list": "array",
}
_FILES = ("file", "binary")
_LONGEST_EXAMPLE = 200


def text(value: Any) -> Any:
    """A string."""
    return value if isinstance(value, str) else DROPPED


def prose(value: Any) -> Any:
    """A string without HTML, or a scalar that was meant as one."""
    return as_markdown(str(value)) if isinstance(value, str | int | float) else DROPPED


def flag(value: Any) -> Any:
    """A boolean."""
    return {"true": True, "false": False}.get(value, DROPPED) if isinstance(value, str) else _boolean(value)


def _boolean(value: Any) -> Any:
    return value if isinstance(value, bool) else DROPPED


def count(value: Any) -> Any:
    """A whole number that is not negative."""
    amount = number(value)
    return int(amount) if amount is not DROPPED and amount >= 0 and amount == int(amount) else DROPPED


def number(value: Any) -> Any:
    """A number, also one in quotes."""
    if isinstance(value, bool):
        return DROPPED
    if isinstance(value, str):
        try:
            value = float(value) if len(value) < 50 else DROPPED
        except ValueError:
            return DROPPED
    if isinstance(value, float):
        return value if math.isfinite(value) else DROPPED
    return value if isinstance(value, int) else DROPPED


def factor(value: Any) -> Any:
    """A number above zero."""
    amount = number(value)
    return amount if amount is not DROPPED and amount > 0 else DROPPED


def anything(value: Any) -> Any:
    """Whatever it is."""
    return value


def types(value: Any) -> Any:
    """One type or several, known ones only."""
    if not is_array(value):
        return _TYPES.get(value.lower(), DROPPED) if isinstance(value, str) else DROPPED
    known = dict.fromkeys(kind for item in value if (kind := types(item)) is not DROPPED and isinstance(kind, str))
    return list(known) or DROPPED


def options(value: Any) -> Any:
    """The values to choose from; an empty list would refuse everything, which nobody means."""
    return value if is_array(value) and value else DROPPED


def names(value: Any) -> Any:
    """Property names, each once."""
    return list(dict.fromkeys(name for name in value if isinstance(name, str))) if is_array(value) else DROPPED


def name_lists(value: Any) -> Any:
    """Property names by property name."""
    if not is_object(value):
        return DROPPED
    return {key: names(found) for key, found in value.items() if is_array(found)}


def discriminator(value: Any) -> Any:
    """How alternatives are told apart: a note for readers, which validation does not need."""
    if isinstance(value, str):
        return {"propertyName": value}
    if not is_object(value) or not isinstance(value.get("propertyName"), str):
        return DROPPED
    mapping = value.get("mapping")
    return {"propertyName": value["propertyName"], **({"mapping": mapping} if is_object(mapping) else {})}


def examples(value: Any) -> Any:
    """Those that are short: whole sample documents would weigh more than the schema."""
    kept = [item for item in value if _is_short(item)] if is_array(value) else []
    return kept[:3] or DROPPED


def example(value: Any) -> Any:
    """One example as a list of them."""
    return [value] if _is_short(value) else DROPPED


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST_EXAMPLE)


CLEANERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "type": ("type", types),
    "description": ("description", prose),
    "title": ("title", prose),
    "format": ("format", text),
    "enum": ("enum", options),
    "const": ("const", anything),
    "default": ("default", anything),
    "required": ("required", names),
    **{word: (word, flag) for word in ("deprecated", "readOnly", "writeOnly", "uniqueItems")},
    **{word: (word, number) for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")},
    "multipleOf": ("multipleOf", factor),
    **{
        f"{end}{what}": (f"{end}{what}", count)
        for end in ("min", "max")
        for what in ("Length", "Items", "Properties", "Contains")
    },
    "dependentRequired": ("dependentRequired", name_lists),
    "discriminator": ("discriminator", discriminator),
    "example": ("examples", example),
    "examples": ("examples", examples),
    "contentEncoding": ("contentEncoding", text),
    "contentMediaType": ("contentMediaType", text),
}


def settle(node: dict[str, Any], schema: JsonSchema) -> JsonSchema:
    """Put right what takes more than one word: exclusive bounds, files, choices of the wrong type, null."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if node.get(exclusive) is True and limit in schema:
            schema[exclusive] = schema.pop(limit)
    if node.get("type") in _FILES and "format" not in schema:
        schema["format"] = "binary"
    if "enum" in schema and "type" in schema:
        schema["enum"] = [_of_type(option, schema["type"]) for option in schema["enum"]]
    if node.get("nullable") is True or node.get("x-nullable") is True:
        return or_null(schema)
    return schema


def _of_type(option: Any, kind: Any) -> Any:
    """A choice as the type that is asked for: YAML reads `[1, 2]` and `[true]` as no strings."""
    if kind == "string" and isinstance(option, bool | int | float):
        return str(option).lower() if isinstance(option, bool) else str(option)
    if kind in ("integer", "number") and isinstance(option, str):
        amount = number(option)
        return option if amount is DROPPED else int(amount) if amount == int(amount) else amount
    return option


_COMPOSED = ("$ref", "allOf", "anyOf", "oneOf", "const", "not", "if")
_NOTES = ("title", "description", "default", "deprecated", "examples", "readOnly", "writeOnly")


def or_null(schema: JsonSchema) -> JsonSchema:
    """The schema, with null allowed as well."""
    if any(word in schema for word in _COMPOSED):
        notes = {word: schema[word] for word in _NOTES if word in schema}
        rules = {word: value for word, value in schema.items() if word not in notes}
        return {**notes, "anyOf": [rules, {"type": "null"}]}
    changed = dict(schema)
    if "type" in schema:
        kinds = schema["type"] if is_array(schema["type"]) else [schema["type"]]
        changed["type"] = kinds if "null" in kinds else [*kinds, "null"]
    if "enum" in schema and None not in schema["enum"]:
        changed["enum"] = [*schema["enum"], None]
    return changed
