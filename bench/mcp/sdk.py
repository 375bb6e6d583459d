"""Sessions of the SDK that FastMCP and others build on, for whichever of its versions is installed."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import mcp
from mcp.client.stdio import stdio_client
from mcp.client.streamable_http import streamable_http_client

from bench.mcp.endpoint import STDIO, command


@asynccontextmanager
async def session(target: str) -> AsyncGenerator[mcp.ClientSession]:
    """A session that has shaken hands."""
    async with AsyncExitStack() as stack:
        streams = await stack.enter_async_context(_streams(target))
        held = await stack.enter_async_context(mcp.ClientSession(*streams[:2]))
        await held.initialize()
        yield held


def _streams(target: str) -> Any:
    if target != STDIO:
        return streamable_http_client(target)
    program, *rest = command()
    return stdio_client(mcp.StdioServerParameters(command=program, args=rest))
