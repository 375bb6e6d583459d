"""Seats: a contender sits twice, to call one after the other and to call many at a time; standard library only."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Awaitable, Callable, Sequence
from typing import NamedTuple

from bench.core.harness import Contender, Measured, Track, Turn
from bench.mcp.endpoint import MESSAGE
from bench.mcp.names import SLOW

Call = Callable[[], Awaitable[object]]

_SLOWER = 25


class Crowd(NamedTuple):
    """So many callers at once, and how often each of them calls."""

    callers: int
    each: int

    @property
    def size(self) -> int:
        return self.callers * self.each


USUAL = Crowd(50, 4)
SMALL = Crowd(8, 1)


def crowd_of(name: str) -> Crowd:
    return SMALL if name in SLOW else USUAL


def crowded(name: str) -> str:
    """The name of a contender's second seat."""
    return f"{name} [many]"


async def seated(name: str, call: Call, *, settle: Call | None = None) -> list[Contender]:
    """Both seats of a contender that has shown that it can echo."""
    said = await call()
    if MESSAGE not in repr(getattr(said, "content", said)):  # an outcome does not represent its content
        raise RuntimeError(f"{name} does not echo: {said!r}")
    crowd = crowd_of(name)

    async def several() -> None:
        for _ in range(crowd.each):
            await call()

    async def many() -> None:
        await asyncio.gather(*(several() for _ in range(crowd.callers)))

    if settle is None:
        return [Contender(name=name, call=call), Contender(name=crowded(name), call=many)]
    return [
        Contender(name=name, call=call, settle=settle),
        Contender(name=crowded(name), call=many, settle=settle),
    ]


class OneByOne:
    """The first seats of a track."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self.turns: dict[str, list[Turn]] = {}

    @property
    def names(self) -> Sequence[str]:
        return self._track.names[::2]

    async def turn(self, name: str, calls: int) -> Turn:
        turn = await self._track.turn(name, max(2, calls // _SLOWER) if name in SLOW else calls)
        self.turns.setdefault(name, []).append(turn)
        return turn


class ManyAtOnce:
    """The second seats of a track, under the names of the first; times are per call of the whole crowd."""

    def __init__(self, track: Track) -> None:
        self._track = track
        self.turns: dict[str, list[Turn]] = {}

    @property
    def names(self) -> Sequence[str]:
        return self._track.names[::2]

    async def turn(self, name: str, calls: int) -> Turn:
        turn = await self._track.turn(crowded(name), calls)
        size = crowd_of(name).size
        each = Turn([wall / size for wall in turn.calls_us], turn.sustained_us / size, turn.cpu_us / size)
        self.turns.setdefault(name, []).append(each)
        return each


class Sat(NamedTuple):
    """What a contender came to on one kind of seat, with the CPU of every round beside the times."""

    measured: Measured
    cpu_us: tuple[float, ...]

    def cpu_times(self, other: Sat) -> float:
        """How many times the CPU of another it took, the median over rounds."""
        return statistics.median(mine / theirs for mine, theirs in zip(self.cpu_us, other.cpu_us, strict=True))

    @classmethod
    def of(cls, turns: Sequence[Turn]) -> Sat:
        """All turns but the first, which only warms up."""
        counted = turns[1:]
        return cls(Measured.of(counted), tuple(turn.cpu_us for turn in counted))
