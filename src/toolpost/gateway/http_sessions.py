"""MCP sessions over HTTP: who may connect, and results kept for older clients whose connection broke."""

from __future__ import annotations

from collections import deque
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple

from mcp.server.streamable_http import EventMessage, EventStore
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage

_MAX_BODY = 4_000_000
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_EVENTS = 100
_RETRY_MS = 1000


def http_sessions(server: Server[Any], *, check_hosts: bool = True) -> StreamableHTTPSessionManager:
    """Return the sessions of an MCP server over HTTP; `check_hosts` refuses other hosts' names and web pages."""
    hosts = [f"{host}:*" for host in _LOOPBACK]
    return _Sessions(
        app=server,
        retry_interval=_RETRY_MS,
        max_request_body_size=_MAX_BODY,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=check_hosts,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        ),
    )


class _Sessions(StreamableHTTPSessionManager):
    """Sessions that each have events of their own.

    Streams are named by request ids, which clients choose: in a store for all, one client could ask for another's.
    """

    @property
    def event_store(self) -> EventStore:
        """The store of the next session."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Take no other store."""


class _Event(NamedTuple):
    number: int
    stream: str
    message: JSONRPCMessage | None


class RecentEvents(EventStore):
    """The last events of one session, for a client that reconnects with the id of the last one it got."""

    def __init__(self) -> None:
        self._events: deque[_Event] = deque(maxlen=_MOST_EVENTS)
        self._numbers = count(1)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Keep an event and return its id."""
        event = _Event(next(self._numbers), stream_id, message)
        self._events.append(event)
        return str(event.number)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send what came after an event on its stream; None where the event is not known any more."""
        last = next((event for event in self._events if str(event.number) == last_event_id), None)
        if last is None:
            return None
        for event in list(self._events):
            if event.stream == last.stream and event.number > last.number and event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return last.stream
