"""Server objects of this process: their handlers are called over a loopback, without encoding a message.

A tool call goes directly to the server's middleware and handler. All other requests go to the SDK's kernel, which
checks them and their results as for a remote client.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, nullcontext
from copy import copy
from typing import Any, NamedTuple, Self, cast

from fastmcp.telemetry import suppress_fastmcp_telemetry
from mcp import MCPError, ServerSession
from mcp.server import Server, ServerRequestContext
from mcp.server.connection import Connection, NotifyOnlyOutbound
from mcp.server.context import CallNext, ServerMiddleware
from mcp.server.runner import ServerRunner, aclose_shielded, modern_error_data
from mcp.shared.inbound import InboundLadderRejection, classify_inbound_request
from mcp_types import (
    CLIENT_CAPABILITIES_META_KEY,
    CLIENT_INFO_META_KEY,
    CORE_RESULT_TYPES,
    INTERNAL_ERROR,
    PROTOCOL_VERSION_META_KEY,
    CallToolRequestParams,
    CallToolResult,
    ErrorData,
)
from mcp_types.methods import serialize_server_result
from mcp_types.version import LATEST_MODERN_VERSION, MODERN_PROTOCOL_VERSIONS
from pydantic import BaseModel, ValidationError

from toolpost.contracts.errors import ConfigError
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.mcp.jsonrpc import JsonRpc, Link, PendingRequest
from toolpost.sources.mcp.peer_requests import Message, PeerMessage
from toolpost.sources.mcp.sdk_seam import lifespan_of, lowlevel_server
from toolpost.wire.tracing import find_tracer

_CALL = "tools/call"
_LIBRARIES = ("mcp.", "fastmcp.")
_ENVELOPE = (PROTOCOL_VERSION_META_KEY, CLIENT_INFO_META_KEY, CLIENT_CAPABILITIES_META_KEY)

_log = logging.getLogger(__name__)


@asynccontextmanager
async def serve_in_process(server: Any) -> AsyncGenerator[Link]:
    """Serve a FastMCP server, or one of the SDK, and yield the client's end of the link to it."""
    lowlevel = lowlevel_server(server)
    if lowlevel is None:
        kind = f"{type(server).__module__}.{type(server).__qualname__}"
        raise ConfigError(
            f"{kind} is not a server object that can run in this process; start it as a command or by URL"
        )
    link = Loopback()
    async with lifespan_of(server)(), lowlevel.lifespan(lowlevel) as state:
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


class Loopback:
    """One end of a link within this process: messages are passed on unchanged."""

    def __init__(self, other: Loopback | None = None) -> None:
        self._rpc: JsonRpc | None = None
        self.other: Loopback = other or Loopback(self)

    async def run(self, rpc: JsonRpc) -> None:
        """Wait for the end; the other end delivers its messages directly."""
        self._rpc = rpc
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            self._rpc = None

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        self._hand_over({**message, "params": _copy(message.get("params"))})

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        self._hand_over(message)

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        self._hand_over(notice)

    def hang_up(self) -> None:
        self._rpc = None

    def _hand_over(self, message: Message) -> None:
        rpc = self.other._rpc  # noqa: SLF001 - the same class
        if rpc is not None:
            rpc.receive(message)


def _copy(value: Any) -> Any:
    """Copy JSON data, because neither end may change the data of the other."""
    if is_object(value):
        return {name: _copy(member) for name, member in value.items()}
    if is_array(value):
        return [_copy(item) for item in value]
    return value


class _Handlers:
    """Handlers of a server's requests, in the era that the client opens with."""

    def __init__(self, server: Server[Any], state: Any, rpc: JsonRpc) -> None:
        self._server = server
        self._state = state
        self._rpc = rpc
        self._outbound = NotifyOnlyOutbound(rpc)
        self._handshake: ServerRunner[Any] | None = None
        self._envelope: tuple[Any, ...] | None = None
        self._connection: _Connection | None = None

    async def on_request(self, context: Any, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        if method == "initialize" and self._handshake is None:
            self._handshake = ServerRunner(self._server, Connection.for_loop(self._rpc), self._state)
        if self._handshake is not None:
            return await _handle(self._handshake, context, method, params)
        connection = self._connect(method, params)
        cast("PeerMessage", context).may_request = False  # the stateless protocol has no requests of servers
        try:
            return await _handle(ServerRunner(self._server, connection, self._state), context, method, params)
        except (MCPError, ValidationError):
            raise
        except Exception as raised:
            error = modern_error_data(raised)
            raise MCPError(code=error.code, message=error.message, data=error.data) from raised
        finally:
            await connection.close()

    def _connect(self, method: str, params: Mapping[str, Any] | None) -> _Connection:
        """Return the connection of one request; its envelope is validated where it differs from the last one's."""
        meta: Mapping[str, Any] = (params or {}).get("_meta") or {}
        envelope = tuple(meta.get(key) for key in _ENVELOPE)
        if self._connection is None or envelope != self._envelope:
            route = classify_inbound_request({"method": method, "params": params})
            if isinstance(route, InboundLadderRejection):
                raise MCPError(code=route.code, message=route.message, data=route.data)
            self._envelope = envelope
            opened = _Connection.from_envelope(
                route.protocol_version, route.client_info, route.client_capabilities, outbound=self._outbound
            )
            self._connection = cast("_Connection", opened)
        return self._connection.for_request()

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


class _Connection(Connection):
    """The connection of one request; its exit stack is created on first use."""

    cleanup: AsyncExitStack | None = None

    @property
    def exit_stack(self) -> AsyncExitStack:
        if self.cleanup is None:
            self.cleanup = AsyncExitStack()
        return self.cleanup

    @exit_stack.setter
    def exit_stack(self, stack: AsyncExitStack) -> None:  # pyright: ignore[reportIncompatibleVariableOverride] - as the variable
        self.cleanup = stack

    def for_request(self) -> Self:
        """Return a connection with the same peer and nothing of another request."""
        connection = copy(self)
        connection.state, connection.cleanup = {}, None
        return connection

    async def close(self) -> None:
        """Run the cleanup of handlers, if any: an empty shield takes longer than most tools."""
        if self.cleanup is not None:
            await aclose_shielded(self)


# ---------------------------------------------------------------- calls of tools


async def _handle(
    kernel: ServerRunner[Any], context: PeerMessage, method: str, params: Mapping[str, Any] | None
) -> dict[str, Any]:
    """Handle a request: a tool call directly if the result is the same, any other by the kernel of the SDK."""
    call = _read_call(kernel.server, params) if method == _CALL and kernel.connection.initialize_accepted else None
    if call is None:
        return await kernel.on_request(cast("Any", context), method, params)
    return await _run_call(kernel, context, call)


class _ToolCall(NamedTuple):
    """The parameters of a call as they came and parsed, and the handler that takes them."""

    raw: Mapping[str, Any]
    parsed: CallToolRequestParams
    handler: Any


def _read_call(server: Server[Any], params: Mapping[str, Any] | None) -> _ToolCall | None:
    """Parse the parameters of a call; return None if the kernel has to handle it.

    That is the case if the parameters are invalid, which middleware must see, if the handler takes other parameters,
    and if custom middleware may turn one request into another.
    """
    entry = server.get_request_handler(_CALL)
    if params is None or entry is None or entry.params_type is not CallToolRequestParams:
        return None
    if not all(type(one).__module__.startswith(_LIBRARIES) for one in server.middleware):
        return None
    try:
        return _ToolCall(params, CallToolRequestParams.model_validate(params, by_name=False), entry.handler)
    except ValidationError:
        return None


async def _run_call(kernel: ServerRunner[Any], context: PeerMessage, call: _ToolCall) -> dict[str, Any]:
    """Run a call through the middleware of its server, and return the result as data."""
    connection, meta = kernel.connection, call.parsed.meta
    version = connection.protocol_version

    async def handle(request: ServerRequestContext[Any, Any]) -> dict[str, Any]:
        same = request.params is call.raw
        parsed = call.parsed if same else CallToolRequestParams.model_validate(request.params, by_name=False)
        return _to_data(await call.handler(request, parsed), version)

    chain: CallNext = handle
    for middleware in reversed(kernel.server.middleware):
        chain = _wrap(middleware, chain)
    request = ServerRequestContext(
        session=ServerSession(context, connection, request_meta=meta),
        lifespan_context=kernel.lifespan_state,
        protocol_version=version,
        method=_CALL,
        params=call.raw,
        request_id=context.request_id,
        meta=meta,
    )
    # Without a tracer provider: describing spans is a sixth of the work of FastMCP.
    with suppress_fastmcp_telemetry() if find_tracer() is None else nullcontext():
        result = await chain(request)
    return result if isinstance(result, dict) else _to_data(result, version)


def _wrap(middleware: ServerMiddleware[Any], call_next: CallNext) -> CallNext:
    return lambda request: middleware(request, call_next)


def _to_data(result: object, version: str) -> dict[str, Any]:
    """Return the result of a handler as the data of a response; raise MCPError if it is invalid.

    A CallToolResult was validated when it was created. Any other result is checked as by the kernel.
    """
    if isinstance(result, ErrorData):
        raise MCPError.from_error_data(result)
    if isinstance(result, BaseModel):
        data = result.model_dump(by_alias=True, mode="json", exclude_none=True)
    elif result is None or is_object(result):
        data = dict(result or {})
    else:
        raise TypeError(f"handler returned {type(result).__name__}; expected BaseModel, dict, or None")
    if isinstance(result, CallToolResult) or _is_of_extension(data, version):
        return data
    try:
        return serialize_server_result(_CALL, version, data)
    except ValidationError as error:
        _log.warning("a tool's handler returned an invalid result: %s", error.errors(include_input=False))
        raise MCPError(code=INTERNAL_ERROR, message="Handler returned an invalid result") from None


def _is_of_extension(data: Mapping[str, Any], version: str) -> bool:
    """Return whether a result is of a kind that an extension of the stateless protocol defines, such as a task."""
    kind = data.get("resultType")
    return isinstance(kind, str) and kind not in CORE_RESULT_TYPES and version in MODERN_PROTOCOL_VERSIONS
