"""Samples of a soak: what they contain, how they are kept, and whether they stayed flat."""

from __future__ import annotations

import csv
from collections.abc import Iterable, Sequence
from pathlib import Path
from statistics import linear_regression, median
from typing import NamedTuple

from bench.core.figures import Target

Sample = dict[str, float]

SECONDS = "seconds"
WARM_UP = 0.2  # this share of a soak fills caches and pools, and is not judged


class Measure(NamedTuple):
    """What the columns of one kind contain, and how much more of it the end of a soak may have than its beginning."""

    suffix: str
    label: str
    unit: str
    factor: float = 1.0
    margin: float = 0.0

    def limit(self, first: float) -> float:
        """The most that is flat, for what there was at first."""
        return first * self.factor + self.margin


# Connections and threads of pools come and go one by one. Latency is the median, which a busy machine moves, too.
MEASURES = (
    Measure("memory_mb", "memory", "MB", factor=1.05, margin=1.0),
    Measure("descriptors", "descriptors", "", margin=3.0),
    Measure("connections", "connections", "", margin=3.0),
    Measure("threads", "threads", "", margin=3.0),
    Measure("ms", "latency", "ms", factor=1.25, margin=2.0),
)


class Course(NamedTuple):
    """How one column went: the medians of its first and its last third after the warm-up, and its slope."""

    column: str
    measure: Measure
    first: float
    last: float
    per_hour: float

    @property
    def target(self) -> Target:
        """The last third, which may be little more than the first."""
        limit = self.measure.limit(self.first)
        return Target(self.column.replace("_", " "), self.last, "at most", limit, self.measure.unit)


def columns_of(measure: Measure, samples: Sequence[Sample]) -> list[str]:
    """The columns of one kind, in the order of the samples."""
    return [name for name in samples[0] if name.endswith(f" {measure.suffix}")]


def courses_of(samples: Sequence[Sample]) -> list[Course]:
    """How every measured column went after the warm-up."""
    until = samples[-1][SECONDS]
    judged = [sample for sample in samples if sample[SECONDS] >= until * WARM_UP]
    third = len(judged) // 3
    if third == 0:
        raise ValueError(f"{len(samples)} samples are too few to compare their first and last third: soak longer")
    found: list[Course] = []
    for measure in MEASURES:
        for column in columns_of(measure, samples):
            values = [sample[column] for sample in judged]
            slope = linear_regression([sample[SECONDS] for sample in judged], values).slope
            first, last = median(values[:third]), median(values[-third:])
            found.append(Course(column, measure, first, last, slope * 3600))
    return found


def write(samples: Iterable[Sample], path: Path) -> None:
    """Keep samples as CSV."""
    rows = list(samples)
    with path.open("w", newline="", encoding="utf-8") as file:
        writer = csv.DictWriter(file, rows[0])
        writer.writeheader()
        writer.writerows({name: round(value, 3) for name, value in row.items()} for row in rows)


def read(path: Path) -> list[Sample]:
    """Read kept samples."""
    with path.open(newline="", encoding="utf-8") as file:
        return [{name: float(value) for name, value in row.items()} for row in csv.DictReader(file)]
