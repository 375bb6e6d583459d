"""Tracks for commands: the CPU of a turn is that of this process and of all below it, those who have ended included."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import psutil

from bench.cli.own import CALLERS
from bench.core.harness import Contender, LocalTrack, Turn


class TreeTrack:
    """Contenders in this process; with several callers a call is one of each, and times are per call of one."""

    def __init__(self, contenders: Sequence[Contender], *, callers: int = 1) -> None:
        self._callers = callers
        seated = contenders if callers == 1 else [_crowd(contender) for contender in contenders]
        self._track = LocalTrack(seated)
        self.turns: dict[str, list[Turn]] = {name: [] for name in self._track.names}

    @property
    def names(self) -> Sequence[str]:
        return self._track.names

    async def turn(self, name: str, calls: int) -> Turn:
        before = cpu_s()
        turn = await self._track.turn(name, calls)
        cpu_us = (cpu_s() - before) * 1e6 / calls
        each = [share / self._callers for share in (turn.sustained_us, cpu_us)]
        self.turns[name].append(Turn([wall / self._callers for wall in turn.calls_us], *each))
        return self.turns[name][-1]


def _crowd(contender: Contender) -> Contender:
    async def call() -> None:
        await asyncio.gather(*(contender.call() for _ in range(CALLERS)))

    return Contender(name=contender.name, call=call, settle=contender.settle)


def cpu_s() -> float:
    """Seconds of CPU so far; whoever has ended counts with whoever waited for it."""
    own = psutil.Process()
    return sum(sum(one.cpu_times()[:4]) for one in [own, *own.children(recursive=True)] if one.is_running())
