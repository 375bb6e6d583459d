"""MCP over HTTP: sessions and their limits, cached lists, and events for clients that reconnect."""

from __future__ import annotations

import json
import math
from collections import deque
from collections.abc import Callable
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias, cast

import anyio
from mcp.server.auth.middleware.bearer_auth import AuthenticatedUser, authorization_context
from mcp.server.auth.provider import AccessToken
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

from toolpost.contracts.errors import ToolClientError
from toolpost.gateway.access import CALLER
from toolpost.gateway.mcp.exchange import McpExchange
from toolpost.gateway.problems import ProblemResponse
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_INLINE_VALUES, SMALL
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp.sdk_seam import open_sessions, session_owners

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback, StreamableHTTPServerTransport
    from mcp_types import JSONRPCMessage
    from starlette.types import Message, Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.mcp.server import McpServer

EncodedList: TypeAlias = "Callable[[str, Scope], bytes | None]"
_MAX_BODY = 4_000_000
_JSON_TYPE, _USUAL_ACCEPT = "application/json", "application/json, text/event-stream"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_EVENTS = 100
_MOST_SESSIONS, _MOST_OF_CALLER = 2000, 500  # a session needs about 200 KB
_IDLE_S = 1800.0  # an idle session is closed after this time
_RETRY_MS = 1000


def gateway_sessions(mcp: McpServer) -> StreamableHTTPSessionManager:
    """Return the sessions of an MCP server behind `Access`, which has already checked host and origin."""

    def listed(version: str, scope: Scope) -> bytes | None:
        return mcp.encoded_list(version, str(scope[CALLER].principal))

    return http_sessions(mcp.server, check_hosts=False, listed=listed)


def http_sessions(
    server: Server[Any], *, check_hosts: bool = True, listed: EncodedList | None = None
) -> StreamableHTTPSessionManager:
    """Return the sessions of an MCP server over HTTP; with `check_hosts`, reject other host names and web origins.

    `listed` returns the cached result of `tools/list` as JSON, so that it is not encoded for every client.
    """
    hosts = [f"{host}:*" for host in _LOOPBACK]
    return _Sessions(
        listed,
        app=server,
        retry_interval=_RETRY_MS,
        max_request_body_size=_MAX_BODY,
        max_sessions=_MOST_SESSIONS,
        session_idle_timeout=_IDLE_S,
        security_settings=TransportSecuritySettings(
            enable_dns_rebinding_protection=check_hosts,
            allowed_hosts=hosts,
            allowed_origins=[f"http://{host}" for host in hosts],
        ),
    )


class _Sessions(StreamableHTTPSessionManager):
    """Sessions with separate event stores; well-formed requests bypass the SDK's transport.

    Streams are named by request IDs, which clients choose: in a shared store, one client could read another's events.
    """

    def __init__(self, listed: EncodedList | None, **options: Any) -> None:
        super().__init__(**options)
        self._listed = listed
        self._checks_hosts = bool(self.security_settings and self.security_settings.enable_dns_rebinding_protection)
        self._limited = self.asgi_app
        self.asgi_app = cast("Any", self._serve)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle a well-formed request; delegate anything else to the SDK, which rejects it."""
        if (caller := scope.get(CALLER)) is not None:
            scope["user"] = _sdk_user(caller)
        if scope["method"] != "POST":
            await self._limited(scope, receive, send)
            return
        waiting = await _receive_body(receive)
        try:
            await _measure(waiting)
        except ToolClientError as error:
            await ProblemResponse(413, error.error_code, error.message)(scope, receive, send)
            return
        plain = None if self._checks_hosts else _plain_request(scope, waiting[0])
        if plain is not None:
            if (answer := self._list_answer(plain)) is not None:
                await answer(scope, receive, send)
                return
            if plain.route is not None and self._can_run(plain):
                await McpExchange(plain.request, plain.message, send).run(
                    self.app, plain.route, self._lifespan_state, receive
                )
                return

        async def replay() -> Message:
            return waiting.pop(0) if waiting else await receive()

        await self._limited(scope, replay, send)

    def _can_run(self, plain: _PlainRequest) -> bool:
        """Return whether the server can run a request directly: its headers match, and it has a single response."""
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
        """Return whether a session-based request belongs to an open session of the same caller."""
        session, user = request.headers.get(MCP_SESSION_ID_HEADER, ""), request.scope.get("user")
        owner = authorization_context(user) if isinstance(user, AuthenticatedUser) else None
        if session not in open_sessions(self) or session_owners(self).get(session) != owner:
            return False
        idle = open_sessions(self)[session].idle_scope
        if idle is not None and idle.deadline < math.inf:  # this request also keeps the session alive
            idle.deadline = anyio.current_time() + _IDLE_S
        return version in HANDSHAKE_PROTOCOL_VERSIONS

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Open a session, or return None if there are too many.

        Clients do not always close sessions: if a caller has too many, close the one that was idle for longest.
        """
        own = [session for session, owner in session_owners(self).items() if owner == requestor]
        if len(own) >= _MOST_OF_CALLER:
            scopes = {session: open_sessions(self)[session].idle_scope for session in own}
            idle = {session: scope for session, scope in scopes.items() if scope and scope.deadline < math.inf}
            if not idle:
                return None
            oldest = min(idle, key=lambda session: idle[session].deadline)
            del open_sessions(self)[oldest], session_owners(self)[oldest]
            idle[oldest].cancel()
        return super()._admit_session(requestor)

    @property
    def event_store(self) -> EventStore:
        """A new store for the next session."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Ignore a given store."""


@lru_cache(maxsize=1000)
def _sdk_user(caller: Caller) -> AuthenticatedUser:
    """Return the SDK's user for a caller; the SDK binds a session to the user who opened it."""
    token = AccessToken(token="", client_id=caller.id, scopes=list(caller.scopes), subject=str(caller.principal))
    return AuthenticatedUser(token)


class _PlainRequest(NamedTuple):
    """A well-formed request; `route` is the SDK's classification of a stateless one."""

    request: Request
    message: dict[str, Any]
    route: InboundModernRoute | None


async def _receive_body(receive: Receive) -> list[Message]:
    """Receive the messages of a body, up to the first that exceeds the limit, which the SDK rejects."""
    messages = [await receive()]
    size = len(messages[0].get("body", b""))
    while messages[-1].get("more_body") and size <= _MAX_BODY:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
    return messages


async def _measure(messages: Sequence[Message]) -> None:
    """Raise ToolClientError if a body has too many values to decode."""
    bodies = [message.get("body", b"") for message in messages]
    if sum(map(len, bodies)) > SMALL:
        await measure(b"".join(bodies), MAX_INLINE_VALUES)


def _plain_request(scope: Scope, first: Message) -> _PlainRequest | None:
    """Return a complete, well-formed request; None for anything else."""
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
    """Return the JSON-RPC request in a body, with parameters; None if it is anything else."""
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
    """The last events of one session, for a client that reconnects with the ID of its last event."""

    def __init__(self) -> None:
        self._events: deque[_Event] = deque(maxlen=_MOST_EVENTS)
        self._numbers = count(1)

    async def store_event(self, stream_id: str, message: JSONRPCMessage | None) -> str:
        """Store an event and return its ID."""
        event = _Event(next(self._numbers), stream_id, message)
        self._events.append(event)
        return str(event.number)

    async def replay_events_after(self, last_event_id: str, send_callback: EventCallback) -> str | None:
        """Send the events after an event on its stream; return None if the event was dropped."""
        last = next((event for event in self._events if str(event.number) == last_event_id), None)
        if last is None:
            return None
        for event in list(self._events):
            if event.stream == last.stream and event.number > last.number and event.message is not None:
                await send_callback(EventMessage(event.message, str(event.number)))
        return last.stream
