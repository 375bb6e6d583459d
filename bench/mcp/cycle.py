"""Connections that hang and are cut, again and again: `python -m bench.mcp.cycle CYCLES` prints what is left of them.

In turn a box is closed after a call that hung, a server is killed while a call
hangs, and the server of a box that stays open is killed, which then has to serve again.
"""

from __future__ import annotations

import asyncio
import gc
import json
import os
import shlex
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import psutil

from bench.mcp.discover import resident_mb
from bench.mcp.endpoint import ARGUMENTS, command
from bench.mcp.own import settings
from bench.mcp.server import ECHO, HANG
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.toolbox.box import Toolbox

HUNG_S = 0.15
ON_ITS_WAY_S = 0.02
PATIENCE_S = 10.0
WARM_UP = 0.1
STEADY = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Held:
    """What a process holds that memory does not show."""

    processes: int
    descriptors: int
    threads: int
    tasks: int


class Cycles:
    """One box that stays open, and others that come and go."""

    def __init__(self, folder: Path) -> None:
        """Keep the lasting box's events in a folder: in memory they would be the growth that is looked for."""
        self.mark = f"cycle-{os.getpid()}"
        self.lasting = self.box(folder)

    def box(self, folder: Path | None = None) -> Toolbox:
        return Toolbox(settings=settings(folder, connection=shlex.join([*command(), "--mark", self.mark])))

    async def turn(self, number: int) -> None:
        await (self._closed, self._killed, self._reconnected)[number % 3]()

    async def _closed(self) -> None:
        async with self.box() as box:
            await _hung(box)

    async def _killed(self) -> None:
        before = set(self.servers())
        async with self.box() as box:
            await self._killed_in(box, lambda: set(self.servers()) - before)

    async def _reconnected(self) -> None:
        await self._killed_in(self.lasting, lambda: set(self.servers()))
        outcome = await self.lasting.call(f"srv.{ECHO}", ARGUMENTS)
        if not isinstance(outcome, Completed):
            raise RuntimeError(f"the box did not come back: {outcome}")  # noqa: TRY004 - no caller's mistake

    async def _killed_in(self, box: Toolbox, servers: Callable[[], set[psutil.Process]]) -> None:
        hanging = asyncio.create_task(_hung(box))
        await asyncio.sleep(ON_ITS_WAY_S)
        for server in servers():
            server.kill()
        await hanging

    def servers(self) -> list[psutil.Process]:
        """Every server of ours, adopted by whom ever."""
        return [process for process in psutil.process_iter(["cmdline"]) if self.mark in (process.info["cmdline"] or ())]

    def held(self) -> Held:
        gc.collect()
        children = set(psutil.Process().children(recursive=True)) | set(self.servers())
        return Held(
            processes=len(children),
            descriptors=len(list(Path("/proc/self/fd").iterdir())),
            # The loop's own pool grows to its bound and stays there.
            threads=sum(not thread.name.startswith("asyncio_") for thread in threading.enumerate()),
            tasks=len(asyncio.all_tasks()),
        )


async def _hung(box: Toolbox) -> None:
    outcome = await box.call(f"srv.{HANG}", ARGUMENTS, timeout_s=HUNG_S)
    if not isinstance(outcome, Failed):
        raise RuntimeError(f"a call that hangs did not fail: {outcome}")  # noqa: TRY004 - no caller's mistake


async def measured(count: int, folder: Path) -> dict[str, float]:
    cycles, began = Cycles(folder), time.perf_counter()
    sizes: list[float] = []
    async with cycles.lasting:
        await cycles.lasting.runs()  # the thread that reads the store starts with its first query
        for number in range(max(3, round(count * WARM_UP))):
            await cycles.turn(number)
        before = await _steady(cycles)
        for number in range(count):
            await cycles.turn(number)
            sizes.append(resident_mb())
        left = await _settled(cycles, before)
    return {"cycles": count, "took_s": time.perf_counter() - began, **_growth(before, left), **_quarters(sizes)}


async def _steady(cycles: Cycles) -> Held:
    """What is held once nothing that was begun is still coming or going."""
    until = time.monotonic() + PATIENCE_S
    last = [cycles.held()]
    while time.monotonic() < until and len(last) < STEADY:
        await asyncio.sleep(0.1)
        now = cycles.held()
        last = [*last, now] if now == last[-1] else [now]
    return last[-1]


async def _settled(cycles: Cycles, before: Held) -> Held:
    """What is held in the end; what only needs a moment longer gets it."""
    until = time.monotonic() + PATIENCE_S
    while (left := cycles.held()) != before and time.monotonic() < until:  # noqa: ASYNC110 - nobody tells
        await asyncio.sleep(0.1)
    return left


def _growth(before: Held, left: Held) -> dict[str, float]:
    earlier = asdict(before)
    return {key: value - earlier[key] for key, value in asdict(left).items()}


def _quarters(sizes: list[float]) -> dict[str, float]:
    size = max(1, len(sizes) // 4)
    first, last = statistics.median(sizes[:size]), statistics.median(sizes[-size:])
    return {"first_mb": first, "last_mb": last, "growth_percent": (last / first - 1) * 100}


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as created:
        print(json.dumps(asyncio.run(measured(int(sys.argv[1]), Path(created)))))
