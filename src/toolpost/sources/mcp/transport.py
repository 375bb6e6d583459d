"""Opens the way to an MCP server and negotiates a session over it."""

from __future__ import annotations

import importlib
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, cast
from urllib.parse import urljoin, urlsplit

import httpx2
from fastmcp.client.transports import FastMCPTransport
from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp.client.streamable_http import streamable_http_client

from toolpost.auth.oauth.dpop import nonce_in
from toolpost.auth.static import secrets_of
from toolpost.contracts.errors import ConfigError, ToolConnectionError
from toolpost.policy.redaction import Redactor
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import start
from toolpost.sources.mcp.endpoint import CommandEndpoint, MemoryEndpoint
from toolpost.sources.mcp.errors import TellingTransport
from toolpost.sources.mcp.raw_session import RawSession
from toolpost.sources.mcp.streams import EventReader, PipeReader, PipeWriter, Poster
from toolpost.wire.headers import Headers
from toolpost.wire.http import http_transport

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Generator, Mapping
    from contextlib import AbstractAsyncContextManager

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.processes.process import Process
    from toolpost.sources.mcp.endpoint import Endpoint
    from toolpost.wire.network import NetworkPolicy

    Streams = tuple[Any, Any]


class Way:
    """One connection's way to a server; it knows what only the transport can know.

    `lost` is called when the other side is gone for good. The credential's headers are
    read for every request, so a renewed token needs no new connection.
    `session_is_connection` says whether the one ends with the other. `written` counts the
    messages that a process was given, where there is one; `hung_up` says that it ended, not we. `network` says what
    may be reached besides public addresses and the server's own.
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
        self.lost: Callable[[], None] = lambda: None
        self.conceal = Redactor(secrets_of(config, credential)).text
        self._server = server
        self._network = network
        self.session_is_connection = True
        self.written: int | None = None
        self.hung_up = False

    def transport(self, kind: str, callbacks: Mapping[str, Any]) -> ClientTransport:
        """What a client connects through; `kind` settles which HTTP transport, where there is a choice."""
        match self.endpoint:
            case MemoryEndpoint(target):
                return _InMemory(self._server or _imported(target), callbacks)
            case CommandEndpoint(argv):
                return _OverStreams(lambda: self._pipes(argv), callbacks)
            case _ if kind == "sse":
                return _OverStreams(self._events, callbacks, legacy_only=True)
            case _:
                return _OverStreams(self._streamable, callbacks)

    @asynccontextmanager
    async def _pipes(self, argv: tuple[str, ...]) -> AsyncGenerator[Streams]:
        environment = child_environment({**self.config.env, **self._token_variable()})
        launch = Launch(argv=argv, env=environment, cwd=self.config.cwd)
        async with await start(launch) as process:
            self.process = process
            self.written, self.hung_up = 0, False
            limit = self.config.mcp.max_message_bytes
            yield PipeReader(process.stdout, limit=limit, ended=self._lost), PipeWriter(process.stdin, self._wrote)

    def _wrote(self) -> None:
        self.written = (self.written or 0) + 1

    def _token_variable(self) -> dict[str, str]:
        """A token for a server that takes it from its environment, where the configuration names the variable."""
        variable = self.config.auth_config.get("token_env")
        token = self.credential.headers.get("Authorization", "").removeprefix("Bearer ")
        return {str(variable): token} if variable and token else {}

    @asynccontextmanager
    async def _streamable(self) -> AsyncGenerator[Streams]:
        url = cast("Any", self.endpoint).url
        self.session_is_connection = False
        async with (
            self._client(answers_in_body=True) as client,
            streamable_http_client(url, http_client=client, max_sse_event_size=self._event_limit) as streams,
        ):
            yield streams

    @asynccontextmanager
    async def _events(self) -> AsyncGenerator[Streams]:
        url: str = cast("Any", self.endpoint).url
        self.session_is_connection = True
        async with (
            self._client(answers_in_body=False) as client,
            client.stream("GET", url, headers=_EVENTS) as response,
        ):
            response.raise_for_status()
            reader = EventReader(response, limit=self._event_limit, ended=self._lost)
            target = urljoin(url, await reader.endpoint())
            if urlsplit(target)[:2] != urlsplit(url)[:2]:
                raise ToolConnectionError(f"the server at {url} wants messages sent elsewhere, to {target}", sent=False)
            yield reader, Poster(client, target)

    @property
    def _event_limit(self) -> int:
        """An event of several lines; one of a single line is judged before, and fails its own call alone."""
        return self.config.mcp.max_message_bytes + _EVENT_FRAME

    def _client(self, *, answers_in_body: bool) -> httpx2.AsyncClient:
        config = self.config
        limit = config.mcp.max_message_bytes
        return httpx2.AsyncClient(
            transport=TellingTransport(self._guarded(), limit=limit, answers_in_body=answers_in_body),
            auth=_Presented(self),
            headers={"accept-encoding": "identity", **config.headers},
            timeout=httpx2.Timeout(None, connect=config.connect_timeout_s),
            trust_env=False,
        )

    def _guarded(self) -> httpx2.AsyncHTTPTransport:
        url: str = cast("Any", self.endpoint).url
        return http_transport(self._network.for_source(url))

    def _lost(self) -> None:
        self.hung_up = True
        self.lost()


_EVENT_FRAME = 4096
_EVENTS = {"accept": "text/event-stream", "cache-control": "no-store"}


class _Presented(httpx2.Auth):
    """Puts the credential of the moment on each request."""

    def __init__(self, way: Way) -> None:
        self._way = way
        self._nonce = ""

    def auth_flow(self, request: httpx2.Request) -> Generator[httpx2.Request, httpx2.Response, None]:
        credential = self._way.credential
        request.headers.update(credential.headers)
        if credential.proof is None:
            yield request
            return
        request.headers.update(credential.proof(request.method, str(request.url), self._nonce))
        response = yield request
        nonce = nonce_in(Headers(tuple(response.headers.multi_items())))
        if not nonce or nonce == self._nonce:
            return
        self._nonce = nonce  # RFC 9449 section 9: the server wants this in the proofs from now on
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            request.headers.update(credential.proof(request.method, str(request.url), nonce))
            yield request


class _OverStreams(ClientTransport):
    """A session of ours over a pair of streams."""

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


class _InMemory(ClientTransport):
    """A session of ours with a server object."""

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


def _imported(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"no server object {target!r}: {error}; name it memory:module:attribute") from error
