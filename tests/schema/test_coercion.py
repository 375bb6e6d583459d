"""Lenient reading: what models get wrong is put right where the schema asks for it."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings

from tests.schema.strategies import json_values, schemas, schemas_and_values
from toolpost.schema.coercion import coerce_value
from toolpost.schema.validator import compile_validator

TREE = {"properties": {"n": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#"}}}}


def coerce(schema: dict[str, Any], value: Any) -> Any:
    return compile_validator(schema, lenient=True).coerce(value)


@pytest.mark.parametrize(
    ("schema", "given", "read"),
    [
        ({"type": "integer"}, "5", 5),
        ({"type": "integer"}, " -5.0 ", -5),
        ({"type": "number"}, "2.5", 2.5),
        ({"type": "number"}, "1e3", 1000.0),
        ({"type": "boolean"}, "true", True),
        ({"type": "boolean"}, "False", False),
        ({"type": "string"}, 5, "5"),
        ({"type": "string"}, 2.5, "2.5"),
        ({"type": "array", "items": {"type": "integer"}}, 3, [3]),
        ({"type": "array", "items": {"type": "integer"}}, "3", [3]),
        ({"type": "array", "items": {"type": "integer"}}, '[1, "2"]', [1, 2]),
        ({"type": "array"}, {"a": 1}, [{"a": 1}]),
        ({"type": "object", "properties": {"a": {"type": "integer"}}}, '{"a": "1"}', {"a": 1}),
        ({"type": ["integer", "null"]}, "5", 5),
        ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "5", 5),
        ({"oneOf": [{"type": "boolean"}, {"type": "integer"}]}, "7", 7),
        ({"allOf": [{"type": "integer"}, {"minimum": 1}]}, "5", 5),
        ({"enum": [1, 2]}, "2", 2),
        ({"const": 7}, "7", 7),
        ({"prefixItems": [{"type": "integer"}], "items": {"type": "boolean"}}, ["1", "true"], [1, True]),
        ({"additionalProperties": {"type": "integer"}}, {"x": "1"}, {"x": 1}),
        (TREE, {"n": "1", "kids": {"n": "2"}}, {"n": 1, "kids": [{"n": 2}]}),
    ],
)
def test_a_value_is_read_as_the_type_that_is_asked_for(schema: dict[str, Any], given: Any, read: Any) -> None:
    result = coerce(schema, given)

    assert result == read
    assert type(result) is type(read)
    assert compile_validator(schema).is_valid(result)


@pytest.mark.parametrize(
    ("schema", "value"),
    [
        ({"type": "integer"}, "five"),
        ({"type": "integer"}, "5.5"),
        ({"type": "integer"}, "\N{ARABIC-INDIC DIGIT ONE}"),
        ({"type": "number"}, "NaN"),
        ({"type": "number"}, "Infinity"),
        ({"type": "number"}, "1e400"),
        ({"type": "object"}, '{"x": NaN}'),
        ({"type": "object"}, '{"x": 1e400}'),
        ({"type": "string"}, math.inf),
        pytest.param({"type": "integer"}, "9" * 5000, id="many-digits"),
        ({"type": "boolean"}, 1),
        ({"type": "boolean"}, "yes"),
        ({"type": "string"}, True),
        ({"type": "string"}, None),
        pytest.param({"type": "string"}, 10**5000, id="huge-integer"),
        ({"type": "array"}, None),
        ({"type": "object"}, "[1]"),
        pytest.param({"type": "object"}, "{" * 100_000, id="many-braces"),
        pytest.param({"type": "object"}, '{"a":' * 100_000, id="deep-text"),
        ({"type": "null"}, "null"),
        ({"enum": ["a"]}, "b"),
    ],
)
def test_what_cannot_be_read_is_left_as_it_is(schema: dict[str, Any], value: Any) -> None:
    assert coerce(schema, value) == value


def test_a_value_that_already_fits_is_not_touched() -> None:
    schema = {
        "properties": {"a": {"type": ["string", "integer"]}, "b": {"anyOf": [{"type": "string"}, {"type": "integer"}]}}
    }
    value = {"a": "5", "b": "5"}

    assert coerce(schema, value) is value


def test_only_the_parts_that_do_not_fit_are_changed() -> None:
    schema = {
        "properties": {"a": {"type": "integer"}, "b": {"anyOf": [{"type": "string"}, {"type": "integer"}]}, "c": {}}
    }
    value = {"a": "5", "b": "5", "c": "5"}

    assert coerce(schema, value) == {"a": 5, "b": "5", "c": "5"}


def test_the_right_alternative_is_chosen_by_its_tag() -> None:
    def form(kind: str, kind_of_size: str) -> dict[str, Any]:
        return {
            "type": "object",
            "properties": {"kind": {"const": kind}, "size": {"type": kind_of_size}},
            "required": ["kind"],
        }

    schema = {"oneOf": [form("a", "boolean"), form("b", "integer")]}

    assert coerce(schema, {"kind": "b", "size": "5"}) == {"kind": "b", "size": 5}


def test_the_original_is_not_changed() -> None:
    value = {"n": "1", "kids": [{"n": "2"}]}
    before = copy.deepcopy(value)

    assert coerce(TREE, value) != value
    assert value == before


def test_a_strict_validator_changes_nothing() -> None:
    assert compile_validator({"type": "integer"}).coerce("5") == "5"


def test_a_value_that_is_not_json_is_left_for_the_check_to_refuse() -> None:
    value = {"n": object()}

    assert coerce(TREE, value) is value


def test_an_explosive_schema_or_a_deep_value_ends() -> None:
    doubled = {f"d{n}": {"anyOf": [{"$ref": f"#/$defs/d{n + 1}"}] * 2} for n in range(17)}
    deep: Any = "1"
    for _ in range(5000):
        deep = [deep]

    assert coerce({"$ref": "#/$defs/d0", "$defs": {**doubled, "d17": {"type": "integer"}}}, "5") in (5, "5")
    assert coerce({"items": {"$ref": "#"}, "type": ["array", "integer"]}, deep) is not None


@given(schemas_and_values())
@settings(deadline=None)
def test_a_valid_value_stays_as_it_is(made: tuple[dict[str, Any], Any]) -> None:
    schema, value = made

    assert coerce_value(schema, value) == value
    assert compile_validator(schema, lenient=True).coerce(value) is value


@given(schemas(), json_values())
@settings(deadline=None)
def test_coercion_never_makes_a_valid_value_invalid(schema: dict[str, Any], value: Any) -> None:
    validator = compile_validator(schema, lenient=True)

    result = validator.coerce(value)

    assert validator.is_valid(result) or not validator.is_valid(value)
