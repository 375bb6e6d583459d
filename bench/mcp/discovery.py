"""Figure of discovery: the first connection to a server of thousands of tools, in a fresh process each time."""

from __future__ import annotations

import asyncio
import json
import statistics
import subprocess
import sys
from collections.abc import Sequence
from typing import Any

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, Turn, interleave
from bench.mcp import names
from bench.mcp.discover import Kind
from bench.mcp.endpoint import ROOT, serving
from bench.mcp.scale import McpScale

OF_FASTMCP = 1.3
OF_FLOOR = 2.5
CONVERT_MS = 20
CONNECT_MS = 2_000
TOOLBOX = "Toolbox, tools in its registry"
KINDS: dict[str, Kind] = {
    names.FLOOR: "floor",
    names.SESSION: "session",
    names.FASTMCP: "fastmcp",
    TOOLBOX: "toolbox",
}
COLUMNS = (
    Column("name", "contender"),
    Column("cpu_ms", "CPU ms", 0),
    Column("wall_ms", "wall ms", 0),
    Column("cpu_us_a_tool", "CPU µs a tool"),
    Column("held_mb", "held MB", 0),
    Column("peak_mb", "peak MB", 0),
    Column("convert_ms", "convert for a model, CPU ms", 1),
    Column("of_floor", "CPU x floor"),
    Column("held_of_floor", "held x floor"),
    Column("of_fastmcp", "CPU x FastMCP", 2),
    Column("held_of_fastmcp", "held x FastMCP", 2),
)
NOTES = (
    "Each is the median of fresh processes that have connected to a server of two tools before: no import is in it.",
    "Held is resident memory with all tools at hand, beyond what was there before; peak is the most on the way there.",
)

Cell = dict[str, float]


class DiscoveryTrack:
    """A fresh process for every turn; what it told is kept beside its time."""

    def __init__(self, small: str, large: str) -> None:
        self._urls = [small, large]
        self.cells: dict[str, list[Cell]] = {name: [] for name in KINDS}

    @property
    def names(self) -> Sequence[str]:
        return list(KINDS)

    async def turn(self, name: str, calls: int) -> Turn:
        cell = await asyncio.to_thread(self._discover, KINDS[name])
        self.cells[name].append(cell)
        return Turn([cell["wall_ms"] * 1000], cell["wall_ms"] * 1000, cell["cpu_ms"] * 1000)

    def _discover(self, kind: Kind) -> Cell:
        command = [sys.executable, "-m", "bench.mcp.discover", kind, *self._urls]
        said = subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True)
        return json.loads(said.stdout.splitlines()[-1])


def count(scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return (scale.starts + 1) * len(KINDS)


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Discover in one process after the other."""
    with serving() as small, serving(tools=scale.tools) as large:
        track = DiscoveryTrack(small, large)
        asyncio.run(interleave([track], rounds=scale.starts, calls=1, tick=tick))
    return figure({name: cells[1:] for name, cells in track.cells.items()})


def figure(cells: dict[str, list[Cell]]) -> Figure:
    """The numbers as a table, with the targets."""
    rows = [_row(name, cells) for name in cells]
    ours = next(row for row in rows if row["name"] == TOOLBOX)
    return Figure(
        key="mcp_discovery",
        title=f"First connection to a server of {ours['tools']:,.0f} tools, over HTTP",
        columns=COLUMNS,
        rows=rows,
        targets=[
            Target(f"{TOOLBOX} / {names.FASTMCP}, CPU", ours["of_fastmcp"], "at most", OF_FASTMCP),
            Target(f"{TOOLBOX} / {names.FASTMCP}, held", ours["held_of_fastmcp"], "at most", OF_FASTMCP),
            Target(f"{TOOLBOX} / {names.FLOOR}, CPU", ours["of_floor"], "at most", OF_FLOOR),
            Target(f"{TOOLBOX} / {names.FLOOR}, held", ours["held_of_floor"], "at most", OF_FLOOR),
            Target(f"{TOOLBOX}: connect and discover", ours["wall_ms"], "at most", CONNECT_MS, "ms"),
            Target(f"{TOOLBOX}: convert all for a model", ours["convert_ms"], "at most", CONVERT_MS, "ms"),
        ],
        notes=NOTES,
    )


def _row(name: str, cells: dict[str, list[Cell]]) -> Row:
    mine = cells[name]
    row: dict[str, Any] = {key: statistics.median(cell[key] for cell in mine) for key in mine[0]}
    return {
        "name": name,
        **row,
        "cpu_us_a_tool": row["cpu_ms"] * 1000 / row["tools"],
        "of_floor": _times(mine, cells[names.FLOOR], "cpu_ms"),
        "held_of_floor": _times(mine, cells[names.FLOOR], "held_mb"),
        "of_fastmcp": _times(mine, cells[names.FASTMCP], "cpu_ms"),
        "held_of_fastmcp": _times(mine, cells[names.FASTMCP], "held_mb"),
    }


def _times(mine: list[Cell], theirs: list[Cell], key: str) -> float:
    return statistics.median(ours[key] / other[key] for ours, other in zip(mine, theirs, strict=True))
