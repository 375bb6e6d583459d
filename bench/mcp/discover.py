"""One discovery in a fresh process: `python -m bench.mcp.discover KIND SMALL_URL LARGE_URL` prints what it cost.

The server of two tools is connected to first, so that no import and no first use of a library is in the figures.
"""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any, Literal, get_args

Kind = Literal["floor", "session", "fastmcp", "toolbox"]
Found = tuple[int, Callable[[], list[Any]]]


@asynccontextmanager
async def floor(url: str) -> AsyncGenerator[Found]:
    from bench.mcp.floor import raw_http

    async with raw_http(url) as client:
        tools = (await client.ask("tools/list"))["result"]["tools"]
        yield len(tools), lambda: [_function(tool["name"], tool["description"], tool["inputSchema"]) for tool in tools]


@asynccontextmanager
async def session(url: str) -> AsyncGenerator[Found]:
    from bench.mcp.sdk import session as opened

    async with opened(url) as client:
        tools = (await client.list_tools()).tools
        yield len(tools), lambda: _functions(tools)


@asynccontextmanager
async def fastmcp(url: str) -> AsyncGenerator[Found]:
    from fastmcp import Client

    async with Client(url) as client:
        tools = await client.list_tools()
        yield len(tools), lambda: _functions(tools)


@asynccontextmanager
async def toolbox(url: str) -> AsyncGenerator[Found]:
    from bench.mcp.own import settings
    from toolpost.toolbox.box import Toolbox

    async with Toolbox(settings=settings(None, connection=url)) as box:
        yield len(box.registry.list()), lambda: list(box.registry.to_llm_tools())


def _functions(tools: list[Any]) -> list[Any]:
    return [_function(tool.name, tool.description, tool.input_schema) for tool in tools]


def _function(name: str, description: str, schema: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "description": description, "parameters": schema}}


KINDS: dict[Kind, Callable[[str], AbstractAsyncContextManager[Found]]] = {
    "floor": floor,
    "session": session,
    "fastmcp": fastmcp,
    "toolbox": toolbox,
}


async def measured(kind: Kind, small: str, large: str) -> dict[str, float]:
    async with KINDS[kind](small) as (_, convert):
        convert()
    gc.collect()
    gc.freeze()
    before_mb = resident_mb()
    cpu, wall = time.process_time(), time.perf_counter()
    async with KINDS[kind](large) as (tools, convert):
        cpu_ms, wall_ms = (time.process_time() - cpu) * 1000, (time.perf_counter() - wall) * 1000
        gc.collect()
        held_mb, peak_mb = resident_mb() - before_mb, resident_mb("VmHWM") - before_mb
        cpu = time.process_time()
        converted = convert()
        convert_ms = (time.process_time() - cpu) * 1000
    if len(converted) != tools:
        raise RuntimeError(f"{kind} found {tools} tools and made {len(converted)} of them")
    return {
        "tools": tools,
        "cpu_ms": cpu_ms,
        "wall_ms": wall_ms,
        "held_mb": held_mb,
        "peak_mb": peak_mb,
        "convert_ms": convert_ms,
    }


def resident_mb(field: str = "VmRSS") -> float:
    """Memory of this process that is in RAM, or with VmHWM the most there ever was."""
    lines = Path("/proc/self/status").read_text(encoding="ascii").splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(field)) / 1024


if __name__ == "__main__":
    chosen, *urls = sys.argv[1:]
    if chosen not in get_args(Kind):
        sys.exit(f"{chosen!r} is none of {', '.join(get_args(Kind))}")
    print(json.dumps(asyncio.run(measured(chosen, *urls))))  # type: ignore[arg-type]
