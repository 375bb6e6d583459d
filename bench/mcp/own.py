"""The contenders in our own environment: the floor, the SDK, FastMCP's client, and Toolpost on top of it."""

from __future__ import annotations

import shlex
import tempfile
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from fastmcp import Client
from fastmcp.client.transports import StdioTransport

from bench.core.harness import Contender
from bench.mcp import names
from bench.mcp.endpoint import ARGUMENTS, IN_PROCESS, STDIO, command, target
from bench.mcp.floor import raw_client
from bench.mcp.sdk import session
from bench.mcp.seats import USUAL, seated
from bench.mcp.server import ECHO
from toolpost.configuration.settings import LimitSettings, NetworkSettings, Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.outcomes import Completed
from toolpost.contracts.source_kinds import TransportType
from toolpost.toolbox.box import Toolbox

SERVER = "bench.mcp.in_process:server"


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """All of them on whatever server was told."""
    async with AsyncExitStack() as stack:
        if target() == IN_PROCESS:
            yield [*await _in_process(stack), *await _boxes(stack)]
        else:
            yield [*await _outside(stack), *await _boxes(stack)]


async def _outside(stack: AsyncExitStack) -> list[Contender]:
    raw = await stack.enter_async_context(raw_client(target()))
    held = await stack.enter_async_context(session(target()))
    client = await stack.enter_async_context(fastmcp_client())
    return [
        *await seated(names.FLOOR, lambda: raw.call(ECHO, ARGUMENTS)),
        *await seated(names.SESSION, lambda: held.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.FASTMCP, lambda: client.call_tool(ECHO, ARGUMENTS)),
    ]


def fastmcp_client() -> Client[Any]:
    """FastMCP's client on the server that was told, as it is by default."""
    if target() != STDIO:
        return Client(target())
    program, *rest = command()
    return Client(StdioTransport(program, rest, keep_alive=False))


async def _in_process(stack: AsyncExitStack) -> list[Contender]:
    from mcp.client.client import Client as SdkClient
    from mcp.server.mcpserver import MCPServer

    from bench.mcp.in_process import echo, server

    sdk_server = MCPServer("bench", log_level="ERROR")
    sdk_server.add_tool(echo)
    sdk = await stack.enter_async_context(SdkClient(sdk_server))
    client = await stack.enter_async_context(Client(server))
    return [
        *await seated(names.FLOOR, lambda: echo(**ARGUMENTS)),
        *await seated(names.CLIENT, lambda: sdk.call_tool(ECHO, ARGUMENTS)),
        *await seated(names.CALL_TOOL, lambda: server.call_tool(ECHO, dict(ARGUMENTS))),
        *await seated(names.FASTMCP, lambda: client.call_tool(ECHO, ARGUMENTS)),
    ]


async def _boxes(stack: AsyncExitStack) -> list[Contender]:
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
    found = []
    for name, data_dir in ((names.MEMORY, None), (names.SQLITE, folder)):
        box = await stack.enter_async_context(Toolbox(settings=settings(data_dir)))
        found += await _through(box, name)
    return found


async def _through(box: Toolbox, name: str) -> list[Contender]:
    async def call() -> Completed:
        outcome = await box.call(f"srv.{ECHO}", ARGUMENTS)
        if not isinstance(outcome, Completed):
            raise RuntimeError(f"{name}: the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
        return outcome

    return await seated(name, call, settle=box.store.events.flush)


def settings(data_dir: Path | None, *, connection: str | None = None) -> Settings:
    """A box with this one source; as many calls at once as are made, since peers have no limit."""
    source = ExternalToolConfig(
        name="srv",
        transport=TransportType.MCP,
        connection=connection or _connection(),
        trust=True,
        max_concurrency=USUAL.callers,
        required=True,
    )
    return Settings(
        data_dir=data_dir,
        builtins="none",
        sources=[source],
        network=NetworkSettings(allow_private=True),
        limits=LimitSettings(absolute_max_parallel=USUAL.callers),
    )


def _connection() -> str:
    if target() == IN_PROCESS:
        return f"memory:{SERVER}"
    return shlex.join(command()) if target() == STDIO else target()
