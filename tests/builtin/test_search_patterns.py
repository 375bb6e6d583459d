"""Patterns that ripgrep and Python both understand."""

import re

import pytest

from toolpost.builtin.file_search import PatternError, parse_pattern


@pytest.mark.parametrize(
    ("pattern", "line"),
    [
        (r"function f\(\) {", "function f() {}"),
        (r"a{2,3}b{,2}", "xaab"),
        (r"\<b\>", "<b>"),
        (r"\"\'\/\-\ ", "\"'/- "),
        (r"[[\]&~|^-]+x", "[]&~|^-x"),
        (r"[]a]", "]"),
        (r"[^\n]é", "xé"),
        (r"(?i)AbC|(?P<name>d)", "xabc"),
        (r"(?:a|b)*?c\b", "aabc d"),
        (r"\x41é\u20ac", "Aé€"),
        (r"^\s*\w+\d$", " ab1"),
    ],
)
def test_what_both_know_matches_the_same(pattern: str, line: str) -> None:
    assert re.search(parse_pattern(pattern).python, line)


@pytest.mark.parametrize(
    "pattern",
    [
        *["(", "[", "*a", "a**", "(?P<a>x)(?P<a>y)", "a{3,1}", "\\"],
        *["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P=a)", "(?>a)", "(?#a)", "(?(1)a)", "a++", "a*+"],
        *[
            r"a\nb",
            "a\nb",
            r"a\r",
            "a\rb",
            r"\x0d",
            r"\u000A",
            r"\ud800",
            r"[\udfff]",
            r"\A",
            r"\Z",
            r"\p{L}",
            r"\0",
            "[[:alpha:]]",
            "[a--b]",
            r"[\b]",
        ],
        *["(" * 5000, "a" * 3000, "(" * 900 + ")" * 900, "\ud800"],
    ],
    ids=lambda pattern: repr(pattern[:12] + pattern[-3:]),
)
def test_what_is_wrong_or_known_to_one_of_them_only_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        parse_pattern(pattern)

    assert str(refused.value)
