"""Figure of a call of an HTTP operation, one after the other and many at a time."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from typing import NamedTuple

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, Track, Turn, interleave
from bench.core.processes import Worker
from bench.envs import environment
from bench.http import names
from bench.http.endpoint import serving
from bench.mcp.calls import COLUMNS as MCP_COLUMNS
from bench.mcp.endpoint import ROOT, told
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, ManyAtOnce, OneByOne, Sat

OF_AIOHTTP = 1.25
CALLS_OF_AIOHTTP = 0.8
OWN = "bench.http.own"
PEERS = ("http-apis", "bench.peers.http_apis")

COLUMNS = (
    *MCP_COLUMNS[:-2],  # all but those beside FastMCP's client
    Column("of_aiohttp", "median x aiohttp", 2),
    Column("calls_of_aiohttp", "calls/s x aiohttp", 2),
)
NOTES = (
    "CPU is that of the client's process with all its threads; the server is by hand and in another process.",
    "Ratios are taken round by round: CPU to the floor of the same process, the others to aiohttp in Toolpost's.",
)


class Taken(NamedTuple):
    """What a contender came to alone and in a crowd, where a turn counts as a whole, what it settles included."""

    alone: Sat
    crowd: Sat


def count(scale: McpScale, *, peers: bool = True) -> int:
    """How many ticks the figure makes."""
    return (scale.rounds + scale.crowds + 2) * len(names.ROWS if peers else names.OWN)


def measure(scale: McpScale, tick: Tick, *, peers: bool = True) -> Figure:
    """Measure our own contenders, and the peers in their environment."""
    return figure(measure_with_peers(OWN, scale, tick, peers=peers))


def measure_with_peers(own: str, scale: McpScale, tick: Tick, *, peers: bool) -> dict[str, Taken]:
    """Measure the contenders of a module, and the peers in their environment, at one server."""
    with serving() as url, told(url), ExitStack() as stack:
        tracks = [stack.enter_context(Worker(sys.executable, own, path=[ROOT]))]
        if peers:
            name, module = PEERS
            tracks.append(stack.enter_context(Worker(str(environment(name)), module, path=[ROOT])))
        return asyncio.run(measure_alone_and_in_a_crowd(scale, tracks, tick))


async def measure_alone_and_in_a_crowd(scale: McpScale, tracks: Sequence[Track], tick: Tick) -> dict[str, Taken]:
    """Let the contenders take turns, one call at a time and then many."""
    alone, crowds = [OneByOne(track) for track in tracks], [ManyAtOnce(track) for track in tracks]
    await interleave(alone, rounds=scale.rounds, calls=scale.calls, tick=tick)
    await interleave(crowds, rounds=scale.crowds, calls=1, tick=tick)
    return {
        name: Taken(Sat.of(one.turns[name]), Sat.of([*map(whole, many.turns[name])]))
        for one, many in zip(alone, crowds, strict=True)
        for name in one.turns
    }


def whole(turn: Turn) -> Turn:
    """A turn that is one call, what it left to settle included."""
    return turn._replace(calls_us=[turn.sustained_us])


def figure(taken: dict[str, Taken]) -> Figure:
    """The numbers as a table, with the targets."""
    return Figure(
        key="http_calls",
        title="Call of an HTTP operation",
        columns=COLUMNS,
        rows=[_row(name, taken) for name in names.ROWS if name in taken],
        targets=[*_beside_aiohttp(taken), *_ahead(taken)],
        notes=NOTES,
    )


def row_beside_floor(name: str, taken: Taken, floor: Taken) -> Row:
    """The columns that every figure of calls has."""
    alone, crowd = taken
    return {
        "name": name,
        **alone.measured._asdict(),
        "many_per_s": 1e6 / crowd.measured.sustained_us,
        "many_cpu_us": crowd.measured.cpu_us,
        "of_floor": alone.cpu_times(floor.alone),
        "many_of_floor": crowd.cpu_times(floor.crowd),
    }


def _row(name: str, taken: dict[str, Taken]) -> Row:
    (alone, crowd), bare = taken[name], taken[names.AIOHTTP]
    return {
        **row_beside_floor(name, taken[name], taken[names.floor_of(name)]),
        "of_aiohttp": alone.measured.times(bare.alone.measured),
        "calls_of_aiohttp": bare.crowd.measured.times(crowd.measured),
    }


def _beside_aiohttp(taken: dict[str, Taken]) -> list[Target]:
    ours, bare = taken[names.MEMORY], taken[names.AIOHTTP]
    slower = ours.alone.measured.times(bare.alone.measured)
    calls = bare.crowd.measured.times(ours.crowd.measured)
    pair = f"{names.MEMORY} / {names.AIOHTTP}"
    return [
        Target(f"{pair}, median, one by one", slower, "at most", OF_AIOHTTP, "x"),
        Target(f"{pair}, calls/s, {USUAL.callers} at once", calls, "at least", CALLS_OF_AIOHTTP, "x"),
    ]


def _ahead(taken: dict[str, Taken]) -> list[Target]:
    found: list[Target] = []
    ours = taken[names.MEMORY]
    for peer in (name for name in (names.UTCP, names.FASTMCP) if name in taken):
        alone = taken[peer].alone.measured.times(ours.alone.measured)
        crowd = taken[peer].crowd.measured.times(ours.crowd.measured)
        found += [
            Target(f"{peer} / {names.MEMORY}, median, one by one", alone, "at least", 1, "x"),
            Target(f"{names.MEMORY} / {peer}, calls/s, {USUAL.callers} at once", crowd, "at least", 1, "x"),
        ]
    return found
