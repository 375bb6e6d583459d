"""Figure 4: thousands of tools: registering them, listing them for a model, and the memory of each."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections.abc import Sequence
from typing import Any

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Measured, Stopwatch, Tick, Turn, interleave, undisturbed
from bench.core.scale import Scale
from bench.core.subject import schema
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import JsonSchema, ToolSpec

GROWTH = {"register": 1.5, "list": 1.2}
BYTES_A_TOOL = 2048
LISTED = 50_000  # A small catalog is listed several times, because one time is over too soon to be measured.


class PlainTool:
    """A tool as someone would write it by hand."""

    __slots__ = ("spec",)

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(success=True, result=params)


def tools(schemas: Sequence[JsonSchema]) -> list[PlainTool]:
    """One tool for each schema."""
    return [
        PlainTool(
            ToolSpec(
                name=f"service{number % 50}.find_things_{number}",
                description=f"Find the things of kind {number} that match.",
                input_schema=given,
                side_effects="read",
                replay="idempotent",
                source=f"service{number % 50}",
            )
        )
        for number, given in enumerate(schemas)
    ]


def registered(given: Sequence[PlainTool]) -> ToolRegistry:
    """A registry that holds the tools."""
    registry = ToolRegistry()
    registry.register_many(given)
    return registry


class CatalogTrack:
    """One contender for each size and each of the two things done with it; what they work on is made once."""

    def __init__(self, sizes: Sequence[int]) -> None:
        given = tools([schema(number) for number in range(max(sizes))])
        self._tools = {f"register {size:,}": given[:size] for size in sizes}
        self._registries = {f"list {size:,}": registered(given[:size]) for size in sizes}

    @property
    def names(self) -> Sequence[str]:
        return [*self._tools, *self._registries]

    async def turn(self, name: str, calls: int) -> Turn:
        return self._register(self._tools[name]) if name in self._tools else self._list(self._registries[name])

    def _register(self, given: Sequence[PlainTool]) -> Turn:
        with undisturbed(), Stopwatch() as watch:
            registered(given)
        return watch.turn(len(given))

    def _list(self, registry: ToolRegistry) -> Turn:
        size = len(registry.list())
        again = max(1, LISTED // size)
        with undisturbed(), Stopwatch() as watch:
            for _ in range(again):
                registry.to_llm_tools()
        return watch.turn(again * size)


def bytes_per_tool(size: int) -> float:
    """Memory that a registered tool holds beyond its raw schema: its record, names and entry."""
    schemas = [schema(number) for number in range(size)]
    tracemalloc.start()
    try:
        registry = registered(tools(schemas))
        held, _ = tracemalloc.get_traced_memory()
        del registry
        left, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    return (held - left) / size


def count(scale: Scale) -> int:
    """How many ticks this figure makes."""
    return (scale.catalog_rounds + 1) * 2 * len(scale.catalogs) + 1


def measure(scale: Scale, tick: Tick) -> Figure:
    """Fill registries of several sizes."""
    track = CatalogTrack(scale.catalogs)
    result = asyncio.run(interleave([track], rounds=scale.catalog_rounds, calls=1, tick=tick))
    size = bytes_per_tool(scale.catalogs[-1])
    tick("memory")
    return figure(result, scale.catalogs, size)


def figure(result: dict[str, Measured], sizes: Sequence[int], per_tool: float) -> Figure:
    """The numbers as a table, with the targets."""
    least, most = f"{sizes[0]:,}", f"{sizes[-1]:,}"
    return Figure(
        key="catalog",
        title=f"A catalog of {most} tools",
        columns=(
            Column("tools", "tools", 0),
            Column("register_ms", "register ms"),
            Column("register_us", "a tool µs", 2),
            Column("list_ms", "list for a model ms", 2),
            Column("list_us", "a tool µs", 2),
        ),
        rows=[_row(size, result) for size in sizes],
        targets=[
            *(
                Target(
                    f"{kind}: cost of a tool, {most} to {least}", _growth(result, kind, least, most), "at most", limit
                )
                for kind, limit in GROWTH.items()
            ),
            Target("memory a tool beyond its raw schema", per_tool, "at most", BYTES_A_TOOL, "bytes"),
        ],
        notes=("Times are CPU, each the median of several fillings.",),
    )


def _row(size: int, result: dict[str, Measured]) -> Row:
    register, listing = result[f"register {size:,}"], result[f"list {size:,}"]
    return {
        "tools": size,
        "register_ms": register.cpu_us * size / 1000,
        "register_us": register.cpu_us,
        "list_ms": listing.cpu_us * size / 1000,
        "list_us": listing.cpu_us,
    }


def _growth(result: dict[str, Measured], kind: str, least: str, most: str) -> float:
    return result[f"{kind} {most}"].cpu_us / result[f"{kind} {least}"].cpu_us
