"""Processes that take tokens of one bucket as fast as they can."""

from __future__ import annotations

import json
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.core.figures import Target
from bench.limits.process import RATE, Member


def measure_rate(name: str, database: str, *, processes: int) -> list[Target]:
    """Start the processes at the same time, and add up what they took."""
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        members = [stack.enter_context(Member("take", database, Path(folder))) for _ in range(processes)]
        for member in members:
            member.await_ready()
        for member in members:
            member.go({})
        reports = [json.loads(member.result()) for member in members]
    taken = sum(report["taken"] for report in reports)
    elapsed_s = max(report["ended"] for report in reports) - min(report["began"] for report in reports)
    allowed = RATE.burst + elapsed_s / RATE.interval_s
    asked = sum(report["asked"] for report in reports)
    print(f"{name}: {processes} processes asked {asked} times in {elapsed_s:.2f} s and took {taken} of {allowed:.0f}")
    return [
        Target(f"{name}: tokens of {processes} processes, share of the rate", taken / allowed, "at most", 1.0),
        Target(f"{name}: and at least", taken / allowed, "at least", 0.9),
    ]
