"""One session with one MCP server for one credential: negotiation, requests, detection of its end."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any, NamedTuple, cast

from fastmcp import Client
from mcp import ClientSession, MCPError
from mcp.shared.dispatcher import CallOptions
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value, find_invalid_x_mcp_header, x_mcp_header_map
from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, DiscoverResult, Request
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import TypeAdapter

from toolpost.contracts.calls import Credential
from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.schema.json_values import is_array
from toolpost.sources.mcp.connection import McpConnection
from toolpost.sources.mcp.endpoint import CommandEndpoint, UrlEndpoint
from toolpost.sources.mcp.errors import to_tool_error
from toolpost.sources.mcp.jsonrpc import JsonRpc, OnProgress, PendingRequest
from toolpost.sources.mcp.options import McpOptions
from toolpost.sources.mcp.sdk_seam import Parts
from toolpost.sources.mcp.session_calls import SessionCalls

_STDERR_SHOWN = 2000
_IDLE_WAIT_S = 5.0
_MAX_PAGES = 1000
_UNSUPPORTED_STATUSES = (400, 404, 405, 406, 415)
_LEGACY_SSE = ("legacy", "sse")
_RESULT: TypeAdapter[Any] = TypeAdapter(dict[str, Any])


class McpSession:
    """A session over one connection; requests fail immediately after it has closed."""

    def __init__(self, connection: McpConnection, callbacks: Callable[[McpSession], Mapping[str, Any]]) -> None:
        self._connection = connection
        self._callbacks = callbacks(self)
        self._client: Client[Any] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        self.calls = SessionCalls()
        self._idle = asyncio.Event()
        self._incident = object()  # identifies one failure that ends several calls
        self.busy = 0
        self.listing = 0  # of the busy requests, those that do not belong to a call
        self.client_session: RawSession = cast("RawSession", None)

    @property
    def credential(self) -> Credential:
        return self._connection.credential

    @property
    def is_closed(self) -> bool:
        return self.closed.is_set()

    @property
    def stderr_tail(self) -> str:
        process = self._connection.process
        return "" if process is None else self._connection.redact(process.stderr_tail)

    async def open(self) -> None:
        """Connect and negotiate; an error includes what the server wrote to stderr."""
        config = self._connection.config
        self._connection.on_closed = self.closed.set
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                self._client = await _negotiate(self._connection, self._callbacks, begin=self.closed.clear)
                self.client_session = cast("RawSession", self._client.session)
                self._connection.is_negotiated = True
        except TimeoutError as error:
            await self.close()
            text = _describe_failure(self._connection, f"no answer within {config.connect_timeout_s:g} s")
            raise ToolConnectionError(text, sent=False, cause=error) from error
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            tool_error = to_tool_error(error)
            tool_error.message = _describe_failure(self._connection, tool_error.message)
            if isinstance(tool_error, ToolConnectionError):
                tool_error.sent = False
            raise tool_error from error

    @property
    def is_busy(self) -> bool:
        return bool(self.busy or self.calls)

    def use_credential(self, credential: Credential) -> bool:
        """Send requests with a renewed token from now on; False when that needs a new connection."""
        connection = self._connection
        if connection.credential is credential or connection.credential.headers == credential.headers:
            return True
        if isinstance(connection.endpoint, CommandEndpoint) and "token_env" in connection.config.auth_config:
            return False  # a process reads its environment only when it starts
        connection.credential = credential
        return True

    async def request(
        self, method: str, params: dict[str, Any], options: RequestOptions | None = None
    ) -> dict[str, Any]:
        """Send a request and return its raw result; raise a ToolError when it fails."""
        return cast("dict[str, Any]", await self.wait(await self.start(method, params, options)))

    async def start(self, method: str, params: dict[str, Any], options: RequestOptions | None = None) -> PendingRequest:
        """Send a request without waiting for its result; raise a ToolError when it cannot be sent."""
        if self.closed.is_set():
            raise ToolConnectionError(f"the session with {self._connection.config.name!r} is over", sent=False)
        try:
            pending = self.client_session.begin(method, params, options)
        except Exception as raised:
            raise await self._classify(to_tool_error(raised)) from raised
        pending.on_end = self._on_end
        self.busy += 1
        return pending

    async def wait(self, pending: PendingRequest) -> object:
        """Wait for the result of a request, or for what interrupts it; raise a ToolError when it fails."""
        try:
            return await pending.future
        except asyncio.CancelledError:
            self.abandon(pending)
            raise
        except Exception as raised:
            raise await self._classify(to_tool_error(raised)) from raised

    def abandon(self, pending: PendingRequest) -> None:
        """Stop waiting for a request, and let the server know."""
        gone = ToolConnectionError("the session was closed while the call was running")
        self.client_session.rpc.abandon(pending, "caller cancelled", gone)

    def _on_end(self, _: PendingRequest) -> None:
        self.busy -= 1
        if not self.busy and self.closed.is_set():
            self._idle.set()

    async def list_pages(self, method: str) -> list[dict[str, Any]]:
        """Request every page of a list; the last page still has a cursor when the server never ends the list."""
        pages: list[dict[str, Any]] = []
        seen: set[str] = set()
        cursor: str | None = None
        while True:
            self.listing += 1
            try:
                page = await self.request(method, {} if cursor is None else {"cursor": cursor})
            finally:
                self.listing -= 1
            pages.append(page)
            cursor = page.get("nextCursor")
            if not isinstance(cursor, str) or not cursor or cursor in seen or len(pages) == _MAX_PAGES:
                return pages
            seen.add(cursor)

    async def list_all(self, method: str, key: str) -> list[Any]:
        return [item for page in await self.list_pages(method) for item in items_of(page, key)]

    async def _classify(self, tool_error: ToolError) -> ToolError:
        """Decide whether an error ends this session and return the error to raise."""
        if isinstance(tool_error, ToolConnectionError) and self._connection.session_is_connection:
            self.closed.set()
            tool_error.incident = self._incident
        if self._may_mean_lost_session(tool_error) and await self._is_session_lost():
            self.closed.set()
            return ToolConnectionError(
                f"the server no longer knows the session: {tool_error.message}", sent=False, cause=tool_error
            )
        return tool_error

    async def _is_session_lost(self) -> bool:
        """Return whether the server also refuses a ping, because it no longer knows the session."""
        try:
            async with asyncio.timeout(_IDLE_WAIT_S):
                await self.client_session.rpc.send_raw_request("ping", None)
        except TimeoutError:
            return False
        except Exception as raised:  # noqa: BLE001 - foreign code; converted to a ToolError
            return self.is_closed or self._may_mean_lost_session(to_tool_error(raised))
        return False

    def _may_mean_lost_session(self, tool_error: ToolError) -> bool:
        """Return whether a refusal may mean an unknown session, as after a restart of the server."""
        if not isinstance(self._connection.endpoint, UrlEndpoint) or self.client_session.modern:
            return False
        return tool_error.status_code == 404 or (
            tool_error.status_code == 400 and "session" in tool_error.message.lower()
        )

    async def close_when_idle(self) -> None:
        """Close an ended session after its last requests had time to return."""
        try:
            if self.busy:
                await asyncio.wait_for(self._idle.wait(), _IDLE_WAIT_S)
        except TimeoutError:
            pass
        finally:
            await self.close()

    async def close(self) -> None:
        """Close the session and its connection; safe to call twice and from any task."""
        self.closed.set()
        if self._closing is None:
            self._closing = asyncio.get_running_loop().create_task(self._close())
        await asyncio.shield(self._closing)

    async def _close(self) -> None:
        self.calls.cancel_all()
        client, self._client = self._client, None
        if client is not None:
            await _disconnect(client)


class RequestOptions(NamedTuple):
    """Options of a request besides its parameters.

    In the stateless protocol each request declares the capabilities and the log level of its client.
    """

    on_progress: OnProgress | None = None
    capabilities: dict[str, Any] | None = None
    log_level: str | None = None


class RawSession(ClientSession):
    """Client session that returns results unparsed; the catalog validates schemas and outputs."""

    def __init__(self, rpc: JsonRpc, callbacks: Mapping[str, Any]) -> None:
        super().__init__(dispatcher=rpc, **callbacks)
        self.rpc = rpc

    def begin(self, method: str, params: dict[str, Any], options: RequestOptions | None) -> PendingRequest:
        """Send one request; its future gets the result, or an MCPError when the server fails it."""
        on_progress, capabilities, log_level = options or RequestOptions()
        stamp = getattr(self, Parts.STAMP.name, None) or Parts.STAMP.of(self)
        if stamp is None:
            return self.rpc.follow(method, self._send_by_sdk(method, params, on_progress))
        stamped: CallOptions = {}
        stamp({"method": method, "params": params}, stamped)
        if self.modern:
            meta = params["_meta"]
            if capabilities is not None:
                meta[CLIENT_CAPABILITIES_META_KEY] = capabilities
            if log_level is not None:
                meta[LOG_LEVEL_META_KEY] = log_level
            if method.startswith("tasks/"):
                stamped.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(params["taskId"])
        return self.rpc.begin(method, params, headers=stamped.get("headers"), on_progress=on_progress)

    async def _send_by_sdk(self, method: str, params: dict[str, Any], on_progress: OnProgress | None) -> dict[str, Any]:
        """Send a request by the public method of the SDK, which stamps it and checks its result."""

        async def report(progress: float, total: float | None, message: str | None) -> None:
            if on_progress is not None:
                on_progress(progress, total, message)

        kind = _TaskRequest if method.startswith("tasks/") else _PlainRequest
        request = kind(method=method, params=params)
        progress = None if on_progress is None else report
        return cast("dict[str, Any]", await self.send_request(request, _RESULT, progress_callback=progress))

    @property
    def modern(self) -> bool:
        """Whether the stateless protocol was negotiated."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    def has_header_arguments(self, tool_name: str) -> bool:
        """Whether some arguments of a tool are also sent as HTTP headers."""
        return bool(self.rpc.header_arguments.get(tool_name))

    def register_header_arguments(self, tool_name: str, schema: dict[str, Any]) -> str | None:
        """Register the arguments to send as headers; return why the tool must not be offered, if so."""
        if not self.modern:
            return None
        reason = find_invalid_x_mcp_header(schema)
        if reason is None:
            self.rpc.header_arguments[tool_name] = x_mcp_header_map(schema)
        else:
            self.rpc.header_arguments.pop(tool_name, None)
        return reason


class _PlainRequest(Request[dict[str, Any], str]):
    """Any request, as it is on the wire."""


class _TaskRequest(_PlainRequest):
    """A request about a task; the ID of the task is also sent as a header."""

    name_param = "taskId"


async def _negotiate(
    connection: McpConnection, callbacks: Mapping[str, Any], *, begin: Callable[[], None]
) -> Client[Any]:
    """Connect by the newest protocol that the configuration and the server allow; call `begin` before each attempt."""
    first, *others = _candidates(connection)
    begin()
    try:
        return await _connect(connection, callbacks, *first)
    except Exception as error:
        if not (others and _can_fall_back(connection, error)):
            raise
        failed = error
    begin()
    try:
        return await _connect(connection, callbacks, *others[0])
    except Exception:  # noqa: BLE001 - foreign code; the first failure is raised
        raise failed from None  # users expect the first one to succeed


def _candidates(connection: McpConnection) -> list[tuple[str, str]]:
    """List the protocol modes and HTTP transports to try, newest first."""
    protocol, endpoint = connection.config.read_options(McpOptions).protocol, connection.endpoint
    newest: tuple[str, str] = (protocol, "streamable_http")
    if isinstance(endpoint, CommandEndpoint) and protocol == "auto":
        return [newest, ("legacy", "")]
    if not isinstance(endpoint, UrlEndpoint) or endpoint.kind == "streamable_http":
        return [newest]
    if endpoint.kind == "sse":
        return [_LEGACY_SSE]
    return [newest, _LEGACY_SSE] if protocol in ("auto", "legacy") else [newest]


def _can_fall_back(connection: McpConnection, error: Exception) -> bool:
    """Return whether to retry with the older protocol: the server exists but rejected the newer one.

    Many stdio servers of the older protocol exit when their first request is not `initialize`.
    """
    if isinstance(connection.endpoint, CommandEndpoint):
        return connection.process is not None
    return to_tool_error(error).status_code in _UNSUPPORTED_STATUSES


async def _connect(connection: McpConnection, callbacks: Mapping[str, Any], mode: str, kind: str) -> Client[Any]:
    client = Client(connection.transport(kind, partial(RawSession, callbacks=callbacks)), mode=mode, init_timeout=0)
    await cast("Any", client).__aenter__()
    if mode not in ("auto", "legacy"):
        try:
            session = client.session
            try:
                session.adopt(DiscoverResult.model_validate(await session.send_discover(mode)))
            except (MCPError, ValueError, RuntimeError) as error:
                msg = f"the server does not support {mode} ({error}); leave options.protocol out"
                raise ToolConnectionError(msg, sent=False, cause=error) from error
        except BaseException:
            await _disconnect(client)
            raise
    return client


async def _disconnect(client: Client[Any]) -> None:
    """Close the client; a failed one raises its failure again, which is suppressed."""
    with suppress(Exception):
        await cast("Any", client).__aexit__(None, None, None)


def _describe_failure(connection: McpConnection, text: str) -> str:
    """Describe a failed connect, with the exit status and stderr of the server's process."""
    process = connection.process
    message = connection.redact(f"cannot connect to MCP server {connection.config.name!r}: {text}")
    if process is None:
        return message
    if connection.closed_by_peer and process.returncode is not None:
        message += f"; its process ended with status {process.returncode}"
    tail = connection.redact(process.stderr_tail.strip())[-_STDERR_SHOWN:]
    return f"{message}; it wrote: {tail}" if tail else message


def items_of(page: dict[str, Any], key: str) -> list[Any]:
    """Return the items of a page; none when the page has no list."""
    items: Any = page.get(key)
    return items if is_array(items) else []
