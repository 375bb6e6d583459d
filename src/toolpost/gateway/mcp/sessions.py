"""Sessions of MCP clients of protocol 2025-11-25 and earlier: their limits, and what servers send to their clients."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import asynccontextmanager, suppress
from itertools import count
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import uuid4

from mcp.server.connection import Connection
from mcp.server.runner import aclose_shielded
from mcp.shared.dispatcher import as_request_id, coerce_request_id
from mcp.shared.exceptions import MCPError
from mcp_types.jsonrpc import CONNECTION_CLOSED
from mcp_types.version import is_version_at_least

from toolpost.gateway.mcp.event_streams import MessageStream, RecentEvents, notification, server_request

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable, Mapping

    from mcp.shared.dispatcher import CallOptions
    from starlette.types import Receive, Send

    from toolpost.gateway.mcp.requests import RequestRunner

RunnerOf: TypeAlias = "Callable[[Connection], RequestRunner]"
SESSION_HEADER = "mcp-session-id"
_MOST_SESSIONS, _MOST_OF_CALLER = 2000, 500
_IDLE_S = 1800.0  # an idle session is closed after this time
_SWEEP_S = 60.0
_WITHDRAW_S, _CLOSE_S = 5.0, 1.0
_RESUMABLE = "2025-11-25"  # earlier clients do not know events without data
_CANCELLED: dict[str, Any] = {"code": -32800, "message": "Request cancelled"}  # these clients wait for a response
_ENDED: dict[str, Any] = {"code": CONNECTION_CLOSED, "message": "The session has ended"}


class ClientSession:
    """A client between `initialize` and the end of its session; only its `owner` can use it.

    Messages that belong to no request are sent on a stream that the client opens.
    """

    def __init__(self, runner_of: RunnerOf, owner: Hashable) -> None:
        self.id = uuid4().hex
        self.header = (SESSION_HEADER.encode(), self.id.encode())
        self.owner = owner
        self.recent = RecentEvents()
        self.used_at = asyncio.get_running_loop().time()
        self._own = MessageStream(self.recent)
        self._connection = Connection.for_loop(self, session_id=self.id)
        self.runner = runner_of(self._connection)
        self._requests: set[RunningRequest] = set()
        self._listening = 0
        self._numbers = count(1)
        self._asked: dict[str | int, asyncio.Future[dict[str, Any]]] = {}
        self._has_ended = False

    @property
    def protocol_version(self) -> str:
        """The version that the client and the server have agreed on."""
        return self._connection.protocol_version

    @property
    def is_resumable(self) -> bool:
        """Whether the client can resume a stream before it has received an event."""
        return is_version_at_least(self.protocol_version, _RESUMABLE)

    @property
    def is_open(self) -> bool:
        """Whether the client has initialized the session."""
        return self._connection.initialize_accepted

    @property
    def is_in_use(self) -> bool:
        """Whether a request is running or a stream is open."""
        return bool(self._requests or self._listening)

    def is_idle(self, now: float) -> bool:
        """Return whether the session has been idle for too long."""
        return not self.is_in_use and now - self.used_at > _IDLE_S

    def touch(self) -> None:
        """Record that the session is used now."""
        self.used_at = asyncio.get_running_loop().time()

    # ------------------------------------------------------------------ messages of the client

    def begin(self, request: RunningRequest) -> None:
        """Record that a request is running."""
        self._requests.add(request)

    def finish(self, request: RunningRequest) -> None:
        """Record that a request has ended."""
        self._requests.discard(request)
        self.touch()

    def cancel_request(self, params: Mapping[str, Any]) -> None:
        """Cancel the request that a `notifications/cancelled` names."""
        number = as_request_id(params.get("requestId"))
        for request in list(self._requests):
            if number is not None and coerce_request_id(request.request_id) == coerce_request_id(number):
                request.cancel(_CANCELLED)

    def take_response(self, message: Mapping[str, Any]) -> None:
        """Pass a response on to the request that the client was sent; ignore a late one."""
        number = as_request_id(message.get("id"))
        asked = None if number is None else self._asked.get(coerce_request_id(number))
        if asked is None or asked.done():
            return
        if "result" in message:
            asked.set_result(message["result"])
        else:
            error = message["error"]
            asked.set_exception(MCPError(code=error["code"], message=error["message"], data=error.get("data")))

    # ------------------------------------------------------------------ streams that the client opens

    @property
    def is_listening(self) -> bool:
        """Whether the client listens to messages that belong to no request."""
        return self._own.is_open

    async def listen(self, receive: Receive, send: Send) -> None:
        """Send the messages that belong to no request, until the client disconnects."""
        await self._serve(self._own, receive, send)

    async def resume(self, last_event_id: str, receive: Receive, send: Send) -> None:
        """Send the messages on the stream of this event that the client has missed, and later ones."""
        found = self.recent.after(last_event_id)
        stream, missed = found or (MessageStream(), [])
        if found is None:  # the event was dropped
            stream.is_complete = True
        await self._serve(stream, receive, send, missed=missed, primed=found is not None and self.is_resumable)

    async def _serve(self, stream: MessageStream, receive: Receive, send: Send, **options: Any) -> None:
        self._listening += 1
        try:
            response = await stream.open(send, [self.header], **options)
            try:
                await response.until_over(receive)
            finally:
                await stream.abandon(response)
        finally:
            self._listening -= 1
            self.touch()

    # ------------------------------------------------------------------ messages to the client, as the SDK sends them

    async def request(self, stream: MessageStream, method: str, params: Mapping[str, Any] | None) -> dict[str, Any]:
        """Send a request on a stream and return the result; raise MCPError for an error."""
        if self._has_ended:
            raise MCPError(**_ENDED)
        number = next(self._numbers)
        asked: asyncio.Future[dict[str, Any]] = asyncio.get_running_loop().create_future()
        self._asked[number] = asked
        try:
            await stream.send(server_request(number, method, params))
            return await asked
        except asyncio.CancelledError:
            with suppress(TimeoutError):
                async with asyncio.timeout(_WITHDRAW_S):
                    reason = {"requestId": number, "reason": "caller cancelled"}
                    await stream.send(notification("notifications/cancelled", reason))
            raise
        finally:
            del self._asked[number]

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request that belongs to no request of the client."""
        return await self.request(self._own, method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification that belongs to no request of the client."""
        if not self._has_ended:
            await self._own.send(notification(method, params))

    async def end(self) -> None:
        """Cancel the requests of the client and close its streams."""
        self._has_ended = True
        for request in list(self._requests):
            request.cancel(_ENDED)
        for asked in self._asked.values():
            if not asked.done():
                asked.set_exception(MCPError(**_ENDED))
        with suppress(TimeoutError):  # the client may not read
            async with asyncio.timeout(_CLOSE_S):
                await self._own.close()
        await aclose_shielded(self._connection)


class ClientSessions:
    """The open sessions of an MCP server by ID; `runner_of` returns the runner of the requests of a connection."""

    def __init__(self, runner_of: RunnerOf) -> None:
        self._runner_of = runner_of
        self._sessions: dict[str, ClientSession] = {}

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Close idle sessions while this is open, and all sessions at its end."""
        sweeping = asyncio.get_running_loop().create_task(self._sweep())
        try:
            yield
        finally:
            sweeping.cancel()
            await asyncio.gather(*(self.end(session) for session in list(self._sessions.values())))

    def find(self, session_id: str, owner: Hashable) -> ClientSession | None:
        """Return an open session of this owner."""
        session = self._sessions.get(session_id)
        if session is None or session.owner != owner or session.is_idle(asyncio.get_running_loop().time()):
            return None
        return session

    async def open(self, owner: Hashable) -> ClientSession | None:
        """Open a session, or return None if there are too many.

        Clients do not always close sessions: if an owner has too many, end the one that was idle for longest.
        """
        own = [session for session in self._sessions.values() if session.owner == owner]
        if len(own) >= _MOST_OF_CALLER:
            idle = [session for session in own if not session.is_in_use]
            if not idle:
                return None
            await self.end(min(idle, key=lambda session: session.used_at))
        if len(self._sessions) >= _MOST_SESSIONS:
            return None
        session = ClientSession(self._runner_of, owner)
        self._sessions[session.id] = session
        return session

    async def end(self, session: ClientSession) -> None:
        """End a session, if it is open."""
        if self._sessions.pop(session.id, None) is not None:
            await session.end()

    async def _sweep(self) -> None:
        while True:
            await asyncio.sleep(_SWEEP_S)
            now = asyncio.get_running_loop().time()
            await asyncio.gather(*(self.end(one) for one in list(self._sessions.values()) if one.is_idle(now)))


class RunningRequest(Protocol):
    """A request that is running in a session."""

    @property
    def request_id(self) -> str | int:
        """The ID that the client has given to it."""
        ...

    def cancel(self, error: dict[str, Any]) -> None:
        """Cancel it; the response is this error."""
        ...
