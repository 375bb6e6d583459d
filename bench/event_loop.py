"""How long the event loop stands still while hostile documents become tools.

Every case is a Toolbox that opens with one source. A task ticks each millisecond: the longest time between two ticks
is the gap, and the CPU that the loop's own thread spends in it is its share of the work. What threads do beside it,
and libraries that hold the interpreter's lock in one long step, is in the gap alone.
"""

from __future__ import annotations

import asyncio
import json
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

from bench.core.figures import Column, Figure, Row, Target
from bench.core.harness import Tick, undisturbed
from bench.core.main import Part
from tests.sources.graphql.large import large
from tests.sources.openapi.test_hostile_documents import crowded, entangled
from toolpost import ExternalToolConfig, Settings, Toolbox

LIMIT_MS = 50.0
SERVER_COMMAND = f"{sys.executable} {Path(__file__).parent / 'mcp' / 'server.py'} --tools"
COLUMNS = (
    Column("name", "document"),
    Column("tools", "tools", 0),
    Column("open_s", "open s", 2),
    Column("loop_ms", "longest work of the loop, ms", 1),
    Column("gap_ms", "longest gap, ms", 1),
)
NOTES = ("Without the garbage collector, whose pauses grow with everything that the process holds.",)


class Case(NamedTuple):
    """A document, and the transport that reads it."""

    name: str
    transport: str
    document: Callable[[], dict[str, Any]]
    options: dict[str, Any]


def _wide(parts: int) -> dict[str, Any]:
    """One operation with so many properties."""
    properties = {f"p{number}": {"type": "string", "minLength": 1} for number in range(parts)}
    body = {"content": {"application/json": {"schema": {"type": "object", "properties": properties}}}}
    servers = [{"url": "https://a.example"}]
    return {"openapi": "3.1.0", "servers": servers, "paths": {"/wide": {"post": {"requestBody": body}}}}


def _manual(tools: int) -> dict[str, Any]:
    """A UTCP manual of so many tools."""
    inputs = {"type": "object", "properties": {"q": {"type": "string"}}}
    template = {"call_template_type": "http", "http_method": "GET"}
    listed = [
        {
            "name": f"t{number}",
            "inputs": inputs,
            "tool_call_template": {**template, "url": f"https://a.example/{number}"},
        }
        for number in range(tools)
    ]
    return {"utcp_version": "1.0.1", "manual_version": "1", "tools": listed}


CASES = (
    Case("OpenAPI, 200 tools that share recursive definitions", "http", lambda: entangled(200), {}),
    Case("OpenAPI, 5,000 tools and 5,000 missing files", "http", lambda: crowded(5000), {}),
    Case("OpenAPI, 20,000 tools and 20,000 missing files", "http", lambda: crowded(20_000), {}),
    Case("UTCP, 20,000 tools", "utcp", lambda: _manual(20_000), {}),
    Case(
        "MCP, 20,000 tools in one page of 26 MB",
        "mcp",
        dict,
        {"connection": f"{SERVER_COMMAND} 20000"},
    ),
    Case("OpenAPI, one schema of 10,000 properties", "http", lambda: _wide(10_000), {}),
    Case("GraphQL, 2,000 types that lead to each other", "graphql", large, {"connection": "https://a.example/graphql"}),
)


def measure(tick: Tick) -> Figure:
    """Open every case, after one that pays for imports."""
    rows: list[Row] = []
    for case in CASES:
        asyncio.run(_row(_small(case)))
        rows.append(asyncio.run(_row(case)))
        tick(case.name)
    targets = [Target(row["name"], row["loop_ms"], "at most", LIMIT_MS, "ms of the loop") for row in rows]
    return Figure(
        key="event_loop",
        title="The event loop while documents are read",
        columns=COLUMNS,
        rows=rows,
        targets=targets,
        notes=NOTES,
    )


def _small(case: Case) -> Case:
    """A case that loads what this one needs."""
    if case.transport == "mcp":
        return case._replace(options={"connection": f"{SERVER_COMMAND} 2"})
    return case._replace(document=lambda: entangled(1), transport="http", options={})


async def _row(case: Case) -> Row:
    with tempfile.TemporaryDirectory() as folder, undisturbed():
        file = Path(folder) / "document.json"
        file.write_text(json.dumps(case.document()))
        given: dict[str, Any] = {"connection": str(file), **case.options}
        if case.transport == "graphql":
            given["graphql"] = {"schema_file": str(file)}
        source = ExternalToolConfig.model_validate(
            {"name": "api", "transport": case.transport, "connect_timeout_s": 600, **given}
        )
        ticks: list[tuple[float, float]] = []
        ticking = asyncio.create_task(_tick(ticks))
        await asyncio.sleep(0.01)
        began = time.perf_counter()
        settings = Settings(data_dir=None, startup_wait_s=600, sources=[source])
        async with Toolbox(settings=settings) as box:
            open_s = time.perf_counter() - began
            await asyncio.sleep(0.01)
            ticking.cancel()
            tools = len(box.registry.specs())
    return {
        "name": case.name,
        "tools": tools,
        "open_s": open_s,
        "loop_ms": 1000 * max(cpu for _, cpu in ticks),
        "gap_ms": 1000 * max(gap for gap, _ in ticks),
    }


async def _tick(ticks: list[tuple[float, float]]) -> None:
    while True:
        wall, cpu = time.perf_counter(), time.thread_time()
        await asyncio.sleep(0.001)
        ticks.append((time.perf_counter() - wall - 0.001, time.thread_time() - cpu))


def parts() -> list[Part]:
    """The figure as a part of a run."""
    return [Part("event loop", len(CASES), measure)]
