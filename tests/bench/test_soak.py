"""A soak says what stayed flat and what grew."""

from pathlib import Path

import pytest

from bench.soak.__main__ import tell
from bench.soak.samples import Sample, courses_of, read, write

WARM_UP_SAMPLES, SAMPLES = 20, 100


def samples(*, memory_step: float = 0.0, descriptor_step: float = 0.0) -> list[Sample]:
    """A sample each five seconds; the beginning grows in any case, as caches do."""
    return [
        {
            "seconds": 5.0 * (number + 1),
            "gateway 1 memory_mb": 60.0 + 40 * min(1.0, number / WARM_UP_SAMPLES) + memory_step * number,
            "gateway 1 descriptors": 20.0 + number % 2 + descriptor_step * number,
            "PostgreSQL connections": 28.0,
            "rest p50 ms": 3.0,
            "rest p95": 9.0,
        }
        for number in range(SAMPLES)
    ]


def grown(given: list[Sample]) -> list[str]:
    return [course.column for course in courses_of(given) if not course.target.met]


def test_a_value_that_grows_in_the_warm_up_only_is_flat() -> None:
    assert grown(samples()) == []


@pytest.mark.parametrize(
    ("steps", "column"),
    [
        ({"memory_step": 0.2}, "gateway 1 memory_mb"),
        ({"descriptor_step": 0.1}, "gateway 1 descriptors"),
    ],
)
def test_a_value_that_grows_all_the_time_is_reported(
    steps: dict[str, float], column: str, capsys: pytest.CaptureFixture[str]
) -> None:
    courses = courses_of(samples(**steps))

    assert tell(courses) == 1
    assert [course.column for course in courses if not course.target.met] == [column]
    assert f"MISSED {column.replace('_', ' ')}" in capsys.readouterr().out


def test_the_slope_is_that_of_an_hour() -> None:
    [memory] = [course for course in courses_of(samples(memory_step=1.0)) if course.column.endswith("memory_mb")]

    assert memory.per_hour == pytest.approx(3600 / 5, rel=0.01)


def test_samples_that_are_too_few_are_refused() -> None:
    with pytest.raises(ValueError, match="soak longer"):
        courses_of(samples()[:2])


def test_samples_are_read_as_they_were_kept(tmp_path: Path) -> None:
    write(samples(), tmp_path / "soak.csv")

    assert read(tmp_path / "soak.csv") == samples()
