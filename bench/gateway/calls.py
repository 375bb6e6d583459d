"""Figure of a call through a gateway: to one server and to twenty, one after the other and many at a time."""

from __future__ import annotations

import asyncio
import itertools
import tempfile
from contextlib import ExitStack
from pathlib import Path

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Contender, Tick, Turn, interleave
from bench.gateway.client import RawClient
from bench.gateway.programs import FASTMCP, FLOOR, Gateway, ServedTrack, program, toolpost_up
from bench.mcp.endpoint import ARGUMENTS, serving
from bench.mcp.floor import RawHttp
from bench.mcp.scale import McpScale
from bench.mcp.seats import USUAL, ManyAtOnce, OneByOne, Sat, seated
from bench.mcp.server import ECHO

SERVERS = 20
MOST_OF_ONE = 1.3
MOST_OF_FLOOR, LEAST_OF_FLOOR = 2.5, 0.35
DIRECT, BY_HAND, OWN, PEER = "no gateway", "floor: a proxy by hand", "toolpost up", "FastMCP's proxy, held sessions"
OWN_OLDER, PEER_OLDER = f"{OWN}, older client", f"{PEER}, older client"
COLUMNS = (
    Column("name", "contender"),
    Column("median_us", "median µs"),
    Column("p99_us", "p99 µs"),
    Column("cpu_us", "its CPU µs"),
    Column("many_per_s", f"{USUAL.callers} at once: calls/s", 0),
    Column("many_cpu_us", "its CPU µs"),
    Column("of_floor", "median x floor", 2),
    Column("of_peer", "median x FastMCP", 2),
)
NOTES = (
    "Client and server are by hand; each gateway is a process of its own, and CPU is that of this process.",
    "An older client has a session.",
    "Ratios are taken round by round. toolpost up validates, permits, limits and records every call on disk.",
)


def of(name: str, servers: int) -> str:
    """The name of a contender with so many servers behind it."""
    return name if servers == 1 else f"{name}, {servers} servers"


ROWS = (
    DIRECT,
    *(BY_HAND, OWN, PEER, OWN_OLDER, PEER_OLDER),
    *(of(name, SERVERS) for name in (BY_HAND, OWN, PEER)),
)


def count(scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return (scale.rounds + scale.crowds + 2) * len(ROWS)


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Measure all gateways in one run, so that all meet the same machine."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        base = stack.enter_context(serving()).removesuffix("/mcp")
        gateways: dict[str, Gateway | None] = {DIRECT: None}
        for servers in (1, SERVERS):
            addresses = [f"{base}/u{number}" for number in range(servers)]
            gateways[of(BY_HAND, servers)] = stack.enter_context(program(FLOOR, addresses))
            gateways[of(OWN, servers)] = stack.enter_context(toolpost_up(folder / str(servers), addresses))
            gateways[of(PEER, servers)] = stack.enter_context(program(FASTMCP, addresses))
        gateways |= {OWN_OLDER: gateways[OWN], PEER_OLDER: gateways[PEER]}
        one, many = asyncio.run(_taken(scale, f"{base}/mcp", gateways, tick))
    return figure(one, many)


async def _taken(
    scale: McpScale, direct: str, gateways: dict[str, Gateway | None], tick: Tick
) -> tuple[dict[str, Sat], dict[str, Sat]]:
    raw = RawHttp(direct)
    clients = {name: gateway.client() for name, gateway in gateways.items() if gateway is not None}
    contenders = await seated(DIRECT, lambda: raw.call(ECHO, ARGUMENTS))
    for name in (OWN_OLDER, PEER_OLDER):
        await clients[name].open_session()
    for name, client in clients.items():
        contenders += await _through(name, client)
    track = ServedTrack(contenders, gateways)
    one, many = OneByOne(track), ManyAtOnce(track)
    await interleave([one], rounds=scale.rounds, calls=scale.calls, tick=tick)
    await interleave([many], rounds=scale.crowds, calls=1, tick=tick)
    for client in clients.values():
        client.close()
    await raw.close()
    return _sat(one.turns), _sat(many.turns)


def _sat(turns: dict[str, list[Turn]]) -> dict[str, Sat]:
    return {name: Sat.of(taken) for name, taken in turns.items()}


async def _through(name: str, client: RawClient) -> list[Contender]:
    servers = SERVERS if name.endswith("servers") else 1
    if name in (PEER, PEER_OLDER):
        return await seated(name, lambda: client.call(ECHO, ARGUMENTS))
    between = "_" if name.startswith(PEER) else "__"
    tools = itertools.cycle([f"u{number}{between}{ECHO}" for number in range(servers)])
    return await seated(name, lambda: client.call(next(tools), ARGUMENTS))


def figure(one: dict[str, Sat], many: dict[str, Sat]) -> Figure:
    """The numbers as a table, with the targets."""
    twenty = of(OWN, SERVERS)
    return Figure(
        key="gateway_calls",
        title="A call through a gateway",
        columns=COLUMNS,
        rows=[_row(name, one, many) for name in ROWS],
        targets=[
            Target(f"{OWN} / {BY_HAND}, median", _times(one, OWN, BY_HAND), "at most", MOST_OF_FLOOR, "x"),
            Target(
                f"calls/s of {OWN} / {BY_HAND}, {USUAL.callers} at once",
                1 / _times(many, OWN, BY_HAND),
                "at least",
                LEAST_OF_FLOOR,
                "x",
            ),
            Target(f"{OWN} / {PEER}, median", _times(one, OWN, PEER), "at most", 1, "x"),
            Target(f"{OWN} / {PEER}, {USUAL.callers} at once", _times(many, OWN, PEER), "at most", 1, "x"),
            Target(f"{OWN_OLDER} / {PEER_OLDER}, median", _times(one, OWN_OLDER, PEER_OLDER), "at most", 1, "x"),
            Target(
                f"{OWN_OLDER} / {PEER_OLDER}, {USUAL.callers} at once",
                _times(many, OWN_OLDER, PEER_OLDER),
                "at most",
                1,
                "x",
            ),
            Target(
                f"{twenty} / one, median", one[twenty].measured.times(one[OWN].measured), "at most", MOST_OF_ONE, "x"
            ),
            Target(f"{twenty} / one, {USUAL.callers} at once", _times(many, twenty, OWN), "at most", MOST_OF_ONE, "x"),
        ],
        notes=NOTES,
    )


def _times(taken: dict[str, Sat], name: str, other: str) -> float:
    return taken[name].measured.times(taken[other].measured)


def _row(name: str, one: dict[str, Sat], many: dict[str, Sat]) -> Row:
    alone, crowd = one[name], many[name]
    return {
        "name": name,
        **alone.measured._asdict(),
        "cpu_us": _mean_cpu(alone),
        "many_per_s": 1e6 / crowd.measured.sustained_us,
        "many_cpu_us": _mean_cpu(crowd),
        "of_floor": alone.measured.times(one[BY_HAND].measured),
        "of_peer": alone.measured.times(one[PEER].measured),
    }


def _mean_cpu(sat: Sat) -> float:
    """The mean over rounds: the system counts in ticks of 10 ms."""
    return sum(sat.cpu_us) / len(sat.cpu_us)
