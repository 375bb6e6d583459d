"""The harness: contenders take turns in shuffled order, and every call of a turn is timed.

Nothing but the standard library is imported, so that the environments of peers can run it too.
"""

from __future__ import annotations

import gc
import random
import statistics
import time
from collections.abc import Awaitable, Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import NamedTuple, Protocol, Self

Tick = Callable[[str], None]


async def _nothing() -> None:
    """What a contender without a rest has left to do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """Something to call; `settle` finishes what its calls left behind, such as events that wait to be written."""

    name: str
    call: Callable[[], Awaitable[object]]
    settle: Callable[[], Awaitable[object]] = _nothing


class Turn(NamedTuple):
    """One turn of a contender, in µs: each call, and per call of the whole turn, settling included, time and CPU.

    The CPU is that of the process with all its threads.
    """

    calls_us: list[float]
    sustained_us: float
    cpu_us: float


class Track(Protocol):
    """Where contenders run: in this process, or in another."""

    @property
    def names(self) -> Sequence[str]:
        """The contenders."""
        ...

    async def turn(self, name: str, calls: int) -> Turn:
        """Let one of them make its calls."""
        ...


class Measured(NamedTuple):
    """What all turns of a contender come to, in µs."""

    median_us: float
    p99_us: float
    average_us: float
    sustained_us: float
    cpu_us: float
    rounds_us: tuple[float, ...] = ()

    def times(self, other: Measured) -> float:
        """How many times as long as another it took, the median over rounds.

        Taken round by round, because a machine that changes its pace between rounds
        would otherwise be measured instead of the contenders.
        """
        pairs = zip(self.rounds_us, other.rounds_us, strict=True)
        return statistics.median([mine / theirs for mine, theirs in pairs] or [self.median_us / other.median_us])

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Measured:
        """Calls are pooled; what is measured once a turn is the median over turns."""
        calls = sorted(call for turn in turns for call in turn.calls_us)
        return cls(
            statistics.median(calls),
            calls[min(len(calls) - 1, len(calls) * 99 // 100)],
            statistics.fmean(calls),
            statistics.median(turn.sustained_us for turn in turns),
            statistics.median(turn.cpu_us for turn in turns),
            tuple(statistics.median(turn.calls_us) for turn in turns),
        )


class LocalTrack:
    """Contenders in this process."""

    def __init__(self, contenders: Sequence[Contender]) -> None:
        self._contenders = {contender.name: contender for contender in contenders}

    @property
    def names(self) -> Sequence[str]:
        return list(self._contenders)

    async def turn(self, name: str, calls: int) -> Turn:
        contender = self._contenders[name]
        call, now, times = contender.call, time.perf_counter_ns, [0] * calls
        with undisturbed(), Stopwatch() as watch:
            for number in range(calls):
                began = now()
                await call()
                times[number] = now() - began
            await contender.settle()
        return watch.turn(calls, times)


class Stopwatch:
    """Time and CPU of a block."""

    def __enter__(self) -> Self:
        self._cpu, self._wall = time.process_time_ns(), time.perf_counter_ns()
        return self

    def __exit__(self, *_: object) -> None:
        self._wall, self._cpu = time.perf_counter_ns() - self._wall, time.process_time_ns() - self._cpu

    def turn(self, calls: int, times_ns: Sequence[int] = ()) -> Turn:
        """The block as a turn of so many calls; without times of their own they all took the same."""
        sustained_us = self._wall / calls / 1000
        return Turn([ns / 1000 for ns in times_ns] or [sustained_us], sustained_us, self._cpu / calls / 1000)


@contextmanager
def undisturbed() -> Generator[None]:
    """Keep the garbage collector out of a timed block."""
    gc.collect()  # What came before `interleave` is frozen, so that this looks only at what is new.
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


async def interleave(
    tracks: Sequence[Track], *, rounds: int, calls: int, tick: Tick = lambda _name: None
) -> dict[str, Measured]:
    """Let every contender have its turn in every round, each round in another order; the first one only warms up."""
    seats = [(track, name) for track in tracks for name in track.names]
    turns: dict[str, list[Turn]] = {name: [] for _, name in seats}
    order = random.Random(1)
    gc.freeze()
    try:
        for number in range(rounds + 1):
            for track, name in order.sample(seats, len(seats)):
                turn = await track.turn(name, calls)
                if number:
                    turns[name].append(turn)
                tick(name)
    finally:
        gc.unfreeze()
    return {name: Measured.of(taken) for name, taken in turns.items()}
