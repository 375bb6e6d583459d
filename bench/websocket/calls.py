"""Figure of a call over a WebSocket that calls share, one after the other and many at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, Track, interleave
from bench.core.processes import Worker
from bench.http.calls import Taken, whole
from bench.mcp.calls import COLUMNS as MCP_COLUMNS
from bench.mcp.endpoint import ROOT, told
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, ManyAtOnce, OneByOne, Sat
from bench.websocket import names
from bench.websocket.endpoint import serving

CALLS_OF_FLOOR = 0.7
OWN = "bench.websocket.own"

COLUMNS = (*MCP_COLUMNS[:-2], Column("calls_of_floor", "calls/s x floor", 2))
NOTES = (
    "CPU is that of the client's process with all its threads; the server is by hand and in another process.",
    "Ratios are taken round by round, to a bare `websockets` client in the same process.",
)


def count(scale: McpScale) -> int:
    """How many ticks the figure makes."""
    return (scale.rounds + scale.crowds + 2) * len(names.ROWS)


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Measure all contenders."""
    with serving() as url, told(url), Worker(sys.executable, OWN, path=[ROOT]) as worker:
        return figure(asyncio.run(_taken(scale, [worker], tick)))


async def _taken(scale: McpScale, tracks: Sequence[Track], tick: Tick) -> dict[str, Taken]:
    alone, crowds = [OneByOne(track) for track in tracks], [ManyAtOnce(track) for track in tracks]
    await interleave(alone, rounds=scale.rounds, calls=scale.calls, tick=tick)
    await interleave(crowds, rounds=scale.crowds, calls=1, tick=tick)
    return {
        name: Taken(Sat.of(one.turns[name]), Sat.of([*map(whole, many.turns[name])]))
        for one, many in zip(alone, crowds, strict=True)
        for name in one.turns
    }


def figure(taken: dict[str, Taken]) -> Figure:
    """The numbers as a table, with the target."""
    reached = taken[names.FLOOR].crowd.measured.times(taken[names.MEMORY].crowd.measured)
    pair = f"{names.MEMORY} / {names.FLOOR}"
    return Figure(
        key="websocket_calls",
        title="Call over a shared WebSocket",
        columns=COLUMNS,
        rows=[_row(name, taken) for name in names.ROWS],
        targets=[Target(f"{pair}, calls/s, {USUAL.callers} at once", reached, "at least", CALLS_OF_FLOOR, "x")],
        notes=NOTES,
    )


def _row(name: str, taken: dict[str, Taken]) -> Row:
    (alone, crowd), floor = taken[name], taken[names.FLOOR]
    return {
        "name": name,
        **alone.measured._asdict(),
        "many_per_s": 1e6 / crowd.measured.sustained_us,
        "many_cpu_us": crowd.measured.cpu_us,
        "of_floor": alone.cpu_times(floor.alone),
        "many_of_floor": crowd.cpu_times(floor.crowd),
        "calls_of_floor": floor.crowd.measured.times(crowd.measured),
    }
