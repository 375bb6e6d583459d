"""Faults of a simulated world, chosen by its seed: crashes, failed commits, tools that fail, clocks that jump."""

from __future__ import annotations

import errno
import os
from random import Random
from typing import Literal, NamedTuple

Moment = Literal["before", "after"]
CommitFault = Literal["before", "after", "full"]


class CrashPoint(NamedTuple):
    """A crash of the process that does the commit of this number, counted over all processes of a world from 1."""

    commit: int
    moment: Moment


class FaultRates(NamedTuple):
    """Probabilities: of a crash and of a full disk per commit, of each fault per run of a tool, of a failed query.

    `answers_lost` are those of requests, whose processes continue. `kills_s`, `stalls_s` and `jumps_s` are the mean
    seconds between two kills of a process at any time, two processes that stop for up to a minute and then continue,
    and two jumps of the wall clock; 0 for never.
    """

    crashes: float = 0.0
    full_disks: float = 0.0
    tools_refuse: float = 0.0
    tools_break: float = 0.0
    tools_hang: float = 0.0
    answers_lost: float = 0.0
    queries_fail: float = 0.0
    kills_s: float = 0.0
    stalls_s: float = 0.0
    jumps_s: float = 0.0

    @classmethod
    def of(cls, random: Random) -> FaultRates:
        """Choose the faults of a world: each kind is missing in some worlds, because one fault can hide another."""

        def some(most: float) -> float:
            return random.random() * most if random.random() < 0.7 else 0.0

        return cls(
            crashes=some(0.004),
            full_disks=some(0.004),
            tools_refuse=some(0.1),
            tools_break=some(0.1),
            tools_hang=some(0.05),
            answers_lost=some(0.1),
            queries_fail=some(0.01),
            kills_s=some(20.0),
            stalls_s=some(20.0),
            jumps_s=some(20.0),
        )


NO_FAULTS = FaultRates()


class Faults:
    """Chooses the fault of each commit and of each run of a tool.

    Mutable: it counts commits, full disks, crashes and stalls.
    """

    def __init__(self, seed: int | str, rates: FaultRates, crash_point: CrashPoint | None = None) -> None:
        self.rates = rates
        self.commits = self.full_disks = self.crashes = self.stalls = 0
        self._random = Random(f"faults of {seed}")  # noqa: S311 - a simulation has to be repeatable
        self._crash_point = crash_point
        self._full_for = 0

    def stop(self) -> None:
        """Inject no more faults."""
        self.rates, self._full_for = NO_FAULTS, 0

    def of_commit(self) -> CommitFault | None:
        """Return the fault of the next commit."""
        self.commits += 1
        point, rates = self._crash_point, self.rates
        if point is not None:
            return point.moment if point.commit == self.commits else None
        if not self._full_for and rates.full_disks and self._random.random() < rates.full_disks:
            self._full_for = self._random.randrange(1, 5)
        if self._full_for:
            self._full_for -= 1
            self.full_disks += 1
            return "full"
        if rates.crashes and self._random.random() < rates.crashes:
            return "before" if self._random.random() < 0.5 else "after"
        return None

    def of_tool(self) -> Literal["refuse", "break", "hang"] | None:
        """Return the fault of a run of a tool: an error before its effect, one after it, or no answer at all."""
        chance, rates = self._random.random(), self.rates
        if chance < rates.tools_refuse:
            return "refuse"
        if chance < rates.tools_refuse + rates.tools_break:
            return "break"
        return "hang" if chance < rates.tools_refuse + rates.tools_break + rates.tools_hang else None

    def fails_query(self) -> bool:
        """Return whether the next query of a reader fails."""
        return bool(self.rates.queries_fail) and self._random.random() < self.rates.queries_fail

    def loses_answer(self) -> bool:
        """Return whether the answer to a request is lost."""
        return bool(self.rates.answers_lost) and self._random.random() < self.rates.answers_lost


def disk_full() -> OSError:
    """Return the error of a commit on a full disk."""
    return OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
