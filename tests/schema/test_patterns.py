"""Regular expressions in schemas."""

from typing import Any

import pytest

from toolpost.schema.patterns import count_repeats, map_patterns, patterns_in, relax_patterns, translate_pattern


@pytest.mark.parametrize(
    ("pattern", "spelled"),
    [
        (r"^[\w-.]+@x$", r"^[\w\-.]+@x$"),
        (r"[a-\d]", r"[a\-\d]"),
        (r"[a-z0-9_-]+", r"[a-z0-9_-]+"),
        (r"\w-\w", r"\w-\w"),
        (r"[\]-\w]", r"[\]\-\w]"),
        (r"\A[a-z]+\Z", r"\A[a-z]+\z"),
        (r"\\Z", r"\\Z"),
    ],
)
def test_what_other_dialects_write_is_spelled_for_the_engine(pattern: str, spelled: str) -> None:
    assert translate_pattern(pattern) == spelled


@pytest.mark.parametrize(
    ("pattern", "count"),
    [
        ("abc", 0),
        ("a+b*", 2),
        (r"(?:\d{4}-){2}", 0),
        ("(a+)?", 2),
        (r"\(a+\)+", 2),
        ("[(+*]*", 1),
        ("(?P<n>a)+", 1),
    ],
)
def test_repeats_are_counted(pattern: str, count: int) -> None:
    assert count_repeats(pattern) == count


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a?){30}", "(a|a)*", "(?:(?:a)?)*", r"(a)\1", "(?P<n>a)(?P=n)", "((a*)b)*", "(a)(?(1)b|c)"]
)
def test_a_pattern_that_could_explode_is_reported(pattern: str) -> None:
    assert count_repeats(pattern) is None


def test_patterns_are_changed_where_they_are_patterns() -> None:
    schema = {
        "pattern": "a",
        "properties": {"pattern": {"pattern": "b"}, "default": {"pattern": "e"}},
        "patternProperties": {"c": {"items": [{"pattern": "d"}]}},
        "const": {"pattern": "kept"},
    }

    assert map_patterns(schema, str.upper) == {
        "pattern": "A",
        "properties": {"pattern": {"pattern": "B"}, "default": {"pattern": "E"}},
        "patternProperties": {"C": {"items": [{"pattern": "D"}]}},
        "const": {"pattern": "kept"},
    }


def test_patterns_are_found_where_they_are_patterns() -> None:
    schema = {
        "pattern": "a",
        "properties": {"pattern": {"pattern": "b"}},
        "patternProperties": {"c": {"items": [{"pattern": "d"}]}},
        "const": {"pattern": "data"},
    }

    assert list(patterns_in(schema)) == [
        ("pattern", "a"),
        ("pattern", "b"),
        ("patternProperties", "c"),
        ("pattern", "d"),
    ]


@pytest.mark.parametrize(
    ("schema", "relaxed"),
    [
        ({"pattern": "x", "minLength": 1}, {"minLength": 1}),
        ({"pattern": "y"}, {"pattern": "y"}),
        ({"patternProperties": {"x": False, "y": True}}, {"patternProperties": {"y": True, "": {}}}),
        ({"not": {"pattern": "x"}}, {}),
        ({"not": {"type": "string"}}, {"not": {"type": "string"}}),
        ({"if": {"$ref": "#/$defs/a"}, "then": False}, {}),
        ({"oneOf": [{"pattern": "x"}, {"type": "null"}]}, {"allOf": [{"anyOf": [{}, {"type": "null"}]}]}),
        ({"contains": {"pattern": "x"}, "maxContains": 1}, {"contains": {}}),
        ({"unevaluatedProperties": False}, {}),
    ],
)
def test_a_schema_without_a_pattern_allows_more_and_refuses_nothing_more(
    schema: dict[str, Any], relaxed: dict[str, Any]
) -> None:
    assert relax_patterns(schema, lambda pattern: pattern == "x") == relaxed
