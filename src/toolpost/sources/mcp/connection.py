"""One connection to an MCP server: over stdio, streamable HTTP or SSE, or to a server object of this process."""

from __future__ import annotations

import importlib
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import cache, partial
from typing import Any, cast

from fastmcp.client.transports.base import ClientTransport, TransportOptions
from mcp import ClientSession

from toolpost.auth.credentials import secrets_of
from toolpost.contracts.calls import Credential
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.policy.redaction import Redactor
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import Process, start
from toolpost.schema.json_size import JsonLimits
from toolpost.sources.mcp.endpoint import CommandEndpoint, Endpoint, MemoryEndpoint, UrlEndpoint
from toolpost.sources.mcp.jsonrpc import JsonRpc, Link, MessageReader, Pipe
from toolpost.sources.mcp.options import McpOptions
from toolpost.sources.mcp.server_object import serve_in_process
from toolpost.sources.mcp.sse import EventStream
from toolpost.sources.mcp.streamable_http import StreamableHttp
from toolpost.wire.network import NetworkPolicy

MakeSession = Callable[[JsonRpc], ClientSession]

# These log headers, session ids and whole messages, tokens and arguments included. Setting a logger's own level
# still turns that on; a root logger that was set to DEBUG for other reasons does not.
_VERBOSE_LOGGERS = ("mcp", "client", "fastmcp")


class McpConnection:
    """Transport state of one connection to a server.

    `on_closed` is called when the peer has closed the connection permanently. The credential's headers are read for
    every request; a renewed token does not need a new connection. `session_is_connection` says if the session ends with
    the connection, `closed_by_peer` that the process ended without a request. `network` allows addresses in addition to
    public ones and the server's own.
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
        self.closed_by_peer = False
        self.is_negotiated = False

    def transport(self, kind: str, make_session: MakeSession) -> ClientTransport:
        """Build the client transport; `kind` selects the HTTP transport of a URL."""
        make = partial(_LinkTransport, make_session=make_session, trace_context=self._network.trace_context)
        match self.endpoint:
            case MemoryEndpoint(target):
                server = self._server or _import_server(target)
                return make(lambda: serve_in_process(server))
            case CommandEndpoint(argv):
                return make(lambda: self._stdio(argv))
            case UrlEndpoint():
                return make(lambda: self._over_http(kind), legacy_only=kind == "sse")

    @asynccontextmanager
    async def _stdio(self, argv: tuple[str, ...]) -> AsyncGenerator[Link]:
        variable = self.config.auth_config.get("token_env")
        token = self.credential.headers.get("Authorization", "").removeprefix("Bearer ")
        given = {str(variable): token} if variable and token else {}
        environment = child_environment({**self.config.env, **given})
        launch = Launch(argv=argv, env=environment, cwd=self.config.cwd)
        reader = MessageReader(self.config.read_options(McpOptions).max_message_bytes, JsonLimits.of(self.config))
        async with await start(launch, receiver=reader) as process:
            self.process = process
            self.closed_by_peer = self.is_negotiated = False
            try:
                yield Pipe(process.stdin, reader, on_end=self._note_closed)
            finally:
                # Nothing has to finish without a session; a stopped peer gets no more time.
                if not self.is_negotiated or reader.was_stopped:
                    await process.close(grace_s=0)

    @asynccontextmanager
    async def _over_http(self, kind: str) -> AsyncGenerator[Link]:
        url = cast("UrlEndpoint", self.endpoint).url
        self.session_is_connection = kind == "sse"
        events = EventStream(self, url, self._network, on_end=self._note_closed) if kind == "sse" else None
        link = events or StreamableHttp(self, url, self._network, on_end=self._note_closed)
        try:
            if events is not None:
                await events.open()
            yield link
        finally:
            await link.close()

    def _note_closed(self) -> None:
        self.closed_by_peer = True
        self.on_closed()


class _LinkTransport(ClientTransport):
    """Client transport of the SDK for a session over a link."""

    def __init__(
        self,
        link: Callable[[], AbstractAsyncContextManager[Link]],
        *,
        make_session: MakeSession,
        trace_context: bool,
        legacy_only: bool = False,
    ) -> None:
        self._link = link
        self._trace_context = trace_context
        self._make_session = make_session
        self.legacy_only = legacy_only

    @asynccontextmanager
    async def connect_session(
        self, *, transport_options: TransportOptions | None = None, **session_kwargs: Any
    ) -> AsyncGenerator[ClientSession]:
        async with (
            self._link() as link,
            self._make_session(JsonRpc(link, trace_context=self._trace_context)) as session,
        ):
            yield session


def _import_server(target: str) -> Any:
    module, _, attribute = target.partition(":")
    try:
        return getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigError(f"no server object {target!r}: {error}; name it memory:module:attribute") from error


@cache
def limit_sdk_logs() -> None:
    """Disable verbose logs of the SDK, once per process."""
    for name in _VERBOSE_LOGGERS:
        logger = logging.getLogger(name)
        if logger.level == logging.NOTSET:
            logger.setLevel(logging.WARNING)
        # If logging is not configured, Python writes warnings to stderr, for a server that misbehaves with a traceback;
        # the call's own error reports the same.
        logger.addHandler(logging.NullHandler())
