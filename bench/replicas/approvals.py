"""Several processes that approve the same calls at the same time: each call must run exactly once."""

from __future__ import annotations

import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path

from bench.core.figures import Target
from bench.replicas.crew import Member
from bench.replicas.effects import Ledger

CLICKERS_OF_EACH = 2  # processes that click on the same question, each of them twice


def measure(database: str, folder: Path, *, processes: int, approvals: int) -> list[Target]:
    """Approve calls in all processes; print what the clicks returned."""
    with Member("ask", database, folder) as asking:
        ids: list[str] = list(asking.run(first=0, count=approvals)["ids"].values())
    began, answers = time.perf_counter(), Counter[str]()
    with ExitStack() as stack:
        members = [stack.enter_context(Member("click", database, folder)) for _ in range(processes)]
        for member in members:
            member.await_ready()
        for number, member in enumerate(members):
            member.go(ids=_share(ids, number, processes), seed=number)
        for member in members:
            answers.update(member.result())
    clicks = sum(answers.values())
    took_s = time.perf_counter() - began
    print(f"{processes} processes, {approvals} approvals, {clicks} clicks in {took_s:.0f} s: {dict(answers)}")
    effects = Ledger(folder / "effects").count()
    runs = sum(effects.values())
    return [
        Target("approved calls that ran", runs, "at least", approvals),
        Target("runs of approved calls", runs, "at most", approvals),
        Target("most runs of one call", max(effects.values(), default=0), "at most", 1),
    ]


def _share(ids: list[str], number: int, processes: int) -> list[str]:
    """Return the questions of one process: each belongs to several processes next to each other."""
    return [
        id_ for position, id_ in enumerate(ids) if (number - position) % processes < min(CLICKERS_OF_EACH, processes)
    ]
