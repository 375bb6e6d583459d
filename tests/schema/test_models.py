"""The typed view of a tool's input."""

from typing import Any

import pytest
from pydantic import ValidationError

from toolpost.schema.models import input_model

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string"},
        "count": {"type": "integer"},
        "ratio": {"type": "number"},
        "deep": {"type": "object", "properties": {"x": {"type": "string"}}},
        "tags": {"type": "array", "items": {"type": "string"}},
        "rows": {"type": "array", "items": {"type": "object"}},
        "maybe": {"type": ["string", "null"]},
        "open": {"anyOf": [{"type": "string"}, {"type": "integer"}]},
        "flag": {"type": "boolean"},
    },
    "required": ["name"],
}


def sent(**given: Any) -> dict[str, Any]:
    return input_model(SCHEMA)(**given).model_dump(by_alias=True, exclude_unset=True)


def test_simple_types_are_typed_and_what_is_required_must_be_given() -> None:
    given = {"name": "a", "count": 1, "ratio": 0.5, "flag": True, "tags": ["x"], "maybe": None}
    assert sent(**given) == given
    for wrong in ({}, {"name": "a", "count": "x"}, {"name": "a", "tags": [{}]}):
        with pytest.raises(ValidationError):
            sent(**wrong)


@pytest.mark.req("CONV-09", "MISC-02")
def test_what_is_richer_is_open() -> None:
    given = {"name": "a", "deep": {"any": 1}, "rows": [{"a": 1}, 2], "open": {"whatever": True}, "more": 1}
    assert sent(**given) == given


@pytest.mark.req("DEF-05")
def test_what_was_left_out_is_not_sent() -> None:
    assert sent(name="a") == {"name": "a"}


@pytest.mark.req("DEF-06")
@pytest.mark.parametrize("odd", ["_id", "model_config", "class", "a b", "1st", "copy", "a.b", ""])
def test_any_property_name_has_a_field(odd: str) -> None:
    model = input_model({"type": "object", "properties": {odd: {"type": "integer"}}, "required": [odd]})
    assert model.model_validate({odd: 1}).model_dump(by_alias=True) == {odd: 1}


def test_names_that_would_fall_together_stay_apart() -> None:
    model = input_model({"type": "object", "properties": {"a-b": {}, "a_b": {}}})
    assert model.model_validate({"a-b": 1, "a_b": 2}).model_dump(by_alias=True) == {"a-b": 1, "a_b": 2}


def test_a_closed_schema_gives_a_closed_model() -> None:
    model = input_model({"type": "object", "properties": {}, "additionalProperties": False})
    with pytest.raises(ValidationError):
        model.model_validate({"x": 1})
