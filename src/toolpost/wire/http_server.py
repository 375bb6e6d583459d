"""HTTP server for an ASGI application on a given socket, and notifications to the service manager."""

from __future__ import annotations

import asyncio
import errno
import os
import socket
import sys
from contextlib import asynccontextmanager, contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias, cast

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence

    from starlette.types import ASGIApp, Receive, Scope, Send


ListeningSocket: TypeAlias = socket.socket

_REQUEST_S = 60.0
_GRACE_S = 1.0  # for responses to be sent, and for endless streams
_DATE_S = 1.0  # the largest age of the header `Date`
_LOOK_S = 0.01
_KEEP_ALIVE_S = 75  # longer than clients keep idle connections, so that none is closed under a request
_MOST_HEAD_BYTES = 64 * 1024
IN_USE = "address_in_use"
_IN_USE_S, _IN_USE_LOOK_S = 0.5, 0.05  # workers close their socket when they notice that their parent has ended
_STOPPING_S = 60.0
_ASK_S, _MOST_SAID = 1.0, 4096
_STRANGER_S = 10.0  # for the head of a request, on a connection that no known caller has used
_FEWEST_STRANGERS, _MOST_STRANGERS = 16, 2000
# Connections that one turn of the loop accepts: they take descriptors before `_Strangers` counts them.
_ACCEPTED_AT_ONCE = 64
_BACKLOG = 2048
AUTHENTICATED = "toolpost.authenticated"  # in the scope of a request from a known caller
# In the scope of a request: a function that sets what to call if the client disconnects. Waiting with `receive` takes
# a task, which costs about 30 µs per request (measured 2026-11).
ON_DISCONNECT = "toolpost.on_disconnect"
_MOST_JOINED = 64 * 1024
_TOO_SLOW, _TOO_LARGE = b"408 Request Timeout", b"431 Request Header Fields Too Large"


@contextmanager
def listen(host: str, port: int) -> Generator[socket.socket]:
    """Open the socket of the gateway; raise ConfigError if that fails."""
    try:
        listening = socket.create_server((host, port))
    except OSError as error:
        reason = (error.strerror or str(error)).partition(" (while attempting")[0]  # it repeats the address
        what = "--port" if error.errno in (errno.EADDRINUSE, errno.EACCES) else "--host"
        message = f"cannot listen on {host}:{port}: {reason}; choose another {what}"
        raise ConfigError(message, code=IN_USE if error.errno == errno.EADDRINUSE else None) from error
    # asyncio sets this only for its own sockets; a small response would wait for the acknowledgment of its head.
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    with listening:
        yield listening


@asynccontextmanager
async def listen_when_free(host: str, port: int, *, on_wait: Callable[[], None]) -> AsyncGenerator[socket.socket]:
    """Open a socket like `listen`. Wait a moment for an address in use, and longer while its gateway shuts down.

    `on_wait` is called once if the gateway there reports its shutdown: its workers may outlive it for a while.
    """
    loop = asyncio.get_running_loop()
    until, waits = loop.time() + _IN_USE_S, False
    while True:
        try:
            with listen(host, port) as listening:
                yield listening
                return
        except ConfigError as error:
            if error.error_code != IN_USE or loop.time() > until:
                raise
        if not waits and await _is_stopping(host, port):
            waits, until = True, loop.time() + _STOPPING_S
            on_wait()
        await asyncio.sleep(_IN_USE_LOOK_S)


async def _is_stopping(host: str, port: int) -> bool:
    """Return whether a gateway at this address reports its shutdown."""
    reached = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - nothing is bound here
    try:
        async with asyncio.timeout(_ASK_S):
            reader, writer = await asyncio.open_connection(reached, port)
            try:
                writer.write(b"GET /readyz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
                said = await reader.read(_MOST_SAID)
            finally:
                writer.close()
    except (OSError, TimeoutError):
        return False
    return said.startswith(b"HTTP/1.1 503") and b'"stopping"' in said


@contextmanager
def inherited(descriptor: int) -> Generator[socket.socket]:
    """Use a listening socket that the parent process opened."""
    with socket.socket(fileno=descriptor) as listening:
        yield listening


async def serve_until_stopped(
    app: ASGIApp,
    *listening: socket.socket,
    grace_s: float = _GRACE_S,
    request_s: float = _REQUEST_S,
    on_stop: Callable[[], None] = lambda: None,
    finish: Callable[[], Awaitable[None]] = lambda: asyncio.sleep(0),
    frees_address: Callable[[], bool] = lambda: False,
    trusted_proxies: Sequence[str] = (),
) -> None:
    """Serve until this task is canceled; running requests then have until `finish` returns, and `grace_s` seconds.

    A client has `request_s` seconds to send a request. On cancellation, `on_stop` is called and `finish` is awaited,
    which ends the work that requests wait for. A second cancellation stops the server immediately. With
    `frees_address`, the server accepts no connections after the first one, so another process can listen there. The
    address of a client is taken from X-Forwarded-For only in requests of `trusted_proxies`, addresses or networks.
    """
    config = uvicorn.Config(
        _trim_headers(app),
        log_config=None,
        access_log=False,
        http=cast("type[asyncio.Protocol]", partial(_Connection, request_s=request_s, strangers=_Strangers())),
        ws="none",
        proxy_headers=bool(trusted_proxies),
        forwarded_allow_ips=list(trusted_proxies),
        lifespan="on",
        timeout_keep_alive=_KEEP_ALIVE_S,
        backlog=_ACCEPTED_AT_ONCE,
    )
    server, loop = HttpServer(config), asyncio.get_running_loop()
    serving = loop.create_task(server.serve(sockets=list(listening)))
    ending: asyncio.Task[None] | None = None
    while not serving.done():
        try:
            await asyncio.shield(serving)
        except asyncio.CancelledError:
            on_stop()
            if frees_address():
                server.close_sockets()
            if ending is not None:
                ending.cancel()
            ending = loop.create_task(_end_requests(server, finish if ending is None else None, grace_s))
    if ending is not None:
        ending.cancel()
        await asyncio.gather(ending, return_exceptions=True)


async def _end_requests(server: HttpServer, finish: Callable[[], Awaitable[None]] | None, grace_s: float) -> None:
    """Wait for `finish` and for responses to be sent; then end the remaining requests.

    Until then, requests are accepted, so the application can notify clients of the shutdown.
    """
    if finish is not None:
        await finish()
    server.stop()
    if finish is not None:
        await asyncio.sleep(grace_s)
    for task in list(server.server_state.tasks):
        task.cancel()
    await asyncio.sleep(0.1)
    for connection in list(server.server_state.connections):
        cast("_Connection", connection).transport.close()
    await asyncio.sleep(0.1)
    for connection in list(server.server_state.connections):  # a client that does not read never receives the rest
        cast("_Connection", connection).transport.abort()


def _trim_headers(app: ASGIApp) -> ASGIApp:
    """Remove whitespace around header values, which is not part of them (RFC 9110 section 5.5); the parser keeps it."""

    async def call(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            scope["headers"] = [(name, value.strip(b" \t")) for name, value in scope["headers"]]
        await app(scope, receive, send)

    return call


class HttpServer(uvicorn.Server):
    """A server that leaves signals to its program, and stops as soon as no request is left.

    Uvicorn's own server polls ten times per second.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._stopping = asyncio.Event()

    def stop(self) -> None:
        """Accept no more connections, and close each after its response."""
        self.should_exit = True
        self._stopping.set()

    def close_sockets(self) -> None:
        """Accept no more connections; requests on open ones are still served."""
        for server in self.servers:
            server.close()

    @contextmanager
    def capture_signals(self) -> Generator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        # asyncio uses one number for the backlog of the kernel and the connections accepted per turn.
        for listening in sockets or ():
            listening.listen(_BACKLOG)

    async def main_loop(self) -> None:
        while not await self.on_tick(0):  # which writes the date
            with suppress(TimeoutError):
                async with asyncio.timeout(_DATE_S):
                    await self._stopping.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self.close_sockets()
        for listening in sockets or ():
            listening.close()
        await asyncio.sleep(_LOOK_S)  # registers connections that were just accepted
        while self.server_state.connections or self.server_state.tasks:
            for connection in list(self.server_state.connections):
                connection.shutdown()
            await asyncio.sleep(_LOOK_S)
        for server in self.servers:
            await server.wait_closed()
        await self.lifespan.shutdown()


class _Strangers:
    """Connections on which no known caller has sent a request, the oldest first.

    They take at most half of the file descriptors of this process. The oldest is closed for a new one: a legitimate
    client is known a moment after it has connected, and a client that only holds connections loses them.
    """

    def __init__(self) -> None:
        self._connections: dict[_Connection, None] = {}
        self._most = max(_FEWEST_STRANGERS, min(_MOST_STRANGERS, _descriptor_limit() // 2))

    def add(self, connection: _Connection) -> None:
        self._connections[connection] = None
        while len(self._connections) > self._most:
            oldest = next(iter(self._connections))
            self.remove(oldest)
            if not oldest.is_of_known_caller:
                oldest.transport.abort()

    def remove(self, connection: _Connection) -> None:
        """Drop a connection that has ended or that has a known caller now."""
        self._connections.pop(connection, None)


def _descriptor_limit() -> int:
    if sys.platform == "win32":
        return 2 * _MOST_STRANGERS
    import resource  # noqa: PLC0415 - not on Windows

    return resource.getrlimit(resource.RLIMIT_NOFILE)[0]


class _Connection(HttpToolsProtocol):
    """A connection that is closed if a request takes too long to arrive or has a too large head.

    The first request must arrive sooner, unless its caller is known before its body is complete.
    """

    def __init__(self, *args: Any, request_s: float, strangers: _Strangers, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._request_s = request_s
        self._strangers = strangers
        self._is_known = False
        self._deadline: asyncio.TimerHandle | None = None
        self._head_bytes: int | None = 0  # None: the head is complete
        self._on_disconnect: Callable[[], None] | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(cast("asyncio.Transport", _JoinedWrites(transport, self.loop)))
        self._strangers.add(self)
        self._expect_request()

    @property
    def is_of_known_caller(self) -> bool:
        """Whether a known caller has sent a request on this connection."""
        scope = cast("Scope | None", self.scope)
        self._is_known = self._is_known or (scope is not None and AUTHENTICATED in scope)
        return self._is_known

    def on_response_complete(self) -> None:
        if not self._is_known and self.is_of_known_caller:
            self._strangers.remove(self)
        super().on_response_complete()

    def data_received(self, data: bytes) -> None:
        if self._deadline is None:
            self._expect_request()
        super().data_received(data)
        if self._head_bytes is not None and self._deadline is not None:
            self._head_bytes += len(data)
            if self._head_bytes > _MOST_HEAD_BYTES:
                self._refuse(_TOO_LARGE)

    def on_message_begin(self) -> None:
        if self._deadline is None:  # a second request within the same bytes
            self._expect_request()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._head_bytes = None
        if not self._is_known:  # no shorter limit for the body, because `_Strangers` closes the connection if necessary
            self._cancel_deadline()
            self._deadline = self.loop.call_later(self._request_s, self._refuse, _TOO_SLOW)
        super().on_headers_complete()
        cast("Scope", self.scope)[ON_DISCONNECT] = self._set_on_disconnect

    def _set_on_disconnect(self, call: Callable[[], None] | None) -> None:
        self._on_disconnect = call
        if call is not None and self.transport.is_closing():
            self.loop.call_soon(call)

    def on_message_complete(self) -> None:
        self._cancel_deadline()
        super().on_message_complete()

    def connection_lost(self, exc: Exception | None) -> None:
        self._cancel_deadline()
        self._strangers.remove(self)
        super().connection_lost(exc)
        if self._on_disconnect is not None:
            self._on_disconnect()

    def _expect_request(self) -> None:
        self._head_bytes = 0
        within_s = self._request_s if self._is_known else min(self._request_s, _STRANGER_S)
        self._deadline = self.loop.call_later(within_s, self._refuse, _TOO_SLOW)

    def _cancel_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _refuse(self, status: bytes) -> None:
        """Send the reason, unless a response has begun, and close the connection."""
        if self.transport.is_closing():
            return
        cycle = cast("RequestResponseCycle | None", self.cycle)
        if cycle is None or cycle.response_complete or not cycle.response_started:
            self.transport.write(b"HTTP/1.1 %b\r\nconnection: close\r\ncontent-length: 0\r\n\r\n" % status)
        self.transport.close()


class _JoinedWrites:
    """A transport that sends the head and the body of a response with one system call.

    Writes within one turn of the loop are joined. A call over MCP takes 13 % less time (measured 2026-11).
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._parts: list[bytes] = []
        self._size = 0

    def write(self, data: bytes) -> None:
        if not self._parts:
            self._loop.call_soon(self._flush)
        self._parts.append(data)
        self._size += len(data)
        if self._size > _MOST_JOINED:  # so that a slow client is noticed
            self._flush()

    def close(self) -> None:
        self._flush()
        self._transport.close()

    def _flush(self) -> None:
        if self._parts:
            joined = self._parts[0] if len(self._parts) == 1 else b"".join(self._parts)
            self._parts, self._size = [], 0
            self._transport.write(joined)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)


def notify_service_manager(state: str) -> None:
    """Send a state such as `READY=1` to systemd, if systemd started this process."""
    address = os.environ.get("NOTIFY_SOCKET", "")
    if not address:
        return
    if address.startswith("@"):  # an abstract socket
        address = f"\0{address[1:]}"
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.connect(address)
        manager.sendall(state.encode())
