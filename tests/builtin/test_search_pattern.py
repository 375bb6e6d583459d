"""Patterns of Python in the syntax of ripgrep."""

import pytest

from toolpost.builtin.search_pattern import PatternError, translate_pattern


@pytest.mark.parametrize(
    ("pattern", "translated"),
    [
        (r"function f\(\) {", r"function f\x{28}\x{29} \{"),
        (r"a{2,3}b{,2}", r"a{2,3}b{0,2}"),
        (r"\<b\>", r"\x{3C}b\x{3E}"),
        (r"\"\'\/\-\ ", r"\x{22}\x{27}\x{2F}\x{2D}\x{20}"),
        (r"[[\]&~|^-]+x", r"[\x{5B}\x{5D}\x{26}\x{7E}\x{7C}\x{5E}-]+x"),
        (r"[]a]", r"[\x{5D}a]"),
        (r"[^\n]é", r"[^\n]é"),
        (r"(?i)AbC|(?P<name>d)", r"(?i)AbC|(?P<name>d)"),
        (r"(?:a|b)*?c\b", r"(?:a|b)*?c\b"),
        (r"\x41é\u20ac", r"\x41é\u20ac"),
        (r"^\s*\w+\d$", r"^\s*\w+\d$"),
    ],
)
def test_a_pattern_is_translated_to_the_syntax_of_ripgrep(pattern: str, translated: str) -> None:
    assert translate_pattern(pattern) == translated


@pytest.mark.parametrize(
    "pattern",
    [
        *["(?=a)", "(?!a)", "(?<=a)b", "(?<!a)b", r"(a)\1", "(?P=a)", "(?>a)", "(?#a)", "(?(1)a)", "a++", "a*+"],
        *[
            r"a\nb",
            "a\nb",
            r"a\r",
            "a\rb",
            r"\x0d",
            r"\u000A",
            r"\A",
            r"\Z",
            r"\p{L}",
            r"\0",
            "[[:alpha:]]",
            "[a--b]",
            r"[\b]",
        ],
        *["(" * 5000, "a" * 3000, "\ud800"],
    ],
    ids=lambda pattern: repr(pattern[:12] + pattern[-3:]),
)
def test_syntax_that_is_not_available_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError) as refused:
        translate_pattern(pattern)

    assert str(refused.value)
