"""What a model is shown of large schemas."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.schema.strategies import schemas_and_values
from toolpost.schema.schema_checks import check_schema
from toolpost.schema.validator import compile_validator
from toolpost.sources.openapi.definitions import remove_references
from toolpost.sources.openapi.model_view import BUDGET, estimate_tokens, fit_to_budget


def large(depth: int = 6, width: int = 6) -> dict[str, Any]:
    """A schema that grows with every level below its arguments."""
    definitions: dict[str, Any] = {f"Level{depth}": {"type": "string", "description": "The end."}}
    for level in range(depth):
        definitions[f"Level{level}"] = {
            "type": "object",
            "description": f"Level {level}. " + "Words. " * 30,
            "required": ["field0"],
            "properties": {
                f"field{n}": {"description": f"Field {n} of level {level}.", "$ref": f"#/$defs/Level{level + 1}"}
                if n == 0
                else {"type": "object", "properties": {f"p{m}": {"type": "string"} for m in range(width)}}
                for n in range(width)
            },
        }
    return {
        "type": "object",
        "properties": {
            "id": {"type": "string", "description": "Which one."},
            "kind": {"enum": [f"kind-{n}" for n in range(500)]},
            "body": {"$ref": "#/$defs/Level0"},
        },
        "required": ["id", "body"],
        "additionalProperties": False,
        "$defs": definitions,
    }


def test_a_schema_that_fits_is_shown_as_it_is() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}

    assert fit_to_budget(schema) is schema


@pytest.mark.parametrize("budget", [4000, 2000, 1000, 500, 200])
def test_a_view_keeps_the_budget_and_all_arguments(budget: int) -> None:
    schema = large(depth=12, width=12)
    view = fit_to_budget(schema, budget=budget)

    assert estimate_tokens(schema) > BUDGET
    assert estimate_tokens(view) <= budget
    assert list(view["properties"]) == ["id", "kind", "body"]
    assert view["required"] == ["id", "body"]
    check_schema(view, tool_name="t")


def test_more_budget_shows_more() -> None:
    schema = large(depth=12, width=12)
    sizes = [estimate_tokens(fit_to_budget(schema, budget=budget)) for budget in (200, 500, 1000, 2000, 4000)]

    assert sizes == sorted(sizes)
    assert sizes[-1] > 2000


def test_the_schema_itself_is_untouched() -> None:
    schema = large()
    fit_to_budget(schema, budget=300)

    assert schema == large()


def test_what_is_cut_says_what_it_is() -> None:
    view = fit_to_budget(large(depth=12, width=12), budget=500)

    assert view["properties"]["kind"]["description"].startswith("One of 500 values, such as ['kind-0'")
    assert view["$defs"]["Level0"]["properties"]["field1"] == {"type": "object"}


def test_optional_arguments_give_way_when_there_are_too_many() -> None:
    names = [f"argument_number_{n}" for n in range(2000)]
    schema = {
        "type": "object",
        "properties": {name: {"type": "string"} for name in names},
        "required": names[-3:],
        "additionalProperties": False,
    }
    view = fit_to_budget(schema)

    assert estimate_tokens(view) <= BUDGET
    assert set(names[-3:]) < set(view["properties"])
    assert 200 < len(view["properties"]) < 2000
    assert "more optional arguments" in view["description"]
    assert compile_validator(view).is_valid(dict.fromkeys(names, "x"))


@settings(max_examples=200, deadline=None)
@given(schemas_and_values(), st.integers(1, 120))
def test_a_view_takes_what_the_schema_takes(made: tuple[Any, Any], budget: int) -> None:
    schema = {"type": "object", "properties": {"body": made[0]}, "required": ["body"]}

    assert compile_validator(fit_to_budget(schema, budget=budget)).is_valid({"body": made[1]})


@settings(max_examples=200, deadline=None)
@given(schemas_and_values())
def test_what_is_relaxed_takes_at_least_as_much(made: tuple[Any, Any]) -> None:
    assert compile_validator(remove_references(made[0])).is_valid(made[1])


def test_words_that_refuse_are_loosened_with_what_they_refuse() -> None:
    schema = {
        "not": {"$ref": "#/$defs/A"},
        "if": {"$ref": "#/$defs/A"},
        "then": False,
        "oneOf": [{"$ref": "#/$defs/A"}, {"type": "string"}],
        "anyOf": [{"type": "string"}],
        "unevaluatedProperties": False,
    }

    assert remove_references(schema) == {
        "anyOf": [{}, {"type": "string"}],
        "allOf": [{"anyOf": [{"type": "string"}]}],
    }


def test_a_description_that_begins_with_blanks_is_shown_like_any_other() -> None:
    schema = large()
    schema["properties"]["body"] = {"type": "object", "description": f"{' ' * 2000}What to send.\n{'More. ' * 400}"}
    schema["properties"]["odd"] = {"type": "string", "description": " " * 5000}
    schema["properties"] |= {f"more{n}": {"type": "string", "description": "Words. " * 200} for n in range(40)}
    view = fit_to_budget(schema)
    assert view["properties"]["body"]["description"].startswith("What to send.")
    assert "description" not in view["properties"]["odd"]


def test_what_must_be_given_is_shown_before_what_may_be() -> None:
    """As OpenAI's chat completions: a few required messages among many options with large definitions."""
    role = {"type": "string", "enum": ["user"]}
    message = {"type": "object", "properties": {"role": role, "content": {"type": "string"}}, "required": ["role"]}
    options = {f"Option{n}": large(depth=2, width=8)["$defs"]["Level0"] for n in range(20)}
    properties: dict[str, Any] = {f"option{n}": {"$ref": f"#/$defs/Option{n}"} for n in range(20)}
    properties["messages"] = {"type": "array", "items": {"oneOf": [{"$ref": "#/$defs/Message"}]}}
    body = {"type": "object", "properties": properties, "required": ["messages"]}
    schema = {"type": "object", "properties": {"body": {"$ref": "#/$defs/Body"}}, "required": ["body"]}
    definitions = {"Body": body, "Message": message, "Level1": {"type": "string"}, **options}

    view = fit_to_budget({**schema, "$defs": definitions}, budget=1500)

    assert estimate_tokens(view) <= 1500
    assert view["$defs"]["Message"]["properties"]["role"]["enum"] == ["user"]
    assert list(view["$defs"]["Body"]["properties"]) == list(properties)


def test_a_schema_of_another_script_is_counted_by_its_escapes() -> None:
    chinese = {"description": "\u4e2d" * 100}

    assert estimate_tokens(chinese) >= 300


@pytest.mark.parametrize(
    ("schema", "o200k_base"),
    [
        ({"enum": ["America/Argentina/ComodRivadavia", "Antarctica/DumontDUrville", "Asia/Ust-Nera"]}, 33),
        ({"properties": {f"n{n}": {"default": n * 1.5, "maximum": 10**n} for n in range(12)}}, 238),
    ],
)
def test_names_and_numbers_count_for_more_than_words_of_their_length(schema: dict[str, Any], o200k_base: int) -> None:
    assert estimate_tokens(schema) >= o200k_base
