"""Aliases of arguments: camelCase is accepted as well as snake_case, but models see only one spelling."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace
from pydantic import AliasChoices

from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.spec import JsonSchema


NO_OTHERS: Mapping[str, Sequence[str]] = {}


def either(name: str, *others: str) -> AliasChoices:
    """Return the aliases of an argument: its name, its name in camelCase, and others."""
    return AliasChoices(name, *dict.fromkeys([camel(name), *others]))


def camel(name: str) -> str:
    """Convert snake_case to camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word.capitalize() for word in rest)


def with_camel_case(tool: FunctionTool, *, also: Mapping[str, Sequence[str]] = NO_OTHERS) -> FunctionTool:
    """Return the tool with a schema that accepts both spellings; models see the original schema.

    The function's parameters have `Field(validation_alias=either("max_results"))`, which makes pydantic read both.
    `also` contains further aliases of optional arguments.
    """
    shown = tool.spec.input_schema
    accepted = _with_others(_widen(shown), also)
    return tool if accepted == shown else tool.renamed(replace(tool.spec, input_schema=accepted, model_schema=shown))


def _widen(schema: Any) -> Any:
    if is_array(schema):
        return [_widen(part) for part in schema]
    if not is_object(schema):
        return schema
    inner = {key: _widen(part) for key, part in schema.items()}
    properties = inner.get("properties")
    return _with_both(inner, properties) if is_object(properties) else inner


def _with_both(schema: JsonSchema, properties: JsonSchema) -> JsonSchema:
    twofold = [name for name in properties if camel(name) not in properties]
    if not twofold:
        return schema
    added = {camel(name): properties[name] for name in twofold}
    both: JsonSchema = {**schema, "properties": {**properties, **added}}
    required: list[str] = both.pop("required", [])
    plain = [name for name in required if name not in twofold]
    if plain:
        both["required"] = plain
    return {**both, "allOf": [_one_of_two(name, required=name in required) for name in twofold]}


def _with_others(schema: JsonSchema, also: Mapping[str, Sequence[str]]) -> JsonSchema:
    for name, others in also.items():
        properties: JsonSchema = schema["properties"]
        names = [name, *([camel(name)] if camel(name) != name else []), *others]
        pairs = [{"required": [*pair]} for pair in combinations(names, 2)]
        rules = [*schema.get("allOf", []), {"not": {"anyOf": pairs}}]
        schema = {**schema, "properties": {**properties, **dict.fromkeys(others, properties[name])}, "allOf": rules}
    return schema


def _one_of_two(name: str, *, required: bool) -> JsonSchema:
    """Require or allow one of the two spellings, and reject both together."""
    if required:
        return {"oneOf": [{"required": [name]}, {"required": [camel(name)]}]}
    return {"not": {"required": [name, camel(name)]}}
