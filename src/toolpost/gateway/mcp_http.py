"""MCP over HTTP: who may connect, sessions, lists encoded once, and results kept for clients that were cut off.

The SDK's transport opens a task group, two tasks and a stream for every request, which costs several times what serving
it does. Here a request of the newer protocol is run where it arrives, by the SDK's server without its transport. Its
answer is a JSON document, or a stream of events once there is something to say before the result: a notification, or
that a long call still runs.
"""

from __future__ import annotations

import asyncio
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
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, modern_error_data
from mcp.server.streamable_http import MCP_SESSION_ID_HEADER, EventMessage, EventStore, check_accept_headers
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from mcp.server.transport_security import TransportSecuritySettings
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
    validate_mcp_param_headers,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from starlette.requests import Request
from starlette.responses import Response

from toolpost.contracts.errors import ToolClientError
from toolpost.gateway.access import CALLER
from toolpost.gateway.problems import ProblemResponse
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_INLINE_VALUES, SMALL
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from mcp.server.auth.middleware.bearer_auth import AuthorizationContext
    from mcp.server.lowlevel import Server
    from mcp.server.streamable_http import EventCallback, StreamableHTTPServerTransport
    from mcp.shared.dispatcher import CallOptions
    from mcp_types import JSONRPCMessage
    from starlette.types import Message, Receive, Scope, Send

    from toolpost.contracts.callers import Caller
    from toolpost.gateway.mcp_server import McpServer

_OK = 200
_PING_S = 15.0  # proxies close a connection that is silent for longer
_PING = b": ping\r\n\r\n"
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]
EncodedList: TypeAlias = "Callable[[str, Scope], bytes | None]"

_MAX_BODY = 4_000_000
_JSON_TYPE, _USUAL_ACCEPT = "application/json", "application/json, text/event-stream"
_LOOPBACK = ("127.0.0.1", "localhost", "[::1]")
_MOST_EVENTS = 100
_MOST_SESSIONS, _MOST_OF_CALLER = 2000, 500  # one has about 200 KB
_IDLE_S = 1800.0  # a session without a request for so long is ended
_RETRY_MS = 1000


class McpExchange:
    """A request that is being answered: the SDK's dispatch context of it, by which a handler sends notifications."""

    can_send_request = False  # servers of the newer protocol send none

    def __init__(self, request: Request, message: Mapping[str, Any], send: Send) -> None:
        self.transport = TransportContext(kind="streamable-http", can_send_request=False, headers=request.headers)
        self.request_id: str | int = message["id"]
        self.message_metadata = ServerMessageMetadata(request_context=request)
        self._method: str = message["method"]
        self._params: Mapping[str, Any] = message["params"]
        self._send = send
        self._turn = asyncio.Lock()
        self._is_stream = False
        self._is_gone = False
        self._pinging: asyncio.Task[None] | None = None

    async def run(self, server: Server[Any], route: InboundModernRoute, state: Any, receive: Receive) -> None:
        """Serve the request and answer it; a client that goes away cancels it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        watching = loop.create_task(self._watch(receive, task))
        silence = loop.call_later(_PING_S, self._keep_alive)
        try:
            status, answer = await self._answer(server, route, state)
        except asyncio.CancelledError:
            if task is None or not self._is_gone or task.uncancel():
                raise
            return  # nobody is there to be answered
        finally:
            watching.cancel()
            silence.cancel()
            if self._pinging is not None:
                self._pinging.cancel()
        await self._finish(status, {"jsonrpc": "2.0", "id": self.request_id, **answer})

    async def _answer(self, server: Server[Any], route: InboundModernRoute, state: Any) -> tuple[int, dict[str, Any]]:
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        try:
            async with connection.exit_stack:
                result = await ServerRunner(server, connection, state).on_request(self, self._method, self._params)
        except Exception as error:  # noqa: BLE001 - the SDK says what clients are told of it
            told = modern_error_data(error)
            plain = told.model_dump(by_alias=True, mode="json", exclude_none=True)
            return ERROR_CODE_HTTP_STATUS.get(told.code, _OK), {"error": plain}
        return _OK, {"result": result}

    async def _finish(self, status: int, message: dict[str, Any]) -> None:
        if self._is_stream:
            await self._send_event(_event(message), last=True)
            return
        body = json.dumps(message, separators=(",", ":")).encode()
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _watch(self, receive: Receive, task: asyncio.Task[Any] | None) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._is_gone = True
        if task is not None:
            task.cancel()

    def _keep_alive(self) -> None:
        self._pinging = asyncio.get_running_loop().create_task(self._ping())

    async def _ping(self) -> None:
        while True:
            await self._send_event(_PING)
            await asyncio.sleep(_PING_S)

    async def _send_event(self, event: bytes, *, last: bool = False) -> None:
        """Send an event, before the first the head of the stream; several tasks may have something to send."""
        async with self._turn:
            if not self._is_stream:
                self._is_stream = True
                await self._send({"type": "http.response.start", "status": _OK, "headers": _STREAM})
            await self._send({"type": "http.response.body", "body": event, "more_body": not last})

    # ------------------------------------------------------------------ what handlers use

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: a client cancels by closing the connection."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Refuse to ask the client anything: it is told in results what is wanted of it."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification to the client, which makes the answer a stream."""
        await self._send_event(_event({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress, if the client asked for it."""
        token = progress_token_from_params(self._params)
        if token is None:
            return
        told = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: value for key, value in told.items() if value is not None})


def _event(message: Mapping[str, Any]) -> bytes:
    return f"event: message\r\ndata: {json.dumps(message, separators=(',', ':'))}\r\n\r\n".encode()


def gateway_sessions(mcp: McpServer) -> StreamableHTTPSessionManager:
    """Return the sessions of an MCP server behind `Access`, which has looked at host and origin already."""

    def listed(version: str, scope: Scope) -> bytes | None:
        return mcp.encoded_list(version, str(scope[CALLER].principal))

    return http_sessions(mcp.server, check_hosts=False, listed=listed)


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
        max_sessions=_MOST_SESSIONS,
        session_idle_timeout=_IDLE_S,
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
        if session not in self._server_instances or self._session_owners.get(session) != owner:
            return False
        idle = self._server_instances[session].idle_scope
        if idle is not None and idle.deadline < math.inf:  # this request, too, shows that the session is used
            idle.deadline = anyio.current_time() + _IDLE_S
        return version in HANDSHAKE_PROTOCOL_VERSIONS

    def _admit_session(self, requestor: AuthorizationContext | None) -> StreamableHTTPServerTransport | None:
        """Open a session; None where there are too many.

        Clients forget to end sessions: of a caller with many of them the one that was idle for longest is ended, so
        that neither this caller nor others are refused.
        """
        own = [session for session, owner in self._session_owners.items() if owner == requestor]
        if len(own) >= _MOST_OF_CALLER:
            scopes = {session: self._server_instances[session].idle_scope for session in own}
            idle = {session: scope for session, scope in scopes.items() if scope and scope.deadline < math.inf}
            if not idle:
                return None
            oldest = min(idle, key=lambda session: idle[session].deadline)
            del self._server_instances[oldest], self._session_owners[oldest]
            idle[oldest].cancel()
        return super()._admit_session(requestor)

    @property
    def event_store(self) -> EventStore:
        """The store of the next session."""
        return RecentEvents()

    @event_store.setter
    def event_store(self, given: EventStore | None) -> None:
        """Take no other store."""


@lru_cache(maxsize=1000)
def _sdk_user(caller: Caller) -> AuthenticatedUser:
    """Return a caller as the SDK has users; it ties a session to the one that opened it."""
    token = AccessToken(token="", client_id=caller.id, scopes=list(caller.scopes), subject=str(caller.principal))
    return AuthenticatedUser(token)


class _PlainRequest(NamedTuple):
    """A request with nothing odd about it; `route` is what the SDK makes of one of the newer protocol."""

    request: Request
    message: dict[str, Any]
    route: InboundModernRoute | None


async def _receive_body(receive: Receive) -> list[Message]:
    """Receive the messages of a body, up to the first that makes it too large, which the SDK refuses."""
    messages = [await receive()]
    size = len(messages[0].get("body", b""))
    while messages[-1].get("more_body") and size <= _MAX_BODY:
        messages.append(await receive())
        size += len(messages[-1].get("body", b""))
    return messages


async def _measure(messages: Sequence[Message]) -> None:
    """Raise ToolClientError where a body has too many values to be decoded."""
    bodies = [message.get("body", b"") for message in messages]
    if sum(map(len, bodies)) > SMALL:
        await measure(b"".join(bodies), MAX_INLINE_VALUES)


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
