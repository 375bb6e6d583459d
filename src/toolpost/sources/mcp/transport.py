"""Connections to an MCP server: parse where it is, and speak stdio, streamable HTTP, the older SSE or memory."""

from __future__ import annotations

import importlib
import logging
import re
import shlex
from collections import deque
from contextlib import asynccontextmanager
from functools import cache
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast
from urllib.parse import urljoin, urlsplit

import anyio
import httpx2
from fastmcp.client.transports import FastMCPTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.inbound import find_invalid_x_mcp_header, x_mcp_header_map
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost.auth.credentials import secrets_of
from toolpost.auth.oauth.jose import dpop_nonce
from toolpost.contracts.config import AuthType, McpTransport
from toolpost.contracts.errors import ConfigError, ToolConnectionError
from toolpost.policy.redaction import Redactor
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import start
from toolpost.sources.mcp.errors import ErrorReportingTransport, split_batch, split_messages, unreadable_error
from toolpost.wire.httpx_transport import GuardedTransport
from toolpost.wire.messages import Headers

if TYPE_CHECKING:
    import asyncio
    from collections.abc import AsyncGenerator, AsyncIterator, Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager
    from types import TracebackType

    from mcp.shared.dispatcher import CallOptions, ProgressFnT

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.processes.process import Process
    from toolpost.wire.network import NetworkPolicy

    Streams = tuple[Any, Any]

MEMORY = "memory:"


class CommandEndpoint(NamedTuple):
    """A program that speaks MCP over stdin and stdout."""

    argv: tuple[str, ...]


class UrlEndpoint(NamedTuple):
    """An HTTP URL; kind `auto` tries streamable HTTP first and the older SSE transport second."""

    url: str
    kind: Literal["auto", "streamable_http", "sse"]


class MemoryEndpoint(NamedTuple):
    """A server object in this process, named `module:attribute`."""

    target: str


Endpoint = CommandEndpoint | UrlEndpoint | MemoryEndpoint


def parse_endpoint(config: ExternalToolConfig) -> Endpoint:
    """Parse the connection of a source; raise ConfigError when it does not fit the transport."""
    connection, transport = config.connection.strip(), config.mcp.transport
    if transport is McpTransport.AUTO:
        transport = _detect_transport(connection)
    if transport is McpTransport.MEMORY:
        return MemoryEndpoint(connection.removeprefix(MEMORY))
    if transport is McpTransport.STDIO:
        _check_credential(config)
        return CommandEndpoint(_split_command(connection, config.name))
    _check_url(connection, config.name, transport)
    if transport is McpTransport.SSE and config.mcp.protocol not in ("auto", "legacy"):
        msg = (
            f"source {config.name!r}: the SSE transport never carried protocol {config.mcp.protocol}; drop one of them"
        )
        raise ConfigError(msg)
    kinds: dict[McpTransport, Literal["streamable_http", "sse"]] = {
        McpTransport.STREAMABLE_HTTP: "streamable_http",
        McpTransport.SSE: "sse",
    }
    explicit = config.mcp.transport is not McpTransport.AUTO
    return UrlEndpoint(connection, kinds[transport] if explicit else "auto")


def is_remote(config: ExternalToolConfig) -> bool:
    """Return whether a server is reached over the network."""
    return isinstance(parse_endpoint(config), UrlEndpoint)


def describe_server(config: ExternalToolConfig) -> str:
    """Describe the server for people by its command or URL."""
    match parse_endpoint(config):
        case CommandEndpoint(argv):
            return f"the MCP server `{shlex.join(argv)}`"
        case UrlEndpoint(url):
            return f"the MCP server at {url}"
        case MemoryEndpoint(target):
            return f"the MCP server {target} in this process"


def _check_credential(config: ExternalToolConfig) -> None:
    """Reject a credential that a program cannot receive: it reads no headers, only the variable `token_env`."""
    if config.auth_type is AuthType.NONE:
        return
    if config.auth_type not in (AuthType.BEARER, AuthType.OAUTH2_USER):
        raise ConfigError(
            f"source {config.name!r}: a program reads no headers, so auth_type {config.auth_type.value} "
            "cannot reach it; hand the secret on in a variable, such as env: {API_KEY: '${API_KEY}'}"
        )
    if not config.auth_config.get("token_env"):
        raise ConfigError(
            f"source {config.name!r}: a program gets its token in a variable; "
            "write the one that it reads into auth_config, such as token_env: GITHUB_PERSONAL_ACCESS_TOKEN"
        )


def _detect_transport(connection: str) -> McpTransport:
    if connection.startswith(MEMORY):
        return McpTransport.MEMORY
    return McpTransport.STREAMABLE_HTTP if _scheme(connection) in ("http", "https") else McpTransport.STDIO


def _scheme(connection: str) -> str:
    head, separator, _ = connection.partition("://")
    return head.lower() if separator and " " not in head else ""


def _split_command(connection: str, source: str) -> tuple[str, ...]:
    """Split a command line as a shell would, without running a shell."""
    if (scheme := _scheme(connection)) and "/" not in scheme:
        raise ConfigError(f"source {source!r}: {connection!r} is an address, not a command; leave mcp.transport out")
    try:
        argv = tuple(shlex.split(connection))
    except ValueError as error:
        raise ConfigError(f"source {source!r}: the command {connection!r} cannot be split: {error}") from error
    if not argv:
        raise ConfigError(f"source {source!r}: the connection is empty; give a command or a URL")
    return argv


def _check_url(connection: str, source: str, transport: McpTransport) -> None:
    if _scheme(connection) not in ("http", "https") or not urlsplit(connection).hostname:
        msg = f"source {source!r}: mcp.transport {transport.value} needs an http(s) URL, not {connection!r}"
        raise ConfigError(msg)
    if urlsplit(connection).username is not None:
        msg = f"source {source!r}: a URL must not carry a name or password; use auth_type basic"
        raise ConfigError(msg)


_CHUNK = 256 * 1024
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

    def _guarded(self) -> httpx2.AsyncHTTPTransport:
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
        self, method: str, params: dict[str, Any], *, on_progress: ProgressFnT | None = None
    ) -> dict[str, Any]:
        """Send one request and return its result; raise MCPError when the server or the transport fails it."""
        data: dict[str, Any] = {"method": method, "params": params}
        options: CallOptions = {}
        self._stamp(data, options)
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

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
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
            self._messages.extend(_parse_messages(text))
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
