"""Recognize plain schemas by one fast check: valid, small, of objects, without patterns and hidden characters.

Nearly all tools have such schemas. Other schemas need the full checks.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

import orjson

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.hidden_text import may_hide_in

if TYPE_CHECKING:
    import jsonschema_rs

# Far below the limits of `schema_checks`: at most half of the characters open a bracket, each reference is followed
# once on a path, and between two references schemas are nested at most _LEVELS deep.
_LONGEST = 6_000
_MOST_REFERENCES = 12
_LEVELS = 7
_REFERENCE = '"$ref":"#/$defs/'

_TYPES = ("string", "number", "integer", "boolean", "object", "array", "null")
_DRAFTS = (
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema#",
)
_TEXT = {"type": "string"}
_FLAG = {"type": "boolean"}
_NUMBER = {"type": "number"}
_COUNT = {"type": "integer", "minimum": 0}
_SCALAR = {"type": ["string", "number", "boolean", "null"]}
_SCALARS = {"type": "array", "items": _SCALAR}
_KEYWORDS: JsonSchema = {
    "type": {
        "anyOf": [{"enum": _TYPES}, {"type": "array", "items": {"enum": _TYPES}, "minItems": 1, "uniqueItems": True}]
    },
    "title": _TEXT,
    "description": _TEXT,
    "format": _TEXT,
    "default": {"anyOf": [_SCALAR, _SCALARS, {"type": "object", "maxProperties": 0}]},
    "const": _SCALAR,
    "enum": _SCALARS,
    "examples": _SCALARS,
    "required": {"type": "array", "items": _TEXT, "uniqueItems": True},
    "minimum": _NUMBER,
    "maximum": _NUMBER,
    "exclusiveMinimum": _NUMBER,
    "exclusiveMaximum": _NUMBER,
    "minLength": _COUNT,
    "maxLength": _COUNT,
    "minItems": _COUNT,
    "maxItems": _COUNT,
    "uniqueItems": _FLAG,
    "deprecated": _FLAG,
    "readOnly": _FLAG,
    "writeOnly": _FLAG,
    "$ref": {"type": "string", "pattern": r"^#/\$defs/[A-Za-z0-9_.-]+$"},
}


def is_plain_schema(schema: JsonSchema) -> bool:
    """Return whether a schema is plain."""
    try:
        text = orjson.dumps(schema).decode()
        if len(text) > _LONGEST or not _meta_schema().is_valid(schema):
            return False
    except (TypeError, ValueError):  # it contains values that are not JSON
        return False
    _, *references = text.split(_REFERENCE)
    if references:
        names = {reference.partition('"')[0] for reference in references}
        if len(references) > _MOST_REFERENCES or not names <= schema.get("$defs", {}).keys():
            return False
    return not may_hide_in(text)


@cache
def _meta_schema() -> jsonschema_rs.Validator:
    """Return the validator of plain schemas, which rejects unknown keywords."""
    import jsonschema_rs  # noqa: PLC0415 - takes long to load, and a catalog without sources is listed without it

    root = _level(1)
    definitions = {"type": "object", "additionalProperties": {"$ref": "#/$defs/level2"}}
    root["properties"] |= {"$schema": {"enum": _DRAFTS}, "type": {"const": "object"}, "$defs": definitions}
    levels = {f"level{number}": _level(number) for number in range(2, _LEVELS + 1)}
    return jsonschema_rs.Draft202012Validator({**root, "$defs": levels})


def _level(number: int) -> JsonSchema:
    """Return the meta-schema of one level; the schemas of the last level contain no others."""
    keywords: dict[str, Any] = dict(_KEYWORDS)
    if number < _LEVELS:
        inner = {"$ref": f"#/$defs/level{number + 1}"}
        several = {"type": "array", "items": inner, "minItems": 1}
        keywords |= {
            "properties": {"type": "object", "additionalProperties": inner},
            "additionalProperties": {"anyOf": [_FLAG, inner]},
            "items": inner,
            "anyOf": several,
            "oneOf": several,
            "allOf": several,
        }
    return {"type": "object", "properties": keywords, "additionalProperties": False}
