"""Figure of renewals: processes that share an account, at an issuer that takes each refresh token once."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from bench.core.figures import Column, Figure, Target
from bench.core.harness import Tick
from bench.mcp.scale import McpScale
from tests.auth.refresh_race import race

PROCESSES = 8
COLUMNS = (
    Column("processes", "processes", 0),
    Column("expiries", "expiries", 0),
    Column("refreshes", "refreshes", 0),
    Column("invalid_grant", "invalid_grant", 0),
    Column("early", "too early", 0),
    Column("finished", "processes that saw it through", 0),
    Column("each_ms", "each ms"),
)
NOTES = (
    "All processes meet each expiry at the same moment; a refresh token that is used twice ends the whole grant.",
    "Each is the time until all of them use the new token, on as many cores as there are.",
)


def count(_scale: McpScale) -> int:
    """How many ticks this figure makes."""
    return 1


def measure(scale: McpScale, tick: Tick) -> Figure:
    """Let tokens expire under the hands of all of them."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="toolpost-bench-") as folder:
        counted = asyncio.run(race(Path(folder), processes=PROCESSES, expiries=scale.cycles))
    tick("expiries")
    return figure(counted, expiries=scale.cycles, took_s=time.perf_counter() - began)


def figure(counted: dict[str, int], *, expiries: int, took_s: float) -> Figure:
    """What the issuer counted, with the targets."""
    row = {**counted, "processes": PROCESSES, "expiries": expiries, "each_ms": took_s * 1000 / expiries}
    return Figure(
        key="oauth_expiries",
        title="Tokens that expire under many processes",
        columns=COLUMNS,
        rows=[row],
        targets=[
            Target("refreshes beyond one for each expiry", counted["refreshes"] - expiries, "at most", 0),
            Target("expiries that were met", counted["generation"], "at least", expiries),
            Target("invalid_grant", counted["invalid_grant"], "at most", 0),
            Target("processes that saw it through", counted["finished"], "at least", PROCESSES),
        ],
        notes=NOTES,
    )
