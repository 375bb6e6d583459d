"""Progress of calls, limited in rate."""

from typing import Any, cast

from toolpost import ToolContext
from toolpost.policy.progress import ProgressReporter, RateLimit


class Reports:
    """Context that keeps the progress of a call."""

    def __init__(self) -> None:
        self.texts: list[tuple[str, float | None]] = []

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        self.texts.append((text, fraction))


def relay(reports: Reports, **options: Any) -> ProgressReporter:
    return ProgressReporter(lambda: cast("ToolContext", reports), **options)


def test_reports_are_redacted_before_they_are_shortened() -> None:
    reports = Reports()
    relay(reports, redact=lambda text: text.replace("hunter2", "***"), max_chars=6).report("a hunter2 b", fraction=0.5)
    assert reports.texts == [("a *** ", 0.5)]


def test_reports_above_the_rate_are_dropped_but_not_the_last() -> None:
    reports = Reports()
    progress = relay(reports, per_second=0.0)
    for number in range(30):
        progress.report(str(number))
    progress.report("done", is_last=True)
    assert [text for text, _ in reports.texts] == [*map(str, range(20)), "done"]


def test_a_report_after_dropped_ones_says_so() -> None:
    reports = Reports()
    times = iter([0.0] * 24 + [1.0] * 2)
    progress = relay(reports, gap_note=" (gap)", clock=lambda: next(times))
    for number in range(25):
        progress.report(str(number))
    assert [text for text, _ in reports.texts[-3:]] == ["19", "23 (gap)", "24"]


def test_a_token_bucket_counts_what_it_drops() -> None:
    times = iter([0.0, 0.0, 0.0, 0.0, 1.0])
    rate = RateLimit(burst=1, per_second=1.0, clock=lambda: next(times))
    assert [rate.take() for _ in range(4)] == [0, None, None, 2]
