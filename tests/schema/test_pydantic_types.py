"""Typed models as views of JSON Schemas."""

from typing import Any, Literal

import pytest
from pydantic import BaseModel, ValidationError

from toolpost.schema.pydantic_types import arguments_model, result_model

ISSUE = {
    "type": "object",
    "properties": {
        "title": {"type": "string", "description": "One line"},
        "labels": {"type": "array", "items": {"type": "string"}},
    },
    "required": ["title"],
}


def types(**properties: Any) -> dict[str, Any]:
    """The types of properties that are all required."""
    schema = {"type": "object", "properties": properties, "required": list(properties), "$defs": DEFINITIONS}
    return {name: field.annotation for name, field in arguments_model("Args", schema).model_fields.items()}


DEFINITIONS = {
    "place": {"type": "object", "properties": {"city": {"type": "string"}}},
    "tree": {"type": "array", "items": {"$ref": "#/$defs/tree"}},
    "a/b": {"type": "string"},
}


@pytest.mark.req("CONV-06")
def test_required_properties_are_mandatory_and_the_others_none_by_default() -> None:
    model = arguments_model("IssueArgs", ISSUE)

    assert model(title="Bug").model_dump() == {"title": "Bug", "labels": None}
    assert model(title="Bug").model_dump(exclude_unset=True) == {"title": "Bug"}
    assert model.model_fields["title"].description == "One line"
    with pytest.raises(ValidationError, match="title"):
        model(labels=[])


@pytest.mark.req("CONV-08")
def test_types_are_those_of_python_and_what_has_none_is_any() -> None:
    assert types(
        text={"type": "string"},
        count={"type": "integer"},
        share={"type": "number"},
        flag={"type": "boolean"},
        names={"type": "array", "items": {"type": "string"}},
        options={"type": "object"},
        typeless={},
        everything=True,
        strange={"type": "nonsense"},
    ) == {
        "text": str,
        "count": int,
        "share": float,
        "flag": bool,
        "names": list[str],
        "options": dict[str, Any],
        "typeless": Any,
        "everything": Any,
        "strange": Any,
    }


def test_enumerations_alternatives_and_null_are_kept() -> None:
    assert types(
        state={"enum": ["open", "closed"]},
        fixed={"const": 1},
        halves={"enum": [0.5, 1.5]},
        either={"anyOf": [{"type": "string"}, {"type": "integer"}]},
        maybe={"type": ["string", "null"]},
    ) == {
        "state": Literal["open", "closed"],
        "fixed": Literal[1],
        "halves": Any,
        "either": str | int,
        "maybe": str | None,
    }


@pytest.mark.req("CONV-09")
def test_nested_schemas_fall_back_to_permissive_types() -> None:
    assert types(
        place={"$ref": "#/$defs/place"},
        places={"type": "array", "items": {"$ref": "#/$defs/place"}},
        tree={"$ref": "#/$defs/tree"},
        both={"allOf": [{"type": "string"}]},
        escaped={"$ref": "#/$defs/a~1b"},
        missing={"$ref": "#/$defs/none"},
        elsewhere={"$ref": "https://example.com/schema.json"},
    ) == {
        "place": dict[str, Any],
        "places": list[dict[str, Any]],
        "tree": list[Any],
        "both": Any,
        "escaped": str,
        "missing": Any,
        "elsewhere": Any,
    }


@pytest.mark.parametrize("name", ["_id", "model_config", "class", "content-type", "1st", "json", "-"])
def test_a_name_that_no_field_can_have_is_sent_as_it_is(name: str) -> None:
    schema = {"type": "object", "properties": {name: {"type": "string"}}, "required": [name]}

    given = arguments_model("Args", schema).model_validate({name: "x"})

    assert given.model_dump(by_alias=True, exclude_unset=True) == {name: "x"}


def test_two_names_that_would_become_one_field_both_stay() -> None:
    schema = {"type": "object", "properties": {"a-b": {"type": "string"}, "a_b": {"type": "string"}}}
    sent = {"a-b": "1", "a_b": "2"}

    assert arguments_model("Args", schema).model_validate(sent).model_dump(by_alias=True) == sent


def test_unknown_arguments_pass_unless_the_schema_forbids_them() -> None:
    assert arguments_model("Args", {}).model_validate({"more": 1}).model_dump() == {"more": 1}
    with pytest.raises(ValidationError, match="more"):
        arguments_model("Args", {"additionalProperties": False}).model_validate({"more": 1})


def test_a_schema_that_doubles_with_every_reference_is_read_once() -> None:
    definitions: dict[str, Any] = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(60)}
    definitions["d60"] = {"type": "string"}
    schema = {"properties": {"bomb": {"$ref": "#/$defs/d0"}}, "required": ["bomb"], "$defs": definitions}

    assert arguments_model("Args", schema).model_fields["bomb"].annotation is str


def test_any_result_fits_the_result_model() -> None:
    model = result_model("Result")

    assert issubclass(model, BaseModel)
    assert [model(result=value).model_dump()["result"] for value in ("text", [1], None)] == ["text", [1], None]
