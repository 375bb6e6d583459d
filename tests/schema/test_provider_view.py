"""What providers do not take in a tool is mapped there and back."""

import json
import re
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from tests.schema.strategies import schemas_and_values
from toolpost.errors import ToolValidationError
from toolpost.schema.provider_view import fit_schema, is_strict
from toolpost.schema.subschemas import subschemas
from toolpost.schema.validator import compile_validator

TAKEN = re.compile(r"[A-Za-z0-9_.-]{1,64}")
ODD = ["$filter", "filter[id]", "größe", "a b", "n" * 65, "", "a/b~c", "名前"]


def tool(name: str, parameters: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": "d", "parameters": parameters}}


def odd(value: Any) -> Any:
    """A schema or a value whose names a, b and c are ones that no provider takes."""
    names = {"a": "$filter", "b": "größe", "c": "n" * 65}
    if isinstance(value, dict):
        return {names.get(key, key): odd(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [odd(inner) for inner in value]
    return value


def odd_schema(schema: Any) -> Any:
    """The same for a schema, where names also stand in lists, but words of JSON Schema stay."""
    return json.loads(json.dumps(schema), object_hook=_odd_members)


def _odd_members(part: dict[str, Any]) -> dict[str, Any]:
    required = (
        {"required": list(odd(dict.fromkeys(part["required"])))} if isinstance(part.get("required"), list) else {}
    )
    return {**odd(part), **required}


def property_names(schema: Any) -> set[str]:
    own = set(schema.get("properties") or ())
    return own.union(*(property_names(inner.schema) for inner in subschemas(schema)))


@given(schemas_and_values())
def test_arguments_come_back_as_they_were_and_fit_the_schema_that_models_read(pair: tuple[Any, Any]) -> None:
    schema, value = odd_schema(pair[0]), odd(pair[1])
    fitted = fit_schema(schema)
    assume(fitted.wrapped or isinstance(value, dict))  # arguments are an object, whatever else a schema admits

    shown = fitted.to_model(value)

    assert fitted.from_model(shown) == value
    assert all(TAKEN.fullmatch(name) for name in property_names(fitted.schema))
    assert fitted.schema["type"] == "object"
    assert not {"oneOf", "anyOf", "allOf", "enum", "not", "$ref"} & fitted.schema.keys()
    compile_validator(fitted.schema).check(shown, "t")


@given(st.lists(st.sampled_from(ODD) | st.text(max_size=80), unique=True, max_size=6))
def test_every_set_of_names_maps_one_to_one(names: list[str]) -> None:
    fitted = fit_schema({"type": "object", "properties": {name: {} for name in names}, "required": names})
    arguments = {name: number for number, name in enumerate(names)}

    shown = fitted.to_model(arguments)

    assert list(shown) == fitted.schema["required"] == list(fitted.schema["properties"])
    assert all(TAKEN.fullmatch(name) for name in shown)
    assert fitted.from_model(shown) == arguments


def test_names_nested_in_definitions_defaults_and_pointers_are_mapped_too() -> None:
    schema = {
        "type": "object",
        "properties": {
            "$top": {"type": "object", "properties": {"a b": {"type": "string"}}, "default": {"a b": "x"}},
            "again": {"$ref": "#/properties/$top/properties/a%20b"},
            "rows": {"type": "array", "items": {"$ref": "#/$defs/Row"}},
        },
        "dependentRequired": {"$top": ["again"]},
        "$defs": {"Row": {"type": "object", "properties": {"@id": {"type": "integer"}}, "required": ["@id"]}},
    }
    arguments = {"$top": {"a b": "x"}, "again": "y", "rows": [{"@id": 1, "free": {"$top": 2}}]}
    fitted = fit_schema(schema)
    shown = fitted.to_model(arguments)

    assert "$top" not in json.dumps(shown)
    assert fitted.from_model(shown) == arguments
    compile_validator(fitted.schema).check(shown, "t")
    with pytest.raises(ToolValidationError):
        compile_validator(fitted.schema).check({**shown, "again": 5}, "t")
    assert fitted.schema["properties"][next(iter(shown))]["title"] == "$top"


def test_a_schema_that_is_no_plain_object_becomes_one_property() -> None:
    schema = {"oneOf": [{"required": ["a"]}, {"$ref": "#/$defs/B"}, {"$ref": "#"}], "$defs": {"B": {"type": "object"}}}
    fitted = fit_schema(schema)

    assert list(fitted.schema["properties"]) == ["arguments"]
    assert [one.get("$ref") for one in fitted.schema["properties"]["arguments"]["oneOf"]] == [
        None,
        "#/$defs/B",
        "#/properties/arguments",
    ]
    assert fitted.from_model({"arguments": {"a": 1}}) == {"a": 1}
    assert fitted.from_model({"a": 1}) == {"a": 1}  # as a model writes that knows better


@pytest.mark.parametrize("schema", [{}, {"type": ["object", "null"]}, {"type": "object"}])
def test_a_schema_that_says_little_is_an_object_without_names(schema: Any) -> None:
    assert fit_schema(schema).schema == {"type": "object", "properties": {}}
    assert fit_schema(schema).is_plain


def test_only_a_schema_whose_objects_require_all_they_name_is_strict() -> None:
    inner = {"type": "object", "properties": {"a": {}}, "required": ["a"], "additionalProperties": False}

    assert is_strict({"type": "array", "items": inner})
    assert not is_strict({"type": "array", "items": {**inner, "required": []}})
    assert not is_strict({"type": "object"})
