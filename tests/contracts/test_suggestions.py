"""The name that was probably meant."""

import pytest

from toolpost.contracts.errors import did_you_mean, nearest


@pytest.mark.parametrize(
    ("asked", "meant"),
    [("gh.isue", "gh.issue"), ("issue", "gh.issue"), ("gh__issue", "gh.issue"), ("Add", "add"), ("zebra", None)],
)
def test_a_misspelled_name_is_understood(asked: str, meant: str | None) -> None:
    assert nearest(asked, ["gh.issue", "add", "file.read"]) == meant


def test_an_absurdly_long_name_is_not_compared_with_anything() -> None:
    assert nearest("a" * 1_000_000, ["a"]) is None


def test_the_suggestion_is_a_question_or_nothing() -> None:
    assert did_you_mean("thrid", ["first", "third"]) == "did you mean 'third'?"
    assert did_you_mean("zebra", ["first", "third"]) == ""
