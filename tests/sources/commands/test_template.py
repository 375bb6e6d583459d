"""How arguments become words: each where the template says, none of them an option or a shell's business."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from toolpost.contracts.errors import ToolValidationError
from toolpost.sources.commands.template import fill_words, has_half_slot, has_misplaced_flag, parse_words

SHELL = ["; rm -rf /", "$(id)", "`id`", "a|b", "a && b", "> /etc/passwd", "'", '"', "*", "~", "a b", "\n", "", "é"]


def words(template: list[str], **arguments: Any) -> list[str]:
    return fill_words(parse_words(template), arguments)


@pytest.mark.parametrize("text", SHELL)
def test_what_a_shell_would_read_stays_one_word(text: str) -> None:
    assert words(["{x}", "--x={x}", "--", "{x}"], x=text) == [text, f"--x={text}", "--", text]


@pytest.mark.parametrize(
    ("value", "word"),
    [
        (3, "3"),
        (1.5, "1.5"),
        (1e30, "1e+30"),
        (True, "true"),
        ({"a": [1, "ü"]}, '{"a":[1,"ü"]}'),
        ([1, None], "[1,null]"),
    ],
)
def test_values_are_written_as_json_writes_them(value: Any, word: str) -> None:
    assert words(["--value={x}"], x=value) == [f"--value={word}"]


def test_a_list_becomes_several_words_where_it_stands_alone() -> None:
    assert words(["add", "{files}", "--all={files}"], files=["a b", "c", 3]) == [
        "add",
        "a b",
        "c",
        "3",
        '--all=["a b","c",3]',
    ]


def test_what_is_absent_is_left_out_and_its_option_too() -> None:
    template = ["log", "--count", "{n}", "--since={since}", "-f", "{a}:{b}", "{path}"]

    assert words(template) == ["log"]
    assert words(template, n=3, path=None) == ["log", "--count", "3"]
    assert words(template, a="x", since="y") == ["log", "--since=y"]
    assert words(template, a="x", b="y", path="p") == ["log", "-f", "x:y", "p"]


def test_an_empty_list_is_absent() -> None:
    assert words(["--only", "{names}", "end"], names=[]) == ["end"]


def test_an_option_with_its_value_and_the_end_of_options_belong_to_no_one() -> None:
    assert words(["--color=always", "{x}"]) == ["--color=always"]
    assert words(["-l", "--", "{x}"]) == ["-l", "--"]
    assert words(["-", "{x}"]) == ["-"]


@pytest.mark.parametrize(("value", "found"), [(True, ["a", "--verbose", "b"]), (False, ["a", "b"]), (None, ["a", "b"])])
def test_a_flag_is_there_when_it_is_true(value: Any, found: list[str]) -> None:
    assert words(["a", "{verbose?--verbose}", "b"], verbose=value) == found


def test_braces_can_be_written() -> None:
    assert words(["{{x}}", "{}", "{{{x}}}"], x="v") == ["{x}", "{}", "{v}"]


@pytest.mark.parametrize("text", ["{x?--y}", "{{x?--y}}", "{?x}", "a?{x}", "{x}?", "s/{a?b}/ /", "{}?"])
def test_a_question_mark_that_makes_no_flag_is_one(text: str) -> None:
    assert not has_misplaced_flag(text)


@pytest.mark.parametrize("text", ["{{x", "x}}", "{}", "{", "}", "{print $1", '{"a":1}}', "{1", "{a,b}", "{{{x}"])
def test_a_brace_that_is_no_half_of_a_slot_is_a_brace(text: str) -> None:
    assert not has_half_slot(text)


@pytest.mark.parametrize(
    "template",
    [
        ["{x}"],
        ["-i", "{x}"],
        ["--color=always", "{x}"],
        ["{x}:{x}"],
        ["a", "{x}", "--"],
        ["--", "grep", "{x}"],
        ["--", "{y}", "grep", "{x}"],
    ],
    ids=["alone", "option", "whole option", "pair", "before the end", "another program", "another program later"],
)
@pytest.mark.parametrize("text", ["-", "--", "-rf", "--output=/etc/passwd"])
def test_a_value_that_looks_like_an_option_is_refused(template: list[str], text: str) -> None:
    with pytest.raises(ToolValidationError, match=r"x: begins with '-' and would be parsed as an option"):
        words(template, x=text)


def test_every_item_of_a_list_is_looked_at() -> None:
    with pytest.raises(ToolValidationError, match="files: begins with '-'"):
        words(["{files}"], files=["a", "--force"])


@pytest.mark.parametrize(
    "template",
    [["--", "{x}"], ["--", "{x}", "{x}"], ["--x={x}"], ["+{x}"]],
    ids=["after the end of options", "after another", "behind a literal", "behind a sign"],
)
def test_a_value_that_no_one_takes_for_an_option_may_look_like_one(template: list[str]) -> None:
    assert words(template, x="--help")[-1].endswith("--help")


def test_a_negative_number_is_the_operand_of_an_option_and_else_refused() -> None:
    assert words(["--offset", "{n}"], n=-5) == ["--offset", "-5"]
    assert words(["--offsets", "{n}"], n=[-5, -6]) == ["--offsets", "-5", "-6"]
    assert words(["--box", "{n},{m}"], n=-5, m=-0.5) == ["--box", "-5,-0.5"]
    with pytest.raises(ToolValidationError, match="n: begins with '-'"):
        words(["{n}"], n=-5)
    with pytest.raises(ToolValidationError, match="n, m: begins with '-'"):
        words(["--box", "{n}{m}"], n=-5, m="rf")


@pytest.mark.parametrize("template", [["{x}"], ["--x={x}"], ["--", "{x}"]])
def test_nul_is_refused(template: list[str]) -> None:
    with pytest.raises(ToolValidationError, match="x: contains a NUL character"):
        words(template, x="a\0b")


def test_half_a_surrogate_pair_is_refused_by_the_name_of_its_argument() -> None:
    with pytest.raises(ToolValidationError, match=r"x: contains the character '\\ud800'"):
        words(["{x}"], x="a\ud800")


def test_of_a_word_with_several_arguments_all_are_named() -> None:
    with pytest.raises(ToolValidationError, match="a, b: begins with '-'"):
        words(["{a}{b}"], a="", b="-rf")


@given(text=st.text(), more=st.lists(st.text()))
def test_no_text_becomes_an_option_or_another_word(text: str, more: list[str]) -> None:
    template = ["run", "{x}", "--y={x}", "{more}", "--", "{x}", "{more}"]
    try:
        found = words(template, x=text, more=more)
    except ToolValidationError:
        assert "\0" in text + "".join(more) or any(one.startswith("-") for one in (text, *more))
        return
    assert found == ["run", text, f"--y={text}", *more, "--", text, *more]
