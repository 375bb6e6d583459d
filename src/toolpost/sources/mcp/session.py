"""One session with one MCP server for one credential: negotiation, requests, detection of its end.

Below it are the connection and its transports: stdio, streamable HTTP, the older SSE, memory.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
import re
from collections import deque
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from fastmcp import Client
from fastmcp.client.transports import FastMCPTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession, MCPError
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import MCP_NAME_HEADER, encode_header_value, find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.message import SessionMessage
from mcp_types import CLIENT_CAPABILITIES_META_KEY, LOG_LEVEL_META_KEY, DiscoverResult, jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost.auth.credentials import secrets_of
from toolpost.auth.oauth.jose import dpop_nonce
from toolpost.contracts.errors import ConfigError, ToolClientError, ToolConnectionError, ToolError
from toolpost.policy.redaction import Redactor
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import Process, start
from toolpost.schema.json_values import cooperative_decoder, is_array
from toolpost.sources.mcp.elicitation import SessionCalls
from toolpost.sources.mcp.endpoint import CommandEndpoint, Endpoint, MemoryEndpoint, UrlEndpoint
from toolpost.sources.mcp.errors import (
    ErrorReportingTransport,
    split_batch,
    split_messages,
    to_tool_error,
    unreadable_error,
)
from toolpost.wire.httpx_transport import GuardedTransport
from toolpost.wire.messages import Headers

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping

    from mcp.shared.dispatcher import CallOptions, ProgressFnT

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.wire.network import NetworkPolicy

    Streams = tuple[Any, Any]

_STDERR_SHOWN = 2000
_IDLE_WAIT_S = 5.0
_MAX_PAGES = 1000
_UNSUPPORTED_STATUSES = (400, 404, 405, 406, 415)
_LEGACY_SSE = ("legacy", "sse")


class McpSession:
    """A session over one connection; requests fail at once after it has closed."""

    def __init__(self, connection: McpConnection, callbacks: Callable[[McpSession], Mapping[str, Any]]) -> None:
        self._connection = connection
        self._callbacks = callbacks(self)
        self._client: Client[Any] | None = None
        self._closing: asyncio.Task[None] | None = None
        self.closed = asyncio.Event()
        self.calls = SessionCalls()
        self._idle = asyncio.Event()
        self._incident = object()  # one failure, however many calls it ends
        self.busy = 0
        self.listing = 0  # of the busy requests, those that are nobody's call
        self.client_session: RawSession = cast("RawSession", None)

    @property
    def credential(self) -> Credential:
        """The credential that requests are sent with."""
        return self._connection.credential

    @property
    def is_closed(self) -> bool:
        """Whether the session has ended."""
        return self.closed.is_set()

    async def open(self) -> None:
        """Connect and negotiate; an error includes what the server wrote to stderr."""
        config = self._connection.config
        self._connection.on_closed = self.closed.set
        try:
            async with asyncio.timeout(config.connect_timeout_s):
                self._client = await _negotiate(self._connection, self._callbacks, begin=self.closed.clear)
                self.client_session = cast("RawSession", self._client.session)
        except TimeoutError as error:
            await self.close()
            text = _describe_failure(self._connection, f"no answer within {config.connect_timeout_s:g} s")
            raise ToolConnectionError(text, sent=False, cause=error) from error
        except BaseException as error:
            await self.close()
            if not isinstance(error, Exception):
                raise
            raise _to_connect_error(self._connection, error) from error

    @property
    def is_busy(self) -> bool:
        """Whether requests or held calls run on the session."""
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
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_progress: ProgressFnT | None = None,
        capabilities: dict[str, Any] | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Send a request and return its raw result; raise a ToolError when it fails.

        In the stateless protocol each request says what its client can do, and what it wants to hear of the log.
        """
        if self.closed.is_set():
            raise ToolConnectionError(f"the session with {self._connection.config.name!r} is over", sent=False)
        self.busy += 1
        messages_written = self._connection.messages_written
        try:
            return await self.client_session.request_raw(
                method, params, on_progress=on_progress, capabilities=capabilities, log_level=log_level
            )
        except Exception as raised:
            tool_error = await self._classify(to_tool_error(raised))
            nothing_written = messages_written is not None and self._connection.messages_written == messages_written
            if isinstance(tool_error, ToolConnectionError) and nothing_written:
                tool_error.sent = False
            raise tool_error from raised
        finally:
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
        """Request every page of a list and return the items of all pages."""
        return [item for page in await self.list_pages(method) for item in items_of(page, key)]

    async def _classify(self, tool_error: ToolError) -> ToolError:
        """Decide whether an error ends this session and return the error to raise."""
        if isinstance(tool_error, ToolConnectionError) and self._connection.session_is_connection:
            if self._is_claimed_by_peer(tool_error):
                return ToolClientError(tool_error.message, cause=tool_error)
            self.closed.set()
            tool_error.incident = self._incident
        if self._may_mean_lost_session(tool_error) and await self._is_session_lost():
            self.closed.set()
            return ToolConnectionError(
                f"the server forgot the session: {tool_error.message}", sent=False, cause=tool_error
            )
        return tool_error

    def _is_claimed_by_peer(self, tool_error: ToolError) -> bool:
        """Whether the server sent the error of a broken connection over a connection that works."""
        in_memory = isinstance(self._connection.endpoint, MemoryEndpoint)
        return isinstance(tool_error.__cause__, MCPError) and not (in_memory or self.closed.is_set())

    async def _is_session_lost(self) -> bool:
        """Whether the server also refuses a ping, so that it no longer knows the session."""
        try:
            async with asyncio.timeout(_IDLE_WAIT_S):
                await self.client_session.request_raw("ping", {})
        except TimeoutError:
            return False
        except Exception as raised:  # noqa: BLE001 - foreign code; converted to a ToolError
            return self.is_closed or self._may_mean_lost_session(to_tool_error(raised))
        return False

    def _may_mean_lost_session(self, tool_error: ToolError) -> bool:
        """Whether a refusal may mean an unknown session, as after a restart of the server."""
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
        await self.calls.cancel_all()
        client, self._client = self._client, None
        if client is not None:
            await _disconnect(client)


def _to_connect_error(connection: McpConnection, error: Exception) -> ToolError:
    tool_error = to_tool_error(error)
    tool_error.message = _describe_failure(connection, tool_error.message)
    if isinstance(tool_error, ToolConnectionError):
        tool_error.sent = False
    return tool_error


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


async def _negotiate(
    connection: McpConnection, callbacks: Mapping[str, Any], *, begin: Callable[[], None]
) -> Client[Any]:
    """Connect by the newest protocol that the configuration and the server allow; call `begin` before each try."""
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
        raise failed from None  # people expect the first one to work


def _candidates(connection: McpConnection) -> list[tuple[str, str]]:
    """List the protocol modes and HTTP transports to try, newest first."""
    protocol, endpoint = connection.config.mcp.protocol, connection.endpoint
    newest: tuple[str, str] = (protocol, "streamable_http")
    if isinstance(endpoint, CommandEndpoint) and protocol == "auto":
        return [newest, ("legacy", "")]
    if not isinstance(endpoint, UrlEndpoint) or endpoint.kind == "streamable_http":
        return [newest]
    if endpoint.kind == "sse":
        return [_LEGACY_SSE]
    return [newest, _LEGACY_SSE] if protocol in ("auto", "legacy") else [newest]


def _can_fall_back(connection: McpConnection, error: Exception) -> bool:
    """Whether to retry with the older protocol: the server exists but rejected the newer one.

    Many stdio servers of the older protocol exit when their first request is not `initialize`.
    """
    if isinstance(connection.endpoint, CommandEndpoint):
        return connection.process is not None
    return to_tool_error(error).status_code in _UNSUPPORTED_STATUSES


async def _connect(connection: McpConnection, callbacks: Mapping[str, Any], mode: str, kind: str) -> Client[Any]:
    client = Client(connection.transport(kind, callbacks), mode=mode, init_timeout=0)
    await cast("Any", client).__aenter__()
    if mode not in ("auto", "legacy"):
        try:
            await _confirm_version(client, mode)
        except BaseException:
            await _disconnect(client)
            raise
    return client


async def _confirm_version(client: Client[Any], version: str) -> None:
    """Ask the server for its capabilities in the one configured version."""
    session = client.session
    try:
        session.adopt(DiscoverResult.model_validate(await session.send_discover(version)))
    except (MCPError, ValueError, RuntimeError) as error:
        msg = f"the server does not speak {version} ({error}); leave mcp.protocol out"
        raise ToolConnectionError(msg, sent=False, cause=error) from error


async def _disconnect(client: Client[Any]) -> None:
    """Close the client; a failed one raises its failure again, which is suppressed."""
    with suppress(Exception):
        await cast("Any", client).__aexit__(None, None, None)


# ---------------------------------------------------------------- the connection

_CHUNK = 256 * 1024
_LARGE_MESSAGE = 256 * 1024
_EVENT_FRAME = 4096
_EVENTS = {"accept": "text/event-stream", "cache-control": "no-store"}
# These log headers, session ids and whole messages, tokens and arguments included. Setting a logger's own level
# still turns that on; a root logger that was set to DEBUG for other reasons does not.
_VERBOSE_LOGGERS = ("httpcore2", "mcp", "client", "fastmcp")
_QUERY = re.compile(r"(https?://[^\s?\"'<>]+)\?[^\s\"'<>]*")


class McpConnection:
    """Transport state of one connection to a server.

    `on_closed` is called when the peer has closed the connection for good. The credential's headers are read for every
    request, so a renewed token needs no new connection. `session_is_connection` says whether the session ends with the
    connection. `messages_written` counts the messages written to a process; `closed_by_peer` says that the process
    ended by itself. `network` allows addresses besides public ones and the server's own.
    """

    def __init__(
        self,
        config: ExternalToolConfig,
        endpoint: Endpoint,
        credential: Credential,
        *,
        network: NetworkPolicy,
        server: Any = None,
    ) -> None:
        self.config = config
        self.endpoint = endpoint
        self.credential = credential
        self.process: Process | None = None
        self.on_closed: Callable[[], None] = lambda: None
        self.redact = Redactor(secrets_of(config, credential)).text
        self._server = server
        self._network = network
        self.session_is_connection = True
        self.messages_written: int | None = None
        self.closed_by_peer = False

    def transport(self, kind: str, callbacks: Mapping[str, Any]) -> ClientTransport:
        """Build the client transport; `kind` selects the HTTP transport where there is a choice."""
        match self.endpoint:
            case MemoryEndpoint(target):
                return _MemoryTransport(self._server or _import_server(target), callbacks)
            case CommandEndpoint(argv):
                return _StreamTransport(lambda: self._stdio(argv), callbacks)
            case _ if kind == "sse":
                return _StreamTransport(self._sse, callbacks, legacy_only=True)
            case _:
                return _StreamTransport(self._streamable, callbacks)

    @asynccontextmanager
    async def _stdio(self, argv: tuple[str, ...]) -> AsyncGenerator[Streams]:
        environment = child_environment({**self.config.env, **self._token_variable()})
        launch = Launch(argv=argv, env=environment, cwd=self.config.cwd)
        async with await start(launch) as process:
            self.process = process
            self.messages_written, self.closed_by_peer = 0, False
            limit = self.config.mcp.max_message_bytes
            yield (
                PipeReader(process.stdout, limit=limit, on_end=self._note_closed),
                PipeWriter(process.stdin, self._count_message),
            )

    def _count_message(self) -> None:
        self.messages_written = (self.messages_written or 0) + 1

    def _token_variable(self) -> dict[str, str]:
        """Return the token as the environment variable that `token_env` names, if it names one."""
        variable = self.config.auth_config.get("token_env")
        token = self.credential.headers.get("Authorization", "").removeprefix("Bearer ")
        return {str(variable): token} if variable and token else {}

    @asynccontextmanager
    async def _streamable(self) -> AsyncGenerator[Streams]:
        self.session_is_connection = False
        async with (
            self._client(answers_in_body=True) as client,
            streamable_http_client(self._url, http_client=client, max_sse_event_size=self._event_limit) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _sse(self) -> AsyncGenerator[Streams]:
        url = self._url
        self.session_is_connection = True
        async with (
            self._client(answers_in_body=False) as client,
            client.stream("GET", url, headers=_EVENTS) as response,
        ):
            response.raise_for_status()
            reader = SseReader(response, limit=self._event_limit, on_end=self._note_closed)
            target = urljoin(url, await reader.endpoint())
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                raise ToolConnectionError(f"the server at {url} wants messages sent elsewhere, to {target}", sent=False)
            yield reader, PostWriter(client, target)

    @property
    def _url(self) -> str:
        return cast("UrlEndpoint", self.endpoint).url

    @property
    def _event_limit(self) -> int:
        """Limit of an event with several lines; a single long line is replaced before and fails only its own call."""
        return self.config.mcp.max_message_bytes + _EVENT_FRAME

    def _client(self, *, answers_in_body: bool) -> httpx2.AsyncClient:
        config = self.config
        limit = config.mcp.max_message_bytes
        return httpx2.AsyncClient(
            transport=ErrorReportingTransport(self._guarded(), limit=limit, answers_in_body=answers_in_body),
            auth=_CredentialAuth(self),
            headers={"accept-encoding": "identity", **config.headers},
            timeout=httpx2.Timeout(None, connect=config.connect_timeout_s),
            trust_env=False,
        )

    def _guarded(self) -> httpx2.AsyncBaseTransport:
        return GuardedTransport(self._network.for_source(self._url))

    def _note_closed(self) -> None:
        self.closed_by_peer = True
        self.on_closed()


class _CredentialAuth(httpx2.Auth):
    """Add the current credential to each request."""

    def __init__(self, connection: McpConnection) -> None:
        self._connection = connection
        self._nonce = ""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        credential = self._connection.credential
        request.headers.update(credential.headers)
        if credential.proof is None:
            yield request
            return
        request.headers.update(credential.proof(request.method, str(request.url), self._nonce))
        response = yield request
        nonce = dpop_nonce(Headers(tuple(response.headers.multi_items())))
        if not nonce or nonce == self._nonce:
            return
        self._nonce = nonce  # RFC 9449 section 9: required in proofs from now on
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            request.headers.update(credential.proof(request.method, str(request.url), nonce))
            yield request


class _StreamTransport(ClientTransport):
    """Run a RawSession over a pair of streams."""

    def __init__(
        self,
        streams: Callable[[], AbstractAsyncContextManager[Streams]],
        callbacks: Mapping[str, Any],
        *,
        legacy_only: bool = False,
    ) -> None:
        self._streams = streams
        self._callbacks = callbacks
        self.legacy_only = legacy_only

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[RawSession]:
        async with self._streams() as (read, write), RawSession(read, write, **self._callbacks) as session:
            yield session


class _MemoryTransport(ClientTransport):
    """Run a RawSession with a server object in this process."""

    def __init__(self, server: Any, callbacks: Mapping[str, Any]) -> None:
        self._inner = FastMCPTransport(server)
        self._callbacks = callbacks

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[RawSession]:
        options = TransportOptions(session_class=RawSession)
        async with self._inner.connect_session(transport_options=options, **self._callbacks) as session:
            yield cast("RawSession", session)


def _import_server(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"no server object {target!r}: {error}; name it memory:module:attribute") from error


class RawSession(ClientSession):
    """Client session that returns results unparsed; the catalog validates schemas and outputs."""

    async def request_raw(
        self,
        method: str,
        params: dict[str, Any],
        *,
        on_progress: ProgressFnT | None = None,
        capabilities: dict[str, Any] | None = None,
        log_level: str | None = None,
    ) -> dict[str, Any]:
        """Send one request and return its result; raise MCPError when the server or the transport fails it."""
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        self._stamp(data, options)
        if self.modern:
            meta = params["_meta"]
            if capabilities is not None:
                meta[CLIENT_CAPABILITIES_META_KEY] = capabilities
            if log_level is not None:
                meta[LOG_LEVEL_META_KEY] = log_level
            if method.startswith("tasks/"):
                options.setdefault("headers", {})[MCP_NAME_HEADER] = encode_header_value(params["taskId"])
        if on_progress is not None:
            options["on_progress"] = on_progress
        return await self._dispatcher.send_raw_request(method, data["params"], options)

    @property
    def modern(self) -> bool:
        """Whether the stateless protocol was negotiated."""
        return self.protocol_version in MODERN_PROTOCOL_VERSIONS

    def has_header_arguments(self, tool_name: str) -> bool:
        """Whether some arguments of a tool are also sent as HTTP headers."""
        return bool(self._x_mcp_header_maps.get(tool_name))

    def register_header_arguments(self, tool_name: str, schema: dict[str, Any]) -> str | None:
        """Register the arguments to send as headers; return why the tool must not be offered, if so."""
        if not self.modern:
            return None
        reason = find_invalid_x_mcp_header(schema)
        if reason is None:
            self._x_mcp_header_maps[tool_name] = x_mcp_header_map(schema)
        else:
            self._x_mcp_header_maps.pop(tool_name, None)
        return reason


class _Stream:
    """Base of both stream ends; closing is left to the transport that owns them."""

    async def aclose(self) -> None:
        pass

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()


class _Reader(_Stream):
    """Read messages one by one; `on_end` is called at the end of the stream."""

    def __init__(self, on_end: Callable[[], None]) -> None:
        self._on_end = on_end
        self._messages: deque[SessionMessage] = deque()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> SessionMessage | Exception:
        while not self._messages:
            text = await self._next_text()
            if text is None:
                self._on_end()
                raise StopAsyncIteration
            # A large message in a thread: reading it takes a while.
            large = len(text) > _LARGE_MESSAGE
            self._messages.extend(await asyncio.to_thread(_parse_large, text) if large else _parse_messages(text))
        return self._messages.popleft()

    async def receive(self) -> SessionMessage | Exception:
        try:
            return await self.__anext__()
        except StopAsyncIteration:
            raise anyio.EndOfStream from None

    async def _next_text(self) -> str | bytes | None:
        raise NotImplementedError


def _parse_messages(text: str | bytes) -> list[SessionMessage]:
    """Parse a message or a batch; skip other text that a server writes between its messages."""
    if not text.strip():
        return []
    try:
        return [SessionMessage(jsonrpc_message_adapter.validate_json(text, by_name=False))]
    except ValueError:
        raw = text if isinstance(text, bytes) else text.encode()
    if batch := split_batch(raw):
        return [message for one in batch for message in _parse_messages(one)]
    error = unreadable_error(raw)
    return [] if error is None else _parse_messages(error)


def _parse_large(text: str | bytes) -> list[SessionMessage]:
    """Parse a large message as `_parse_messages` does, but let other threads run."""
    try:
        decoded = text if isinstance(text, str) else text.decode()
        message = cooperative_decoder(decoded).decode(decoded)
        return [SessionMessage(jsonrpc_message_adapter.validate_python(message, by_name=False))]
    except (ValueError, RecursionError):
        return _parse_messages(text)


class PipeReader(_Reader):
    """Read messages from a server's stdout."""

    def __init__(self, stdout: asyncio.StreamReader, *, limit: int, on_end: Callable[[], None]) -> None:
        super().__init__(on_end)
        self._stdout = stdout
        self._lines = split_messages(limit)
        self._ready: deque[bytes] = deque()

    async def _next_text(self) -> bytes | None:
        while not self._ready:
            chunk = await self._stdout.read(_CHUNK)
            if not chunk:
                return None
            self._ready.extend(self._lines.feed(chunk))
        return self._ready.popleft()


class PipeWriter(_Stream):
    """Write messages to a server's stdin."""

    def __init__(self, stdin: asyncio.StreamWriter, on_write: Callable[[], None]) -> None:
        self._stdin = stdin
        self._on_write = on_write

    async def send(self, item: SessionMessage, /) -> None:
        line = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        transport = self._stdin.transport
        waiting = transport.get_write_buffer_size()
        if transport.is_closing():
            raise ToolConnectionError("the MCP server's process is gone", sent=False)
        try:
            self._stdin.write(line.encode() + b"\n")
            if transport.is_closing() and not waiting:
                raise ToolConnectionError("the MCP server's process is gone", sent=False)
            self._on_write()
            await self._stdin.drain()
        except (OSError, RuntimeError):
            raise anyio.BrokenResourceError from None


class SseReader(_Reader):
    """Read messages from a stream of server-sent events; the first event names the URL to post to."""

    def __init__(self, response: httpx2.Response, *, limit: int, on_end: Callable[[], None]) -> None:
        super().__init__(on_end)
        self._events: AsyncIterator[Any] = aiter(httpx2.EventSource(response, max_event_size=limit))

    async def endpoint(self) -> str:
        """Read the URL to post messages to, relative to the stream's own URL."""
        async for event in self._events:
            if event.event == "endpoint":
                return str(event.data)
        raise httpx2.RemoteProtocolError("the event stream ended before it named an endpoint")

    async def _next_text(self) -> str | None:
        try:
            async for event in self._events:
                if event.event == "message":
                    return str(event.data)
        except (httpx2.HTTPError, httpx2.StreamError, httpx2.SSEError):
            return None
        return None


class PostWriter(_Stream):
    """Post messages to a server that responds on its event stream."""

    def __init__(self, client: httpx2.AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def send(self, item: SessionMessage, /) -> None:
        body = item.message.model_dump_json(by_alias=True, exclude_unset=True)
        headers = {"content-type": "application/json"}
        response = await self._client.post(self._url, content=body, headers=headers)
        response.raise_for_status()


class _QueryFilter(logging.Filter):
    """Remove the query of every URL in a log record."""

    def filter(self, record: logging.LogRecord) -> bool:
        text = record.getMessage()
        if "?" in text:
            record.msg, record.args = _QUERY.sub(r"\1?...", text), ()
        return True


@cache
def limit_sdk_logs() -> None:
    """Keep query strings, headers and bodies out of the logs of the SDK and its HTTP client; once for the process."""
    for name in _VERBOSE_LOGGERS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        # Where nobody set logging up, Python writes warnings to stderr, for a server that misbehaves with a traceback;
        # the call's own error reports the same.
        logger.addHandler(logging.NullHandler())
    logging.getLogger("httpx2").addFilter(_QueryFilter())
