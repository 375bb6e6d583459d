import pytest

from toolpost.configuration.durations import parse_duration


@pytest.mark.parametrize(
    ("written", "seconds"),
    [("500ms", 0.5), ("30s", 30), ("1.5m", 90), ("12 h", 43_200), (" 7d ", 604_800), ("5", 5), (2, 2), (0.25, 0.25)],
)
def test_a_number_with_a_unit_is_a_duration(written: str | float, seconds: float) -> None:
    assert parse_duration(written) == pytest.approx(seconds)


def test_a_number_without_a_unit_is_in_the_unit_that_the_place_says() -> None:
    assert parse_duration(30_000, bare="ms") == 30
    assert parse_duration("30000", bare="ms") == 30
    assert parse_duration("30s", bare="ms") == 30


@pytest.mark.parametrize("written", ["", "s", "soon", "3 weeks", "-1s", "1e3s", True, None, [5]])
def test_anything_else_is_refused_with_examples(written: object) -> None:
    with pytest.raises(ValueError, match="a number with a unit, such as 500ms, 30s"):
        parse_duration(written)


@pytest.mark.parametrize("written", [0, -1, "0s", float("nan"), float("inf")])
def test_no_time_at_all_and_endless_time_are_refused(written: object) -> None:
    with pytest.raises(ValueError, match="longer than nothing"):
        parse_duration(written)
