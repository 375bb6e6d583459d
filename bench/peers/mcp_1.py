"""Peers that need version 1 of the MCP SDK: langchain-mcp-adapters and mcp-use, with the floor and the SDK itself."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

# Read when it is imported; a benchmark tells nobody that it runs.
os.environ["MCP_USE_ANONYMIZED_TELEMETRY"] = "false"

from langchain_mcp_adapters.client import MultiServerMCPClient  # type: ignore[import-not-found]
from langchain_mcp_adapters.tools import load_mcp_tools  # type: ignore[import-not-found]
from mcp_use import MCPClient  # type: ignore[import-not-found]

from bench.core.harness import Contender
from bench.mcp import names
from bench.mcp.endpoint import ARGUMENTS, STDIO, command, target
from bench.mcp.floor import raw_client
from bench.mcp.sdk import session
from bench.mcp.seats import seated
from bench.mcp.server import ECHO

logging.getLogger("mcp_use").setLevel(logging.CRITICAL)  # It reports that a server without OAuth has no OAuth.


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    async with AsyncExitStack() as stack:
        raw = await stack.enter_async_context(raw_client(target()))
        held = await stack.enter_async_context(session(target()))
        adapters = MultiServerMCPClient({"srv": _connection()})
        once = await stack.enter_async_context(adapters.session("srv"))
        held_tool = _echo(await load_mcp_tools(once))
        default_tool = _echo(await adapters.get_tools())
        used = await stack.enter_async_context(_used())
        yield [
            *await seated(names.FLOOR_1, lambda: raw.call(ECHO, ARGUMENTS)),
            *await seated(names.SESSION_1, lambda: held.call_tool(ECHO, ARGUMENTS)),
            *await seated(names.MCP_USE, lambda: used.call_tool(ECHO, ARGUMENTS)),
            *await seated(names.LANGCHAIN_HELD, lambda: held_tool.ainvoke(ARGUMENTS)),
            *await seated(names.LANGCHAIN, lambda: default_tool.ainvoke(ARGUMENTS)),
        ]


def _connection() -> dict[str, Any]:
    if target() != STDIO:
        return {"url": target(), "transport": "streamable_http"}
    program, *rest = command()
    return {"command": program, "args": rest, "transport": "stdio"}


def _echo(tools: list[Any]) -> Any:
    return next(tool for tool in tools if tool.name == ECHO)


@asynccontextmanager
async def _used() -> AsyncGenerator[Any]:
    """A session of mcp-use, in a task of its own: closed in another's, it takes the cancel scopes of others along."""
    opened, finished = asyncio.get_running_loop().create_future(), asyncio.Event()

    async def hold() -> None:
        program, *rest = command()
        server = {"url": target()} if target() != STDIO else {"command": program, "args": rest}
        client = MCPClient({"mcpServers": {"srv": server}})
        try:
            opened.set_result(await client.create_session("srv"))
            await finished.wait()
        finally:
            await client.close_all_sessions()

    holding = asyncio.create_task(hold())
    try:
        await asyncio.wait({holding, opened}, return_when=asyncio.FIRST_COMPLETED)
        yield opened.result()
    finally:
        finished.set()
        await holding
