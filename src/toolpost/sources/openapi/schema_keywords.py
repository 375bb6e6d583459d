"""Clean the keywords of schemas, and convert those of older dialects to JSON Schema 2020-12."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.unions import allow_null, split_types
from toolpost.sources.openapi.markdown import html_to_markdown

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


def normalize(node: dict[str, Any], schema: JsonSchema) -> JsonSchema:
    """Convert combinations of keywords: boolean exclusive bounds, files, enum values of another type, `nullable`."""
    for limit, exclusive in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum")):
        if node.get(exclusive) is True and limit in schema:
            schema[exclusive] = schema.pop(limit)
    if node.get("type") in _FILES and "format" not in schema:
        schema["format"] = "binary"
    if "enum" in schema and "type" in schema:
        schema["enum"] = [_convert_option(option, schema["type"]) for option in schema["enum"]]
    schema = split_types(schema)
    return allow_null(schema) if node.get("nullable") is True or node.get("x-nullable") is True else schema


def _convert_option(option: Any, kind: Any) -> Any:
    """Convert an enum value to the declared type: YAML parses unquoted `1` and `true` as non-strings."""
    if kind == "string" and isinstance(option, bool | int | float):
        return str(option).lower() if isinstance(option, bool) else str(option)
    if kind in ("integer", "number") and isinstance(option, str):
        amount = _clean_number(option)
        return option if amount is DROPPED else int(amount) if amount == int(amount) else amount
    return option


def _clean_types(value: Any) -> Any:
    if not is_array(value):
        return _TYPES.get(value.lower(), DROPPED) if isinstance(value, str) else DROPPED
    types = dict.fromkeys(
        kind for item in value if (kind := _clean_types(item)) is not DROPPED and isinstance(kind, str)
    )
    return list(types) or DROPPED


def _clean_prose(value: Any) -> Any:
    return html_to_markdown(str(value)) if isinstance(value, str | int | float) else DROPPED


# Documents contain counts as strings, booleans in place of numbers and private types. Invalid
# values are dropped: a tool that accepts too much is better than one that cannot be called.
def _clean_text(value: Any) -> Any:
    return value if isinstance(value, str) else DROPPED


def _clean_enum(value: Any) -> Any:
    """Keep non-empty lists; an empty `enum` would refuse every value."""
    return value if is_array(value) and value else DROPPED


def _keep(value: Any) -> Any:
    return value


def _clean_names(value: Any) -> Any:
    return list(dict.fromkeys(name for name in value if isinstance(name, str))) if is_array(value) else DROPPED


def _clean_flag(value: Any) -> Any:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value, DROPPED)
    return value if isinstance(value, bool) else DROPPED


def _clean_number(value: Any) -> Any:
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


def _clean_factor(value: Any) -> Any:
    amount = _clean_number(value)
    return amount if amount is not DROPPED and amount > 0 else DROPPED


def _clean_count(value: Any) -> Any:
    amount = _clean_number(value)
    return int(amount) if amount is not DROPPED and amount >= 0 and amount == int(amount) else DROPPED


def clean_name_lists(value: Any) -> Any:
    """Keep lists of property names by property."""
    if not is_object(value):
        return DROPPED
    return {key: _clean_names(names) for key, names in value.items() if is_array(names)}


def _clean_discriminator(value: Any) -> Any:
    """Keep the property name and mapping of a discriminator, an annotation that validation ignores."""
    if isinstance(value, str):
        return {"propertyName": value}
    if not is_object(value) or not isinstance(value.get("propertyName"), str):
        return DROPPED
    mapping = value.get("mapping")
    return {"propertyName": value["propertyName"], **({"mapping": mapping} if is_object(mapping) else {})}


def _clean_example(value: Any) -> Any:
    return [value] if _is_short(value) else DROPPED


def _is_short(value: Any) -> bool:
    return isinstance(value, bool | int | float) or (isinstance(value, str) and len(value) <= _LONGEST_EXAMPLE)


def _clean_examples(value: Any) -> Any:
    """Keep up to three short examples; sample documents would be longer than the schema."""
    examples = [item for item in value if _is_short(item)] if is_array(value) else []
    return examples[:3] or DROPPED


CLEANERS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "type": ("type", _clean_types),
    "description": ("description", _clean_prose),
    "title": ("title", _clean_prose),
    "format": ("format", _clean_text),
    "enum": ("enum", _clean_enum),
    "const": ("const", _keep),
    "default": ("default", _keep),
    "required": ("required", _clean_names),
    **{word: (word, _clean_flag) for word in ("deprecated", "readOnly", "writeOnly", "uniqueItems")},
    **{word: (word, _clean_number) for word in ("minimum", "maximum", "exclusiveMinimum", "exclusiveMaximum")},
    "multipleOf": ("multipleOf", _clean_factor),
    **{
        f"{end}{what}": (f"{end}{what}", _clean_count)
        for end in ("min", "max")
        for what in ("Length", "Items", "Properties", "Contains")
    },
    "dependentRequired": ("dependentRequired", clean_name_lists),
    "discriminator": ("discriminator", _clean_discriminator),
    "example": ("examples", _clean_example),
    "examples": ("examples", _clean_examples),
    "contentEncoding": ("contentEncoding", _clean_text),
    "contentMediaType": ("contentMediaType", _clean_text),
}
