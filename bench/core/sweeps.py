"""Figures for plots: calls a second against concurrency, and the CPU of a listing against the size of the catalog."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager

from bench.core import native
from bench.core.catalog import registered, tools
from bench.core.crowds import CALLS, CROWDS, SIZES, crowds_of
from bench.core.figures import Column, Figure, Row
from bench.core.harness import Contender, LocalTrack, Measured, Tick, Track, interleave
from bench.core.subject import schema

ROUNDS = 5
OURS = "Toolbox, to_llm_tools and to_openai"
_SHOWN = (native.FLOOR, native.MEMORY, native.SQLITE)


@asynccontextmanager
async def _crowds() -> AsyncGenerator[list[Contender]]:
    async with native.contenders() as present:
        yield [
            Contender(name=one.name, call=one.call, settle=each.settle)
            for each in present
            if each.name in _SHOWN
            for one in crowds_of(each.name, each.call)
        ]


def count(*, peers: int) -> int:
    """How many ticks the figure of concurrency makes."""
    return (ROUNDS + 1) * (len(_SHOWN) * len(CROWDS) + peers)


def measure_crowds(tick: Tick, *, tracks: Sequence[Track] = ()) -> Figure:
    """Measure calls a second at each concurrency."""

    async def measure() -> dict[str, Measured]:
        async with _crowds() as own:
            return await interleave([LocalTrack(own), *tracks], rounds=ROUNDS, calls=1, tick=tick)

    result = asyncio.run(measure())
    return Figure(
        key="concurrency",
        title="Native calls a second against concurrency",
        columns=(
            Column("name", "contender"),
            Column("at_once", "at once", 0),
            Column("per_second", "calls/s", 0),
            Column("cpu_us", "CPU µs"),
        ),
        rows=[_crowd_row(name, measured) for name, measured in result.items()],
        targets=[],
        notes=("A turn is over when all events are on disk; the event loop goes round after every call.",),
    )


def _crowd_row(name: str, measured: Measured) -> Row:
    who, _, crowd = name.rpartition(" @ ")
    per_second = 1e6 * CALLS / measured.sustained_us
    return {"name": who, "at_once": int(crowd), "per_second": per_second, "cpu_us": measured.cpu_us / CALLS}


def listings() -> list[Contender]:
    """What an agent does before every turn, for catalogs of several sizes."""
    given = tools([schema(number) for number in range(max(SIZES))])

    def contender(size: int) -> Contender:
        registry = registered(given[:size])

        async def call() -> object:
            return [definition.to_openai() for definition in registry.to_llm_tools()]

        return Contender(name=f"{OURS} @ {size}", call=call)

    return [contender(size) for size in SIZES]


def measure_listings(tick: Tick, *, tracks: Sequence[Track] = ()) -> Figure:
    """Measure the CPU of a listing for each size."""
    own = LocalTrack(listings())
    result = asyncio.run(interleave([own, *tracks], rounds=ROUNDS, calls=5, tick=tick))
    return Figure(
        key="listing",
        title="All tools as definitions for a model, against the size of the catalog",
        columns=(
            Column("name", "contender"),
            Column("tools", "tools", 0),
            Column("cpu_ms", "CPU ms", 2),
            Column("cpu_us_a_tool", "CPU µs a tool", 2),
        ),
        rows=[_listing_row(name, measured) for name, measured in result.items()],
        targets=[],
    )


def _listing_row(name: str, measured: Measured) -> Row:
    who, _, size = name.rpartition(" @ ")
    cpu_us = measured.cpu_us
    return {"name": who, "tools": int(size), "cpu_ms": cpu_us / 1000, "cpu_us_a_tool": cpu_us / int(size)}


def count_listings(*, peers: int) -> int:
    """How many ticks the figure of listings makes."""
    return (ROUNDS + 1) * (len(SIZES) + peers)
