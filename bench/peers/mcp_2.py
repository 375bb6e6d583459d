"""Peers on version 2 of the MCP SDK: pydantic-ai and openai-agents, with the floor and the SDK itself beside them."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

from agents.mcp import MCPServerStdio, MCPServerStreamableHttp
from fastmcp import Client
from fastmcp.client.transports import StdioTransport
from pydantic_ai import RunContext
from pydantic_ai.mcp import MCPToolset
from pydantic_ai.models.test import TestModel
from pydantic_ai.usage import RunUsage

from bench.core.harness import Contender
from bench.mcp import names
from bench.mcp.endpoint import ARGUMENTS, IN_PROCESS, STDIO, command, target
from bench.mcp.floor import raw_client
from bench.mcp.sdk import session
from bench.mcp.seats import Call, seated
from bench.mcp.server import ECHO


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    async with AsyncExitStack() as stack:
        yield await (_in_process(stack) if target() == IN_PROCESS else _outside(stack))


async def _outside(stack: AsyncExitStack) -> list[Contender]:
    raw = await stack.enter_async_context(raw_client(target()))
    held = await stack.enter_async_context(session(target()))
    client = await stack.enter_async_context(_client())
    server = await stack.enter_async_context(_agents_server())
    await server.list_tools()
    return [
        *await seated(names.FLOOR_2, lambda: raw.call(ECHO, ARGUMENTS)),
        *await seated(names.SESSION_2, lambda: held.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.FASTMCP_2, lambda: client.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.OPENAI_AGENTS, lambda: server.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.PYDANTIC_AI, await _toolset_call(stack, _client())),
    ]


async def _in_process(stack: AsyncExitStack) -> list[Contender]:
    from bench.mcp.in_process import echo, server

    client = await stack.enter_async_context(Client(server))
    return [
        *await seated(names.FLOOR_2, lambda: echo(**ARGUMENTS)),
        *await seated(names.FASTMCP_2, lambda: client.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.PYDANTIC_AI, await _toolset_call(stack, server)),
    ]


def _client() -> Any:
    if target() != STDIO:
        return Client(target())
    program, *rest = command()
    return Client(StdioTransport(program, rest, keep_alive=False))


def _agents_server() -> Any:
    if target() != STDIO:
        return MCPServerStreamableHttp({"url": target()}, cache_tools_list=True)
    program, *rest = command()
    return MCPServerStdio({"command": program, "args": rest}, cache_tools_list=True)


async def _toolset_call(stack: AsyncExitStack, server: Any) -> Call:
    toolset: Any = await stack.enter_async_context(MCPToolset(server))
    context: Any = RunContext(deps=None, model=TestModel(), usage=RunUsage())
    known = await toolset.get_tools(context)

    async def call() -> Any:
        tool = known[ECHO]
        return await toolset.call_tool(ECHO, tool.args_validator.validate_python(ARGUMENTS), context, tool)

    return call
