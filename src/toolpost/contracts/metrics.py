"""Metrics of calls and questions: counts per minute and per hour, with mergeable histograms of durations."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import replace

MINUTE_S, HOUR_S = 60, 3600
Histogram: TypeAlias = Mapping[int, int]  # the number of values by bucket
Dimension: TypeAlias = Literal["none", "tool", "source", "user", "code", "failure"]
"""A property of calls; the key of `failure` is the tool and the error code, separated by a blank."""

# A bucket ends 10 % above the previous one, so the middle of a bucket differs from its values by at most 5 %.
_GROWTH = 1.1
_LOG_GROWTH = math.log(_GROWTH)
_SHORTEST_MS = 0.01


class MetricRow(Struct, frozen=True, kw_only=True):
    """Counts of one period, which begins at `begin` and lasts `width` seconds.

    `calls` have ended; `failed` are those that failed, except calls that an approver denied. `asked`, `answered`,
    `denied` and `expired` count questions. `durations` has the milliseconds of completed calls without their pauses,
    and `answer_times` the milliseconds from a question to its answer. `last_at` is the time of the last event.
    """

    tenant: str
    dimension: Dimension
    key: str
    width: int
    begin: int
    calls: int = 0
    failed: int = 0
    asked: int = 0
    answered: int = 0
    denied: int = 0
    expired: int = 0
    durations: Histogram = field(default_factory=dict[int, int])
    answer_times: Histogram = field(default_factory=dict[int, int])
    last_at: float = 0.0

    def merge(self, other: MetricRow) -> MetricRow:
        """Return the sum of two rows, with the names and the period of this one."""
        return replace(
            self,
            calls=self.calls + other.calls,
            failed=self.failed + other.failed,
            asked=self.asked + other.asked,
            answered=self.answered + other.answered,
            denied=self.denied + other.denied,
            expired=self.expired + other.expired,
            durations=merge_histograms((self.durations, other.durations)),
            answer_times=merge_histograms((self.answer_times, other.answer_times)),
            last_at=max(self.last_at, other.last_at),
        )


def bucket(milliseconds: float) -> int:
    """Return the bucket of a duration."""
    return math.ceil(math.log(max(milliseconds, _SHORTEST_MS)) / _LOG_GROWTH)


def merge_histograms(histograms: Iterable[Histogram]) -> dict[int, int]:
    """Return the sum of histograms."""
    total: dict[int, int] = {}
    for histogram in histograms:
        for at, count in histogram.items():
            total[at] = total.get(at, 0) + count
    return total


def percentile(histogram: Histogram, share: float) -> float | None:
    """Return the duration in milliseconds that `share` of the values do not exceed, within 5 %; None without values."""
    rank, seen = share * (sum(histogram.values()) - 1), 0
    for at in sorted(histogram):
        seen += histogram[at]
        if seen > rank:
            return 2 * _GROWTH**at / (_GROWTH + 1)
    return None
