"""JSON Schema from Python types, by pydantic, without the titles it makes up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Literal

from pydantic.json_schema import GenerateJsonSchema, JsonSchemaValue

from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from pydantic import TypeAdapter
    from pydantic_core import CoreSchema, core_schema

    from toolpost.contracts.spec import JsonSchema


def schema_of(adapter: TypeAdapter[Any], mode: Literal["validation", "serialization"]) -> JsonSchema:
    """The JSON Schema of a type, as something to be read or as something to be written."""
    schema = adapter.json_schema(mode=mode, schema_generator=_Untitled)
    for name, definition in schema.get("$defs", {}).items():
        _drop_title(definition, name)
    return _with_root_inlined(schema)


def _with_root_inlined(schema: JsonSchema) -> JsonSchema:
    """A recursive type comes as a reference to itself; models and registries want its keywords on top."""
    definitions = schema.get("$defs")
    if set(schema) != {"$ref", "$defs"} or not is_object(definitions):
        return schema
    root = definitions.get(str(schema["$ref"]).removeprefix("#/$defs/"))
    return {**root, "$defs": definitions} if is_object(root) else schema


class _Untitled(GenerateJsonSchema):
    """A title made from a name tells a model nothing and costs tokens; one that somebody wrote is kept."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False

    def model_schema(self, schema: core_schema.ModelSchema) -> JsonSchemaValue:
        return _untitled(super().model_schema(schema), schema)

    def dataclass_schema(self, schema: core_schema.DataclassSchema) -> JsonSchemaValue:
        return _untitled(super().dataclass_schema(schema), schema)

    def typed_dict_schema(self, schema: core_schema.TypedDictSchema) -> JsonSchemaValue:
        return _untitled(super().typed_dict_schema(schema), schema)


def _untitled(result: JsonSchemaValue, schema: CoreSchema) -> JsonSchemaValue:
    _drop_title(result, getattr(schema.get("cls"), "__name__", ""))
    return result


def _drop_title(schema: JsonSchema, name: str) -> None:
    """Remove a title that only repeats the name of a class."""
    if name and schema.get("title") == name:
        del schema["title"]
