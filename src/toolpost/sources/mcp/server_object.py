"""Server objects of this process: their handlers are called over a loopback, without encoding a message."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager, nullcontext
from typing import TYPE_CHECKING, Any, cast

from mcp import MCPError
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types.version import LATEST_MODERN_VERSION
from pydantic import ValidationError

from toolpost.sources.mcp.jsonrpc import JsonRpc, Loopback, PeerMessage

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from mcp.server import Server
    from mcp_types import InitializeRequestParams

    from toolpost.sources.mcp.jsonrpc import Link


@asynccontextmanager
async def serve_in_process(server: Any) -> AsyncGenerator[Link]:
    """Serve a FastMCP server, or one of the SDK, and yield the client's end of the link to it."""
    lowlevel: Server[Any] = getattr(server, "_mcp_server", None) or getattr(server, "_lowlevel_server", server)
    lifespan = getattr(server, "_lifespan_manager", nullcontext)
    link = Loopback()
    async with lifespan(), lowlevel.lifespan(lowlevel) as state:
        rpc = JsonRpc(link.other)
        handlers = _Handlers(lowlevel, state, rpc)
        running = asyncio.create_task(rpc.run(handlers.on_request, handlers.on_notify))
        await asyncio.sleep(0)  # it runs
        try:
            yield link
        finally:
            running.cancel()
            await asyncio.wait([running])
            await handlers.close()


class _Handlers:
    """Handlers of a server's requests, in the era that the client opens with."""

    def __init__(self, server: Server[Any], state: Any, rpc: JsonRpc) -> None:
        self._server = server
        self._state = state
        self._rpc = rpc
        self._outbound = NotifyOnlyOutbound(rpc)
        self._handshake: ServerRunner[Any] | None = None
        self._envelope: tuple[str, Any, Any] | None = None
        self._client: InitializeRequestParams | None = None

    async def on_request(self, context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        if method == "initialize" and self._handshake is None:
            self._handshake = ServerRunner(self._server, Connection.for_loop(self._rpc), self._state)
        if self._handshake is not None:
            return await self._handshake.on_request(context, method, params)
        route = classify_inbound_request({"method": method, "params": params})
        if isinstance(route, InboundLadderRejection):
            raise MCPError(code=route.code, message=route.message, data=route.data)
        connection = self._connect(route.protocol_version, route.client_info, route.client_capabilities)
        cast("PeerMessage", context).may_ask = False  # the stateless protocol has no requests of servers
        try:
            return await ServerRunner(self._server, connection, self._state).on_request(context, method, params)
        except (MCPError, ValidationError):
            raise
        except Exception as raised:
            error = modern_error_data(raised)
            raise MCPError(code=error.code, message=error.message, data=error.data) from raised
        finally:
            await aclose_shielded(connection)

    def _connect(self, *envelope: *tuple[str, Any, Any]) -> Connection:
        """Return the connection of one request, whose envelope is only validated where it differs from the last one."""
        if envelope != self._envelope:
            self._envelope, self._client = envelope, Connection.from_envelope(*envelope).client_params
        if self._client is None:
            return Connection.from_envelope(*envelope, outbound=self._outbound)
        connection = Connection(self._outbound, protocol_version=envelope[0], client_params=self._client)
        connection.initialized.set()
        return connection

    async def on_notify(self, context: Any, method: str, params: Mapping[str, Any] | None) -> None:
        if self._handshake is not None:
            await self._handshake.on_notify(context, method, params)
            return
        connection = Connection.from_envelope(LATEST_MODERN_VERSION, None, None, outbound=self._outbound)
        try:
            await ServerRunner(self._server, connection, self._state).on_notify(context, method, params)
        finally:
            await aclose_shielded(connection)

    async def close(self) -> None:
        if self._handshake is not None:
            await aclose_shielded(self._handshake.connection)
