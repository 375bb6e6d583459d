"""Schemas of more than one type, written as `anyOf`.

JSON Schema also has lists of types, `{"type": ["integer", "null"]}`. Many clients read `type` as one name and fail on
such a list, so schemas that Toolpost generates have none.
"""

from __future__ import annotations

from toolpost.contracts.spec import JsonSchema
from toolpost.schema.json_values import is_array, is_object

_NULL: JsonSchema = {"type": "null"}
_ANNOTATIONS = ("title", "description", "default", "deprecated", "examples", "readOnly", "writeOnly")


def allow_null(schema: JsonSchema) -> JsonSchema:
    """Return the schema with null as another alternative; annotations stay beside the alternatives."""
    notes = {word: schema[word] for word in _ANNOTATIONS if word in schema}
    rules = {word: value for word, value in schema.items() if word not in notes}
    if not rules or rules == _NULL:
        return schema
    if is_array(options := rules.get("enum")) and None in options:
        rules["enum"] = [option for option in options if option is not None]
    if rules.keys() == {"anyOf"} and is_array(alternatives := rules["anyOf"]):
        return schema if _NULL in alternatives else {**notes, "anyOf": [*alternatives, _NULL]}
    return {**notes, "anyOf": [rules, _NULL]}


def split_types(schema: JsonSchema) -> JsonSchema:
    """Return the schema with alternatives in place of a list of types; one that has alternatives already stays."""
    kinds = schema.get("type")
    if not is_array(kinds):
        return schema
    if len(kinds) == 1:
        return {**schema, "type": kinds[0]}
    if "anyOf" in schema:
        return schema
    if "null" in kinds:
        return allow_null(split_types({**schema, "type": [kind for kind in kinds if kind != "null"]}))
    rest = {word: value for word, value in schema.items() if word != "type"}
    return {**rest, "anyOf": [{"type": kind} for kind in kinds]}


def types_of(schema: JsonSchema) -> list[str]:
    """Return the types that a schema names, directly or in its alternatives."""
    alternatives = schema.get("anyOf")
    schemas = [schema, *(alternatives if is_array(alternatives) else ())]
    named = [one.get("type") for one in schemas if is_object(one)]
    return [kind for kinds in named for kind in (kinds if is_array(kinds) else [kinds]) if isinstance(kind, str)]
