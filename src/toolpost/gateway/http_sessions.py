"""MCP sessions over HTTP: who may connect, lists encoded once, and results kept for clients that were cut off."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Callable
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventMessage, EventStore, check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.inbound import (
    MCP_PROTOCOL_VERSION_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage
    from starlette.types import Message, Receive, Scope, Send

EncodedList: TypeAlias = "Callable[[str, Scope], bytes | None]"

_MAX_BODY = 4_000_000
_LIST_REQUEST_BYTES = 4096
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_EVENTS = 100
_RETRY_MS = 1000


def http_sessions(
    server: Server[Any], *, check_hosts: bool = True, listed: EncodedList | None = None
) -> StreamableHTTPSessionManager:
    """Return the sessions of an MCP server over HTTP; `check_hosts` refuses other hosts' names and web pages.

    `listed` returns the result of `tools/list` as JSON where it is known, which spares encoding it for every client.
    """
    hosts = [f"{host}:*" for host in _LOOPBACK]
    return _Sessions(
        listed,
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

    def __init__(self, listed: EncodedList | None, **options: Any) -> None:
        super().__init__(**options)
        self._listed = listed
        self._limited = self.asgi_app
        if listed is not None:
            self.asgi_app = cast("Any", self._answer_lists)

    async def _answer_lists(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer plain requests for the list of tools; everything else, and all that is odd, is the SDK's."""
        if scope["method"] != "POST":
            await self._limited(scope, receive, send)
            return
        first = await receive()
        answer = self._list_answer(scope, first)
        if answer is not None:
            await answer(scope, receive, send)
            return
        waiting = [first]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._limited(scope, replay, send)

    def _list_answer(self, scope: Scope, first: Message) -> Response | None:
        body: bytes = first.get("body", b"")
        if (
            b'"tools/list"' not in body[:_LIST_REQUEST_BYTES]
            or first.get("more_body")
            or len(body) > _LIST_REQUEST_BYTES
        ):
            return None
        request = Request(scope)
        message = _plain_list(body)
        if message is None or not all(check_accept_headers(request)):
            return None
        version = self._version_of(request, message)
        result = None if version is None or self._listed is None else self._listed(version, scope)
        if result is None:
            return None
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":'.encode()
        return Response(b"".join((head, result, b"}")), media_type="application/json")

    def _version_of(self, request: Request, message: dict[str, Any]) -> str | None:
        """Return the protocol version of a request that is as it should be: by itself, or within an open session."""
        headers = request.headers
        version, session = headers.get(MCP_PROTOCOL_VERSION_HEADER), headers.get(MCP_SESSION_ID_HEADER)
        if find_duplicated_routing_header(headers.items()) is not None:
            return None
        if version in MODERN_PROTOCOL_VERSIONS:
            verdict = classify_inbound_request(message, headers=dict(headers))
            return version if isinstance(verdict, InboundModernRoute) else None
        user = request.scope.get("user")
        owner = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        is_open = session in self._server_instances and self._session_owners.get(session or "") == owner
        is_json = headers.get("content-type", "").partition(";")[0].strip().lower() == "application/json"
        return version if is_open and is_json and version in HANDSHAKE_PROTOCOL_VERSIONS else None

    @property
    def event_store(self) -> EventStore:
        """The store of the next session."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Take no other store."""


def _plain_list(body: bytes) -> dict[str, Any] | None:
    """Return a request for the first page of the list of tools; None for anything else."""
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not is_object(message) or message.keys() - {"params"} != {"jsonrpc", "id", "method"}:
        return None
    params, number = message.get("params", {}), message["id"]
    is_plain = is_object(params) and params.keys() <= {"_meta"} and is_object(params.get("_meta", {}))
    is_numbered = isinstance(number, str | int) and not isinstance(number, bool)
    is_list = (message["jsonrpc"], message["method"]) == ("2.0", "tools/list")
    return message if is_plain and is_numbered and is_list else None


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
