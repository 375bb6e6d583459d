"""Figures of a list of thousands of tools from a gateway's cache, and of a hundred clients at once."""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import Awaitable, Callable, Generator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Contender, Stopwatch, Tick, interleave, undisturbed
from bench.gateway.client import RawClient
from bench.gateway.programs import FLOOR, Gateway, ServedTrack, program, toolpost_up
from bench.mcp.endpoint import ARGUMENTS, serving
from bench.mcp.floor import RawHttp
from bench.mcp.scale import McpScale
from bench.mcp.server import ECHO

LIST_MS = 20.0
CLIENTS, EACH = 100, 5
DIRECT, BY_HAND, OWN, OWN_SESSION = "no gateway", "floor: a proxy by hand", "toolpost up", "toolpost up, with a session"
LIST_COLUMNS = (
    Column("name", "contender"),
    Column("median_ms", "median ms"),
    Column("worst_ms", "p99 ms"),
    Column("cpu_ms", "its CPU ms"),
)
CLIENT_COLUMNS = (
    Column("clients", "clients", 0),
    Column("connect_s", "all connected s"),
    Column("calls_per_s", "calls/s", 0),
    Column("answered", "calls answered", 0),
    Column("memory_mb", "memory MB more", 0),
)


@contextmanager
def both(tools: int) -> Generator[tuple[str, Gateway, Gateway]]:
    """A server with so many tools, the floor and Toolpost in front of it."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        server = stack.enter_context(serving(tools=tools))
        floor = stack.enter_context(program(FLOOR, [server]))
        yield server, floor, stack.enter_context(toolpost_up(folder / "home", [server]))


def count_lists(scale: McpScale) -> int:
    """How many ticks the figure of lists makes."""
    return (scale.rounds + 1) * 4


def measure_lists(scale: McpScale, tick: Tick) -> Figure:
    """List all tools again and again; the answer is read, and not parsed."""
    with both(scale.tools) as (server, floor, own):
        return asyncio.run(_lists(scale, server, floor, own, tick))


async def _lists(scale: McpScale, server: str, floor: Gateway, own: Gateway, tick: Tick) -> Figure:
    raw, clients = RawHttp(server), {BY_HAND: floor.client(), OWN: own.client(), OWN_SESSION: own.client()}
    await clients[OWN_SESSION].open_session()
    contenders = [Contender(name=DIRECT, call=lambda: raw.ask("tools/list"))]
    contenders += [Contender(name=name, call=_listing(client)) for name, client in clients.items()]
    gateways: dict[str, Gateway | None] = {DIRECT: None, BY_HAND: floor, OWN: own, OWN_SESSION: own}
    taken = await interleave([ServedTrack(contenders, gateways)], rounds=scale.rounds, calls=5, tick=tick)
    for client in clients.values():
        client.close()
    await raw.close()
    rows: list[Row] = [
        {
            "name": name,
            "median_ms": found.median_us / 1000,
            "worst_ms": found.p99_us / 1000,
            "cpu_ms": found.cpu_us / 1000,
        }
        for name, found in taken.items()
    ]
    return Figure(
        key="gateway_lists",
        title=f"A list of {scale.tools:,} tools from the cache",
        columns=LIST_COLUMNS,
        rows=rows,
        targets=[Target(name, taken[name].median_us / 1000, "at most", LIST_MS, "ms") for name in (OWN, OWN_SESSION)],
        notes=("Without a gateway the answer is parsed as well.",),
    )


def _listing(client: RawClient) -> Callable[[], Awaitable[object]]:
    return lambda: client.post("tools/list")


def measure_clients(tick: Tick) -> Figure:
    """Connect a hundred clients of the older protocol, each with a session and a stream, and let all of them call."""
    with both(2) as (_, _floor, own):
        return asyncio.run(_clients(own, tick))


async def _clients(own: Gateway, tick: Tick) -> Figure:
    before = own.process.memory_info().rss
    clients = [own.client() for _ in range(CLIENTS)]
    with Stopwatch() as connecting:
        await asyncio.gather(*(client.open_session() for client in clients))
    tick("connected")

    async def several(client: RawClient) -> int:
        answers = [
            await client.post("tools/call", {"name": f"u0__{ECHO}", "arguments": ARGUMENTS}) for _ in range(EACH)
        ]
        return sum(ARGUMENTS["message"].encode() in answer for answer in answers)

    with undisturbed(), Stopwatch() as calling:
        answered = sum(await asyncio.gather(*(several(client) for client in clients)))
    tick("called")
    more_mb = (own.process.memory_info().rss - before) / 1e6
    for client in clients:
        client.close()
    row: Row = {
        "clients": CLIENTS,
        "connect_s": connecting.turn(1).sustained_us / 1e6,
        "calls_per_s": 1e6 / calling.turn(CLIENTS * EACH).sustained_us,
        "answered": answered,
        "memory_mb": more_mb,
    }
    return Figure(
        key="gateway_clients",
        title=f"{CLIENTS} clients at once, each with a session and a stream of its own",
        columns=CLIENT_COLUMNS,
        rows=[row],
        targets=[Target("calls answered", answered, "at least", CLIENTS * EACH)],
    )
