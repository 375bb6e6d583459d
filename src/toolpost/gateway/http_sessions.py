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
    validate_mcp_param_headers,
)
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

from toolpost.gateway.mcp_exchange import McpExchange
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback
    from mcp_types import JSONRPCMessage
    from starlette.types import Message, Receive, Scope, Send

EncodedList: TypeAlias = "Callable[[str, Scope], bytes | None]"

_MAX_BODY = 4_000_000
_JSON_TYPE, _USUAL_ACCEPT = "application/json", "application/json, text/event-stream"
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
    """Sessions that each have events of their own; plain requests are answered without the SDK's transport.

    Streams are named by request ids, which clients choose: in a store for all, one client could ask for another's.
    """

    def __init__(self, listed: EncodedList | None, **options: Any) -> None:
        super().__init__(**options)
        self._listed = listed
        self._checks_hosts = bool(self.security_settings and self.security_settings.enable_dns_rebinding_protection)
        self._limited = self.asgi_app
        self.asgi_app = cast("Any", self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request that is as it should be; all that is odd is the SDK's to refuse."""
        if scope["method"] != "POST" or self._checks_hosts:
            await self._limited(scope, receive, send)
            return
        first = await receive()
        plain = _plain_request(scope, first)
        if plain is not None:
            if (answer := self._list_answer(plain)) is not None:
                await answer(scope, receive, send)
                return
            if plain.route is not None and self._can_run(plain):
                await McpExchange(plain.request, plain.message, send).run(
                    self.app, plain.route, self._lifespan_state, receive
                )
                return
        waiting = [first]

        async def replay() -> Message:
            return waiting.pop() if waiting else await receive()

        await self._limited(scope, replay, send)

    def _can_run(self, plain: _PlainRequest) -> bool:
        """Return whether a request is for the server, its headers agree with it, and it ends with one answer."""
        method, lookup = plain.message["method"], self.app.get_tool_input_schema
        if method != "tools/call" or lookup is None:
            return method not in ("tools/call", "subscriptions/listen")
        params = plain.message["params"]
        name, arguments = params.get("name"), params.get("arguments", {})
        schema = lookup(name) if isinstance(name, str) and is_object(arguments) else None
        return schema is None or validate_mcp_param_headers(schema, arguments, plain.request.headers) is None

    def _list_answer(self, plain: _PlainRequest) -> Response | None:
        message, params = plain.message, plain.message["params"]
        if message["method"] != "tools/list" or params.keys() - {"_meta"} or self._listed is None:
            return None
        version = plain.request.headers[MCP_PROTOCOL_VERSION_HEADER]
        if plain.route is None and not self._is_open(plain.request, version):
            return None
        result = self._listed(version, plain.request.scope)
        if result is None:
            return None
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":'.encode()
        return Response(b"".join((head, result, b"}")), media_type="application/json")

    def _is_open(self, request: Request, version: str) -> bool:
        """Return whether a request of the older protocol is within an open session of the same caller."""
        session, user = request.headers.get(MCP_SESSION_ID_HEADER, ""), request.scope.get("user")
        owner = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        is_open = session in self._server_instances and self._session_owners.get(session) == owner
        return is_open and version in HANDSHAKE_PROTOCOL_VERSIONS

    @property
    def event_store(self) -> EventStore:
        """The store of the next session."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Take no other store."""


class _PlainRequest(NamedTuple):
    """A request with nothing odd about it; `route` is what the SDK makes of one of the newer protocol."""

    request: Request
    message: dict[str, Any]
    route: InboundModernRoute | None


def _plain_request(scope: Scope, first: Message) -> _PlainRequest | None:
    """Return a request that came whole; None for anything that is not as it should be."""
    if first.get("more_body") or (message := _message_in(first.get("body", b""))) is None:
        return None
    request, given = Request(scope), scope["headers"]
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in given}
    if len(headers) < len(given) and find_duplicated_routing_header(request.headers.items()) is not None:
        return None
    if not headers.get("content-type", "").lower().startswith(_JSON_TYPE):
        return None
    if headers.get("accept") != _USUAL_ACCEPT and not all(check_accept_headers(request)):
        return None
    version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
    if version in HANDSHAKE_PROTOCOL_VERSIONS:
        return _PlainRequest(request, message, None)
    route = classify_inbound_request(message, headers=headers)
    return _PlainRequest(request, message, route) if isinstance(route, InboundModernRoute) else None


def _message_in(body: bytes) -> dict[str, Any] | None:
    """Return the one request that a body is; it always has parameters then."""
    try:
        message: Any = json.loads(body)
    except (ValueError, RecursionError):
        return None
    if not is_object(message) or message.keys() - {"params"} != {"jsonrpc", "id", "method"}:
        return None
    params, number = message.setdefault("params", {}), message["id"]
    is_numbered = isinstance(number, str | int) and not isinstance(number, bool)
    is_request = message["jsonrpc"] == "2.0" and isinstance(message["method"], str)
    return message if is_request and is_numbered and is_object(params) else None


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
