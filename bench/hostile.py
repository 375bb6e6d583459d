"""What attacks on the event loop do to others: its longest stall, and the rate of a healthy tool beside each attack.

In the library a task ticks each millisecond: the longest time between two ticks is the stall, and the CPU that the
loop's own thread spends in it is its share. On a busy machine the stall is longer, because the process itself waits.
A gateway is a program of its own, with 1,024 descriptors: the stall there is the slowest call of a healthy tool.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx2

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part
from toolpost import Settings, Toolbox, tool
from toolpost.sources import Workflow, WorkflowFunction

STALL_MS = 100.0
SHARE = 0.5
DESCRIPTORS = 1024
COLUMNS = (
    Column("name", "attack"),
    Column("took_s", "took s", 2),
    Column("outcome", "ends as"),
    Column("loop_ms", "longest work of the loop, ms", 1),
    Column("stall_ms", "longest stall, ms", 1),
    Column("share", "rate of a healthy tool, share of undisturbed", 2),
)
NOTES = (
    "Without the garbage collector, whose pauses grow with everything that the process holds.",
    "The healthy tool is that of an MCP server on stdio; of the gateway, a Python function over REST.",
    "The attacker's own process takes CPU too: with few or busy cores the rate says how those are shared.",
)
_HERE = Path(__file__).parent / "mcp"
_CLIENT = Path(__file__).parent / "gateway" / "hostile_client.py"
_BASE_S = 1.0
_LEAST_S = 0.3  # an attack that is over sooner says nothing about the rate
_MARGIN = 0.001


class Case(NamedTuple):
    """An attack: calls of a tool of the hostile server, which sends so many of something, or of a workflow."""

    name: str
    tool: str
    amount: int
    calls: int = 1


CASES = (
    Case("an expression, `[@, @]` nested 24 times", "doubles", 1, 20),
    Case("3 results of 1,000,000 objects at once", "bad.objects", 1_000_000, 3),
    Case("3 results of 2,000,000 objects at once", "bad.objects", 2_000_000, 3),
    Case("3 texts that are JSON of 1,000,000 objects", "bad.text", 1_000_000, 3),
    Case("a result that is nested 2,000,000 levels deep", "bad.deep", 2_000_000),
    Case("20,000 requests during a call", "bad.requests", 20_000),
    Case("100,000 notifications during a call", "bad.notifications", 100_000),
)
GATEWAY_CASES = {
    "connections": "1,200 idle connections, 1,024 descriptors",
    "bodies": "3 bodies of 1,000,000 objects at once",
}


def measure(tick: Tick) -> Figure:
    """Run every attack."""
    rows: list[Row] = []
    for case in CASES:
        rows.append(asyncio.run(measure_attack(case)))
        tick(case.name)
    for kind, name in GATEWAY_CASES.items():
        rows.append(asyncio.run(_gateway_row(name, kind)))
        tick(name)
    stalls = [Target(row["name"], row["stall_ms"], "at most", STALL_MS, "ms") for row in rows]
    shares = [Target(row["name"], row["share"], "at least", SHARE, "of the rate") for row in rows]
    return Figure(
        key="hostile",
        title="A healthy tool beside attacks",
        columns=COLUMNS,
        rows=rows,
        targets=[*stalls, *shares],
        notes=NOTES,
    )


# ---------------------------------------------------------------- in the library


async def measure_attack(case: Case) -> Row:
    """Run one attack beside calls of the healthy tool."""
    doubling = "inputs.x" + " | [@, @]" * 24
    workflow = WorkflowFunction(
        Workflow.parse(
            json.dumps(
                {
                    "name": "doubles",
                    "inputs": {"properties": {"x": {}}},
                    "steps": {"a": {"tool": "good.echo", "arguments": {"message": "${{ " + doubling + " }}"}}},
                }
            )
        )
    )
    commands = {"bad": ["hostile_server.py", str(case.amount)], "good": ["server.py", "--tools", "2"]}
    sources: list[Any] = [
        {
            "name": name,
            "transport": "mcp",
            "connection": " ".join([sys.executable, str(_HERE / words[0]), *words[1:]]),
            "trust": True,
            "timeout_s": 120,
            "connect_timeout_s": 120,
        }
        for name, words in commands.items()
    ]
    settings = Settings(data_dir=None, policy="exploratory", startup_wait_s=120, sources=sources)
    async with Toolbox(tools=[workflow], settings=settings) as box:

        async def healthy() -> None:
            await box.call("good.echo", {"message": "x"})

        arguments = {"x": "y"} if case.tool == "doubles" else {}
        await box.call(case.tool, arguments)  # pays for imports
        usual = await _rate(healthy, asyncio.sleep(_BASE_S))
        ticks: list[tuple[float, float]] = []
        with undisturbed():
            ticking = asyncio.create_task(_tick(ticks))
            await asyncio.sleep(0.01)
            began = time.perf_counter()
            attacking = asyncio.gather(*(box.call(case.tool, arguments) for _ in range(case.calls)))
            disturbed = await _rate(healthy, attacking)
            outcomes = await attacking
            took_s = time.perf_counter() - began
            await asyncio.sleep(0.05)
            ticking.cancel()
    outcome: Any = outcomes[0]
    return {
        "name": case.name,
        "took_s": took_s,
        "outcome": outcome.error.error_code if outcome.status == "failed" else outcome.status,
        "loop_ms": 1000 * max(cpu for _, cpu in ticks),
        "stall_ms": 1000 * max(gap for gap, _ in ticks),
        "share": disturbed / usual,
    }


async def _rate(call: Callable[[], Awaitable[None]], until: Awaitable[Any]) -> float:
    """Return how many calls a second are made, one after the other, until something is done."""
    waiting = asyncio.ensure_future(until)
    calls, began = 0, time.perf_counter()
    while not waiting.done() or time.perf_counter() - began < _LEAST_S:
        await call()
        calls += 1
    return calls / (time.perf_counter() - began)


async def _tick(ticks: list[tuple[float, float]]) -> None:
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        await asyncio.sleep(_MARGIN)
        ticks.append((time.perf_counter() - wall - _MARGIN, time.thread_time() - cpu))


# ---------------------------------------------------------------- in the gateway


class _Gateway(NamedTuple):
    url: str
    http: httpx2.AsyncClient
    token: str


@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b


async def _gateway_row(name: str, kind: str) -> Row:
    times: list[float] = []
    async with _gateway() as gateway:

        async def healthy() -> None:
            began = time.perf_counter()
            call = {"tool": "local.add", "arguments": {"a": 1, "b": 2}}
            reply = await gateway.http.post("/api/v1/calls", json=call)
            reply.raise_for_status()
            times.append(time.perf_counter() - began)

        await healthy()
        usual = await _rate(healthy, asyncio.sleep(_BASE_S))
        times.clear()
        began = time.perf_counter()
        attacking = asyncio.create_task(asyncio.to_thread(_attack, kind, gateway))
        disturbed = await _rate(healthy, attacking)
        took_s = time.perf_counter() - began
        outcome = await attacking
    return {
        "name": name,
        "took_s": took_s,
        "outcome": outcome,
        "loop_ms": "-",
        "stall_ms": 1000 * max(times),
        "share": disturbed / usual,
    }


@contextmanager
def _running() -> Generator[tuple[str, str]]:
    """Run a gateway; gives its address and the token of the operator."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = {"name": "local", "transport": "python", "connection": "./tools.py"}
        (folder / "toolpost.yaml").write_text(json.dumps({"sources": [source]}))
        (folder / "tools.py").write_text("from bench.hostile import add\n")
        up = [sys.executable, "-m", "toolpost", "up", "--port", "0", "--json"]
        limited = ["sh", "-c", f'ulimit -n {DESCRIPTORS} && exec "$@"', "sh", *up]
        command = ["env", f"PYTHONPATH={Path(__file__).parent.parent}", *limited]
        with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout is not None
            told = json.loads(process.stdout.readline())
            try:
                yield told["mcp"].removesuffix("/mcp"), Path(told["token_file"]).read_text(encoding="ascii")
            finally:
                process.terminate()


@asynccontextmanager
async def _gateway() -> AsyncGenerator[_Gateway]:
    with _running() as (url, token):
        bearer = {"Authorization": f"Bearer {token}"}
        async with httpx2.AsyncClient(base_url=url, headers=bearer, timeout=60, trust_env=False) as http:
            yield _Gateway(url, http, token)


def _attack(kind: str, gateway: _Gateway) -> str:
    """Run an attack in another process, so that it does not slow the healthy client down."""
    words = [sys.executable, str(_CLIENT), kind, gateway.url, gateway.token]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout.strip()


def parts() -> list[Part]:
    """The figure as a part of a run."""
    return [Part("hostile", len(CASES) + len(GATEWAY_CASES), measure)]
