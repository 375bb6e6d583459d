"""Figure 3: events per second into the log until they are durable, and what one costs its caller."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

from bench.core.event_tracks import (
    BARE,
    BARE_TEXT,
    OURS,
    QUEUE_LIMIT,
    BareTrack,
    LogFacts,
    LogTrack,
    events_of_a_call,
)
from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Measured, Tick, interleave
from bench.core.scale import Scale

SHARE_OF_BARE = 0.6
CALLER_US = 3.0
SLACK = 3  # Callers look for room once a call, and a call tells three events.


def count(scale: Scale) -> int:
    """How many ticks this figure makes."""
    return (scale.event_rounds + 1) * 3


def measure(scale: Scale, tick: Tick) -> Figure:
    """Write events with our log and with the bare writer."""
    return asyncio.run(_measure(scale, tick))


async def _measure(scale: Scale, tick: Tick) -> Figure:
    call = await events_of_a_call()
    log = LogTrack(call)
    result = await interleave([log, BareTrack(call)], rounds=scale.event_rounds, calls=scale.events, tick=tick)
    return figure(result, log.facts)


def figure(result: dict[str, Measured], facts: Sequence[LogFacts]) -> Figure:
    """The numbers as a table, with the targets."""
    ours = result[OURS]
    peak = max(fact.peak_waiting for fact in facts)
    emitted, stored = sum(fact.emitted for fact in facts), sum(fact.stored for fact in facts)
    return Figure(
        key="events",
        title="Events into SQLite (WAL, synchronous FULL, chained)",
        columns=(
            Column("name", "contender"),
            Column("per_second", "events/s", 0),
            Column("median_us", "caller median µs", 2),
            Column("average_us", "caller mean µs", 2),
            Column("p99_us", "caller p99 µs", 2),
            Column("cpu_us", "CPU µs"),
            Column("of_bare", "x bare", 2),
        ),
        rows=[_row(name, measured, result[BARE]) for name, measured in result.items()],
        targets=[
            *(_share(result, bare) for bare in (BARE, BARE_TEXT)),
            Target("on the caller, mean", ours.average_us, "at most", CALLER_US, "µs"),
            Target("waiting at the peak", peak, "at most", QUEUE_LIMIT + SLACK, "events"),
            Target("dropped", emitted - stored, "at most", 0, "events"),
        ],
        notes=(
            f"{emitted:,} events emitted, {stored:,} found stored.",
            "The bare writer has a row for each event. Given the text, it need not even make the JSON that it stores.",
        ),
    )


def _share(result: dict[str, Measured], bare: str) -> Target:
    share = result[bare].sustained_us / result[OURS].sustained_us
    return Target(f"{OURS} / {bare}, events/s", share, "at least", SHARE_OF_BARE)


def _row(name: str, measured: Measured, bare: Measured) -> Row:
    return {
        "name": name,
        "per_second": 1e6 / measured.sustained_us,
        **measured._asdict(),
        "of_bare": bare.sustained_us / measured.sustained_us,
    }
