"""Regular expressions that the fast engine refuses."""

import pytest

from toolpost.schema.patterns import harmless, longest_text, portable, repeats, with_patterns


@pytest.mark.parametrize(
    ("pattern", "spelled"),
    [
        (r"^[\w-.]+@x$", r"^[\w\-.]+@x$"),
        (r"[a-\d]", r"[a\-\d]"),
        (r"[a-z0-9_-]+", r"[a-z0-9_-]+"),
        (r"\w-\w", r"\w-\w"),
        (r"[\]-\w]", r"[\]\-\w]"),
    ],
)
def test_a_dash_beside_a_class_is_escaped(pattern: str, spelled: str) -> None:
    assert portable(pattern) == spelled


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
    assert repeats(pattern) == count


@pytest.mark.parametrize(
    "pattern", ["^(a+)+$", "(a?){30}", "(a|a)*", "(?:(?:a)?)*", r"(a)\1", "(?P<n>a)(?P=n)", "((a*)b)*", "(a)(?(1)b|c)"]
)
def test_a_pattern_that_could_explode_is_told(pattern: str) -> None:
    assert repeats(pattern) is None


def test_the_more_repeats_the_shorter_the_text() -> None:
    assert longest_text(0) > longest_text(1) > longest_text(2) > longest_text(5) > 0


def test_patterns_are_changed_where_they_are_patterns() -> None:
    schema = {
        "pattern": "a",
        "properties": {"pattern": {"pattern": "b"}, "default": {"pattern": "e"}},
        "patternProperties": {"c": {"items": [{"pattern": "d"}]}},
        "const": {"pattern": "kept"},
    }

    assert with_patterns(schema, str.upper) == {
        "pattern": "A",
        "properties": {"pattern": {"pattern": "B"}, "default": {"pattern": "E"}},
        "patternProperties": {"C": {"items": [{"pattern": "D"}]}},
        "const": {"pattern": "kept"},
    }


def test_a_harmless_stand_in_has_no_special_characters() -> None:
    assert harmless("[\ud800(").isalnum()
