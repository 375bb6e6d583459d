"""Figure of a call over a WebSocket that calls share, one after the other and many at a time."""

from __future__ import annotations

import asyncio
import sys

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick
from bench.core.processes import Worker
from bench.http.calls import Taken, measure_alone_and_in_a_crowd, row_beside_floor
from bench.http.endpoint import serving
from bench.mcp.calls import COLUMNS as MCP_COLUMNS
from bench.mcp.endpoint import ROOT, told
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL
from bench.websocket import names

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
    with serving("bench.websocket.server") as url, told(url), Worker(sys.executable, OWN, path=[ROOT]) as worker:
        return figure(asyncio.run(measure_alone_and_in_a_crowd(scale, [worker], tick)))


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
    one, floor = taken[name], taken[names.FLOOR]
    return {
        **row_beside_floor(name, one, floor),
        "calls_of_floor": floor.crowd.measured.times(one.crowd.measured),
    }
