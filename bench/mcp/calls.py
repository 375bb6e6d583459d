"""Figures of an MCP call on stdio, over HTTP and in process, one after the other and many at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Generator, Iterable, Sequence
from contextlib import ExitStack, contextmanager
from typing import NamedTuple

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, Track, Turn, interleave
from bench.core.processes import Worker
from bench.envs import environment
from bench.mcp import names
from bench.mcp.endpoint import IN_PROCESS, ROOT, STDIO, serving, told
from bench.mcp.scale import McpScale
from bench.mcp.seats import SMALL, USUAL, ManyAtOnce, OneByOne, Sat

CPU_OF_FASTMCP = 1.05

COLUMNS = (
    Column("name", "contender"),
    Column("median_us", "median µs"),
    Column("p99_us", "p99 µs"),
    Column("cpu_us", "CPU µs"),
    Column("many_per_s", f"{USUAL.callers} at once: calls/s", 0),
    Column("many_cpu_us", "CPU µs"),
    Column("of_floor", "CPU x floor"),
    Column("many_of_floor", "at once"),
    Column("of_fastmcp", "CPU x FastMCP", 2),
    Column("many_of_fastmcp", "at once", 2),
)
OF_CALL_TOOL = (Column("of_call_tool", "CPU x call_tool", 2), Column("many_of_call_tool", "at once", 2))
OUTSIDE = "CPU is that of the client's process with all its threads; the server is by hand and in another process."
INSIDE = "CPU is that of client and server, which share a process."
NOTES = (
    "Ratios are taken round by round: to the floor of the same process, and to FastMCP's client in Toolpost's process.",
    f"A session for every call is measured with fewer calls, and with {SMALL.callers} at once.",
)


class Goals(NamedTuple):
    """How near the floor one call comes, and what share of its calls a second many callers get through.

    None where it does not count. Where the goals were set, the floor made 28,361 calls a second on stdio, and 13,061
    over HTTP.

    In the same process as its server, a call is measured by itself, since the floor is a function, and beside what
    FastMCP's server takes for it without any client.
    """

    of_floor: float | None
    median_us: float | None
    of_call_tool: float | None
    memory_share: float | None
    sqlite_share: float | None


class Wire(NamedTuple):
    """How clients reach the server, the rows of its figure, where the peers among them run, and the goals."""

    key: str
    title: str
    rows: tuple[str, ...]
    peers: tuple[tuple[str, str], ...]
    goals: Goals


OWN = "bench.mcp.own"
PEERS_2 = ("mcp-2", "bench.peers.mcp_2")
PEERS_1 = ("mcp-1", "bench.peers.mcp_1")
WIRES = (
    Wire("stdio", "MCP call on stdio", names.OUTSIDE, (PEERS_2, PEERS_1), Goals(1.5, None, None, 0.42, 0.28)),
    Wire(
        "http",
        "MCP call over streamable HTTP",
        names.OUTSIDE,
        (PEERS_2, PEERS_1),
        Goals(2.0, None, None, 0.27, 0.19),
    ),
    Wire(
        "in_process",
        "MCP call to a FastMCP server in the same process",
        names.IN_PROCESS,
        (PEERS_2,),
        Goals(None, 150, 2.5, None, None),
    ),
)


def count(scale: McpScale, wire: Wire, *, peers: bool = True) -> int:
    """How many ticks a figure makes."""
    present = [name for name in wire.rows if peers or name in names.OWN]
    return (scale.rounds + scale.crowds + 2) * len(present)


def measure(scale: McpScale, wire: Wire, tick: Tick, *, peers: bool = True) -> Figure:
    """Measure one way to reach a server."""
    with reached(wire), ExitStack() as stack:
        tracks: list[Track] = [stack.enter_context(Worker(sys.executable, OWN, path=[ROOT]))]
        for name, module in wire.peers if peers else ():
            tracks.append(stack.enter_context(Worker(str(environment(name)), module, path=[ROOT])))
        one, many = asyncio.run(_taken(scale, tracks, tick))
    return figure(wire, one, many)


@contextmanager
def reached(wire: Wire) -> Generator[None]:
    """Start what must be there and tell the contenders."""
    if wire.key != "http":
        with told(STDIO if wire.key == "stdio" else IN_PROCESS):
            yield
        return
    with serving() as url, told(url):
        yield


async def _taken(scale: McpScale, tracks: Sequence[Track], tick: Tick) -> tuple[dict[str, Sat], dict[str, Sat]]:
    one, many = [OneByOne(track) for track in tracks], [ManyAtOnce(track) for track in tracks]
    await interleave(one, rounds=scale.rounds, calls=scale.calls, tick=tick)
    await interleave(many, rounds=scale.crowds, calls=1, tick=tick)
    return _sat(seats.turns for seats in one), _sat(seats.turns for seats in many)


def _sat(tracks: Iterable[dict[str, list[Turn]]]) -> dict[str, Sat]:
    return {name: Sat.of(turns) for taken in tracks for name, turns in taken.items()}


def figure(wire: Wire, one: dict[str, Sat], many: dict[str, Sat]) -> Figure:
    """The numbers as a table, with the targets."""
    inside = wire.rows is names.IN_PROCESS
    return Figure(
        key=f"mcp_{wire.key}",
        title=wire.title,
        columns=(*COLUMNS, *OF_CALL_TOOL) if inside else COLUMNS,
        rows=[_row(name, one, many) for name in wire.rows if name in one],
        targets=[*_beside_fastmcp(one, many), *_beside_floor(wire.goals, one, many), *_ahead(one)],
        notes=(INSIDE if inside else OUTSIDE, *NOTES),
    )


def _row(name: str, one: dict[str, Sat], many: dict[str, Sat]) -> Row:
    alone, crowd, floor = one[name], many[name], names.floor_of(name)
    row: Row = {
        "name": name,
        **alone.measured._asdict(),
        "many_per_s": 1e6 / crowd.measured.sustained_us,
        "many_cpu_us": crowd.measured.cpu_us,
        "of_floor": alone.cpu_times(one[floor]),
        "many_of_floor": crowd.cpu_times(many[floor]),
        "of_fastmcp": alone.cpu_times(one[names.FASTMCP]),
        "many_of_fastmcp": crowd.cpu_times(many[names.FASTMCP]),
    }
    if names.CALL_TOOL in one:
        row["of_call_tool"] = alone.cpu_times(one[names.CALL_TOOL])
        row["many_of_call_tool"] = crowd.cpu_times(many[names.CALL_TOOL])
    return row


def _beside_fastmcp(one: dict[str, Sat], many: dict[str, Sat]) -> list[Target]:
    kinds = (("one by one", one), (f"{USUAL.callers} at once", many))
    return [
        Target(
            f"{name} / {names.FASTMCP}, CPU, {kind}",
            taken[name].cpu_times(taken[names.FASTMCP]),
            "at most",
            CPU_OF_FASTMCP,
        )
        for name in (names.MEMORY, names.SQLITE)
        for kind, taken in kinds
    ]


def _beside_floor(goals: Goals, one: dict[str, Sat], many: dict[str, Sat]) -> list[Target]:
    alone, floor = one[names.MEMORY].measured, one[names.FLOOR].measured
    targets: list[Target] = []
    if goals.of_floor is not None:
        times = alone.times(floor)
        targets.append(Target(f"{names.MEMORY} / {names.FLOOR}, median", times, "at most", goals.of_floor, "x"))
    if goals.median_us is not None:
        targets.append(Target(f"{names.MEMORY}, median", alone.median_us, "at most", goals.median_us, "µs"))
    if goals.of_call_tool is not None:
        times = one[names.MEMORY].cpu_times(one[names.CALL_TOOL])
        targets.append(Target(f"{names.MEMORY} / {names.CALL_TOOL}, CPU", times, "at most", goals.of_call_tool, "x"))
    for name, share in ((names.MEMORY, goals.memory_share), (names.SQLITE, goals.sqlite_share)):
        if share is not None:
            made = many[names.FLOOR].measured.sustained_us / many[name].measured.sustained_us
            title = f"{name} / {names.FLOOR}, calls/s, {USUAL.callers} at once"
            targets.append(Target(title, made, "at least", share, "x"))
    return targets


def _ahead(one: dict[str, Sat]) -> list[Target]:
    if names.LANGCHAIN not in one:
        return []
    times = one[names.LANGCHAIN].measured.times(one[names.SQLITE].measured)
    return [Target(f"{names.LANGCHAIN} / {names.SQLITE}, median", times, "at least", 1, "x")]
