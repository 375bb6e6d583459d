"""Figure of the whole flow: a call pauses, its person signs in with a browser, and the call finishes by itself."""

from __future__ import annotations

import asyncio
import socket
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick
from bench.mcp.scale import McpScale
from tests.life_of_a_call.account_trials import Ann
from tests.life_of_a_call.strict_service import StrictService
from tests.parts import reserved_port
from tests.toolbox.signing_in import logged_in, outcome_of, served, toolbox
from toolpost.contracts.outcomes import Paused
from toolpost.toolbox.box import Toolbox
from toolpost.toolbox.callback_app import callback_app

SLOWEST_S = 2.0
COLUMNS = (
    Column("name", "step"),
    Column("median_ms", "median ms"),
    Column("slowest_ms", "slowest ms"),
    Column("cpu_ms", "CPU ms"),
)
NOTES = (
    "On SQLite, with real requests on loopback: the browser, the issuer and the API run in the same process and count.",
    "The person takes no time: every button is pressed at once. The first one registers the client.",
)


STEPS = ("call, until it pauses", "sign-in, from the link to the last page", "call, from there to its end")


class Spent(NamedTuple):
    """Time that went by, and time that the process was at work."""

    wall_s: float
    cpu_s: float


Took = tuple[Spent, Spent, Spent]  # for each of the steps


def count(scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return scale.calls


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Let people sign in, one after the other."""
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        return figure(asyncio.run(_flows(Path(folder), scale.calls, tick)))


async def _flows(folder: Path, people: int, tick: Tick) -> list[Took]:
    async with StrictService() as service:
        with reserved_port() as port:
            url = f"http://127.0.0.1:{port}"
            opening = toolbox(service.source(folder), url, folder / "data")
            with socket.create_server(("127.0.0.1", port)) as place:
                async with opening as box, served(callback_app(box, identify=logged_in), place):
                    return [await _flow(box, f"acme:user{number}", tick) for number in range(people)]


async def _flow(box: Toolbox, user: str, tick: Tick) -> Took:
    async with Ann() as person:
        person.web.headers["x-user"] = user
        began = _now()
        asked = await box.call("bank.pay", {}, user=user)
        if not isinstance(asked, Paused):
            raise RuntimeError(f"the call under test {asked.status}: {asked}")  # noqa: TRY004 - no caller's mistake
        paused = _now()
        if await person.signs_in(asked.question.payload["auth_url"]) != 200:
            raise RuntimeError("the sign-in under test failed")
        signed_in = _now()
        outcome = await outcome_of(box, asked.pending_id, by=user)
        ended = _now()
    if outcome["status"] != "completed":
        raise RuntimeError(f"the call under test {outcome['status']}")
    tick("sign-in")
    return _between(began, paused), _between(paused, signed_in), _between(signed_in, ended)


def _now() -> Spent:
    return Spent(time.perf_counter(), time.process_time())


def _between(begin: Spent, end: Spent) -> Spent:
    return Spent(end.wall_s - begin.wall_s, end.cpu_s - begin.cpu_s)


def figure(taken: list[Took]) -> Figure:
    """The times as a table, with the target."""
    whole = [Spent(sum(step.wall_s for step in one), sum(step.cpu_s for step in one)) for one in taken]
    steps = zip(STEPS, zip(*taken, strict=True), strict=True)
    return Figure(
        key="oauth_flow",
        title="From the pause to the finished call",
        columns=COLUMNS,
        rows=[*(_row(name, spent) for name, spent in steps), _row("all of it", whole)],
        targets=[Target("slowest flow", max(one.wall_s for one in whole), "at most", SLOWEST_S, "s")],
        notes=NOTES,
    )


def _row(name: str, spent: Sequence[Spent]) -> Row:
    return {
        "name": name,
        "median_ms": statistics.median(one.wall_s for one in spent) * 1000,
        "slowest_ms": max(one.wall_s for one in spent) * 1000,
        "cpu_ms": statistics.median(one.cpu_s for one in spent) * 1000,
    }
