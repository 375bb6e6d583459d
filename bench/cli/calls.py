"""Figure of a call of a short command, one after the other and ten at a time."""

from __future__ import annotations

import asyncio
from typing import NamedTuple

from bench.cli import names
from bench.cli.own import CALLERS, contenders
from bench.cli.tracks import TreeTrack
from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, interleave
from bench.mcp.scale import McpScale
from bench.mcp.seats import Sat

OF_BARE = 1.2

COLUMNS = (
    Column("name", "contender"),
    Column("median_us", "median µs", 0),
    Column("p99_us", "p99 µs", 0),
    Column("cpu_us", "CPU µs", 0),
    Column("of_bare", "median x bare", 2),
    Column("cpu_of_bare", "CPU x bare", 2),
    Column("many_per_s", f"{CALLERS} at once: calls/s", 0),
    Column("many_cpu_us", "CPU µs", 0),
    Column("many_of_bare", "time x bare", 2),
    Column("many_cpu_of_bare", "CPU x bare", 2),
)
NOTES = (
    "CPU is that of the process and of all below it: supervisors, and the command itself.",
    "Times are compared round by round, CPU over all rounds, because it is counted in hundredths of a second.",
)


class Taken(NamedTuple):
    """What a contender came to alone and in a crowd."""

    alone: Sat
    crowd: Sat


def count(scale: McpScale) -> int:
    """How many ticks the figure makes."""
    return (scale.rounds + scale.crowds + 2) * len(names.ROWS)


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Measure all contenders."""
    return figure(asyncio.run(_taken(scale, tick)))


async def _taken(scale: McpScale, tick: Tick) -> dict[str, Taken]:
    async with contenders() as found:
        alone, crowd = TreeTrack(found), TreeTrack(found, callers=CALLERS)
        await interleave([alone], rounds=scale.rounds, calls=scale.calls, tick=tick)
        await interleave([crowd], rounds=scale.crowds, calls=max(1, scale.calls // CALLERS), tick=tick)
    return {name: Taken(Sat.of(alone.turns[name]), Sat.of(crowd.turns[name])) for name in alone.names}


def figure(taken: dict[str, Taken]) -> Figure:
    """The numbers as a table, with the targets."""
    rows = [_row(name, taken) for name in names.ROWS]
    ours = next(row for row in rows if row["name"] == names.MEMORY)
    pair = f"{names.MEMORY} / {names.BARE}"
    held = {
        "of_bare": "median, one by one",
        "cpu_of_bare": "CPU, one by one",
        "many_of_bare": f"time, {CALLERS} at once",
        "many_cpu_of_bare": f"CPU, {CALLERS} at once",
    }
    return Figure(
        key="command_calls",
        title="Call of a short command",
        columns=COLUMNS,
        rows=rows,
        targets=[Target(f"{pair}, {what}", ours[key], "at most", OF_BARE, "x") for key, what in held.items()],
        notes=NOTES,
    )


def _row(name: str, taken: dict[str, Taken]) -> Row:
    (alone, crowd), bare = taken[name], taken[names.BARE]
    return {
        "name": name,
        **alone.measured._asdict(),
        "of_bare": alone.measured.times(bare.alone.measured),
        "cpu_of_bare": _cpu_times(alone, bare.alone),
        "many_per_s": 1e6 / crowd.measured.sustained_us,
        "many_cpu_us": crowd.measured.cpu_us,
        "many_of_bare": crowd.measured.times(bare.crowd.measured),
        "many_cpu_of_bare": _cpu_times(crowd, bare.crowd),
    }


def _cpu_times(one: Sat, other: Sat) -> float:
    """How many times the CPU of another it took; a turn that was too short to be counted counts as one tick."""
    return (sum(one.cpu_us) or 1) / (sum(other.cpu_us) or 1)
