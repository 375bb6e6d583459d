"""MCP over HTTP: the checks of a request, and the response to each kind of message, with and without a session."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from mcp.server.connection import Connection
from mcp.server.streamable_http import check_accept_headers
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    MCP_PROTOCOL_VERSION_HEADER,
    InboundLadderRejection,
    InboundModernRoute,
    classify_inbound_request,
    find_duplicated_routing_header,
    unsupported_protocol_version_rejection,
    validate_mcp_param_headers,
)
from mcp_types import INTERNAL_ERROR, JSONRPCNotification, JSONRPCRequest, jsonrpc_message_adapter
from mcp_types.jsonrpc import HEADER_MISMATCH, INVALID_REQUEST, PARSE_ERROR
from mcp_types.version import HANDSHAKE_PROTOCOL_VERSIONS
from pydantic import ValidationError
from starlette.requests import Request
from starlette.responses import Response

from toolpost.contracts.errors import ToolClientError
from toolpost.gateway.access import CALLER
from toolpost.gateway.mcp.exchange import McpExchange
from toolpost.gateway.mcp.requests import CallTool, RequestRunner
from toolpost.gateway.mcp.sessions import SESSION_HEADER, ClientSession, ClientSessions
from toolpost.gateway.problems import ProblemResponse
from toolpost.processes.json_documents import measure
from toolpost.schema.json_size import MAX_INLINE_VALUES, SMALL
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Hashable, Mapping

    from mcp.server.lowlevel import Server
    from starlette.types import Receive, Scope, Send

    from toolpost.contracts.callers import Caller

EncodedList: TypeAlias = "Callable[[str, Scope], bytes | None]"
_MAX_BODY = 4_000_000
_JSON, _EVENTS = "application/json", "text/event-stream"
_USUAL_ACCEPT = f"{_JSON}, {_EVENTS}"
_LAST_EVENT_HEADER = "last-event-id"
_NOT_FOUND = "Session not found"
_NO_MESSAGE = "the body must be one JSON-RPC request, notification or response"
_BOTH_KINDS = f"Not Acceptable: the client must accept {_JSON} and {_EVENTS}"


class McpEndpoint:
    """An ASGI application that serves an MCP server to stateless clients, and to clients that open a session.

    `listed` returns the cached result of `tools/list` as JSON, so that it is not encoded for every client. Usual calls
    of tools are passed to `call_tool`, if it is given, instead of the server. The caller of a request is in its scope;
    hosts and origins are checked before.
    """

    def __init__(
        self, server: Server[Any], *, listed: EncodedList | None = None, call_tool: CallTool | None = None
    ) -> None:
        self._server = server
        self._listed = listed
        self._call_tool = call_tool
        self._sessions = ClientSessions(self._runner_of)
        self._state: Any = None

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Serve requests while this is open."""
        async with self._server.lifespan(self._server) as self._state, self._sessions.running():
            yield

    def _runner_of(self, connection: Connection) -> RequestRunner:
        return RequestRunner(self._server, connection, self._state, self._call_tool)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        answer = await self._answer(_Arrived(Request(scope), headers, receive, send))
        if answer is not None:
            await answer(scope, receive, send)

    async def _answer(self, arrived: _Arrived) -> Response | None:
        """Handle a request; return the response, or None if it was sent."""
        request, headers = arrived.request, arrived.headers
        version = headers.get(MCP_PROTOCOL_VERSION_HEADER)
        is_stateless = version is not None and version not in HANDSHAKE_PROTOCOL_VERSIONS
        if request.method != "POST":
            return _wrong_method("POST") if is_stateless else await self._answer_in_session(arrived)
        length = headers.get("content-length", "")
        if length.isdecimal() and int(length) > _MAX_BODY:
            return _too_large()
        if not headers.get("content-type", "").lower().startswith(_JSON):
            return Response(f"Content-Type must be {_JSON}", status_code=400)
        if headers.get("accept") != _USUAL_ACCEPT and not all(check_accept_headers(request)):
            return _refusal(INVALID_REQUEST, _BOTH_KINDS, status=406)
        body = await _read_body(arrived)
        if isinstance(body, Response):
            return body
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            return _refusal(PARSE_ERROR, "Parse error: the body is not JSON")
        if version is not None and is_stateless:
            return await self._answer_stateless(arrived, message, version)
        return await self._take_message(arrived, message)

    # ------------------------------------------------------------------ stateless clients

    async def _answer_stateless(self, arrived: _Arrived, decoded: Any, version: str) -> Response | None:
        if is_object(decoded) and "id" not in decoded:
            return _acknowledge(decoded, version)
        message = _request_in(decoded)
        if message is None:
            return _refusal(INVALID_REQUEST, _NO_MESSAGE)
        route = self._route(arrived, message)
        if isinstance(route, InboundLadderRejection):
            return _rejection(route, message["id"])
        listed = self._encoded_list(message, version, arrived.request)
        if listed is not None:
            return listed
        connection = Connection.from_envelope(route.protocol_version, route.client_info, route.client_capabilities)
        async with connection.exit_stack:
            await McpExchange(arrived.request, message, arrived.send).run(self._runner_of(connection))
        return None

    def _route(self, arrived: _Arrived, message: Mapping[str, Any]) -> InboundModernRoute | InboundLadderRejection:
        """Return the SDK's class of a request, or the reason why the SDK rejects it: headers and body must match."""
        request, headers = arrived.request, arrived.headers
        if len(headers) < len(request.headers):
            repeated = find_duplicated_routing_header(request.headers.items())
            if repeated is not None:
                return InboundLadderRejection(HEADER_MISMATCH, f"{repeated} header appears more than once")
        route = classify_inbound_request(message, headers=headers)
        lookup = self._server.get_tool_input_schema
        if isinstance(route, InboundLadderRejection) or message["method"] != "tools/call" or lookup is None:
            return route
        name, arguments = message["params"].get("name"), message["params"].get("arguments", {})
        schema = lookup(name) if isinstance(name, str) and is_object(arguments) else None
        mismatch = None if schema is None else validate_mcp_param_headers(schema, arguments, request.headers)
        return mismatch or route

    # ------------------------------------------------------------------ clients with a session

    async def _answer_in_session(self, arrived: _Arrived) -> Response | None:
        """Answer a GET, which opens a stream, or a DELETE, which ends the session."""
        request = arrived.request
        if request.method not in ("GET", "DELETE"):
            return _wrong_method("GET, POST, DELETE")
        if request.method == "GET" and not check_accept_headers(request)[1]:
            return _refusal(INVALID_REQUEST, f"Not Acceptable: the client must accept {_EVENTS}", status=406)
        session = self._session_of(arrived)
        if isinstance(session, Response):
            return session
        if request.method == "DELETE":
            await self._sessions.end(session)
            return Response(headers={SESSION_HEADER: session.id})
        last_event = arrived.headers.get(_LAST_EVENT_HEADER)
        if last_event:
            await session.resume(last_event, arrived.receive, arrived.send)
        elif session.is_listening:
            return _refusal(INVALID_REQUEST, "Conflict: Only one SSE stream is allowed per session", status=409)
        else:
            await session.listen(arrived.receive, arrived.send)
        return None

    async def _take_message(self, arrived: _Arrived, decoded: Any) -> Response | None:
        message = _message_in(decoded)
        if message is None:
            return _refusal(INVALID_REQUEST, _NO_MESSAGE)
        request, method = arrived.request, message.get("method")
        if method == "initialize" and SESSION_HEADER not in arrived.headers and "id" in message:
            return await self._open_session(arrived, message)
        session = self._session_of(arrived)
        if isinstance(session, Response):
            return session
        if method is None:
            session.take_response(message)
            return Response(status_code=202)
        if "id" not in message:
            await Response(status_code=202)(request.scope, arrived.receive, arrived.send)
            if method == "notifications/cancelled":
                session.cancel_request(message["params"])
            context = McpExchange(request, {**message, "id": None}, arrived.send, session)
            await session.runner.on_notify(context, method, message["params"])
            return None
        listed = self._encoded_list(message, session.protocol_version, request)
        if listed is not None:
            session.touch()
            return listed
        await McpExchange(request, message, arrived.send, session).run(session.runner)
        return None

    async def _open_session(self, arrived: _Arrived, message: dict[str, Any]) -> Response | None:
        session = await self._sessions.open(_owner_of(arrived.request))
        if session is None:
            return _refusal(INTERNAL_ERROR, "Too many open sessions", status=503)
        try:
            await McpExchange(arrived.request, message, arrived.send, session).run(session.runner)
        finally:
            if not session.is_open:
                await self._sessions.end(session)
        return None

    def _session_of(self, arrived: _Arrived) -> ClientSession | Response:
        session_id = arrived.headers.get(SESSION_HEADER)
        if session_id is None:
            return _refusal(INVALID_REQUEST, "Bad Request: Missing session ID")
        # A session of another caller must look like one that does not exist.
        session = self._sessions.find(session_id, _owner_of(arrived.request))
        return session or _refusal(INVALID_REQUEST, _NOT_FOUND, status=404)

    # ------------------------------------------------------------------ lists

    def _encoded_list(self, message: Mapping[str, Any], version: str, request: Request) -> Response | None:
        if message["method"] != "tools/list" or message["params"].keys() - {"_meta"} or self._listed is None:
            return None
        result = self._listed(version, request.scope)
        if result is None:
            return None
        head = f'{{"jsonrpc":"2.0","id":{json.dumps(message["id"])},"result":'.encode()
        return Response(b"".join((head, result, b"}")), media_type=_JSON)


class _Arrived(NamedTuple):
    """A request with the functions of its connection."""

    request: Request
    headers: dict[str, str]
    receive: Receive
    send: Send


def _owner_of(request: Request) -> Hashable:
    """Return who may use the sessions that this request opens."""
    caller: Caller | None = request.scope.get(CALLER)
    return None if caller is None else (caller.id, caller.principal)


async def _read_body(arrived: _Arrived) -> bytes | Response:
    """Return the body of a request, or the response that rejects it: it is too large or has too many values."""
    parts, size, has_more = list[bytes](), 0, True
    while has_more:
        message = await arrived.receive()
        parts.append(message.get("body", b""))
        size, has_more = size + len(parts[-1]), message.get("more_body", False)
        if size > _MAX_BODY:
            return _too_large()
    body = b"".join(parts)
    if size > SMALL:
        try:
            await measure(body, MAX_INLINE_VALUES)
        except ToolClientError as error:
            return ProblemResponse(413, error.error_code, error.message)
    return body


def _too_large() -> Response:
    return Response("Request body too large", status_code=413)


def _request_in(decoded: Any) -> dict[str, Any] | None:
    """Return a JSON-RPC request, with parameters; None for anything else."""
    message = _message_in(decoded)
    return message if message is not None and "id" in message and "method" in message else None


def _message_in(decoded: Any) -> dict[str, Any] | None:
    """Return a JSON-RPC message; None for anything else. Requests and notifications have parameters."""
    if is_object(decoded) and _is_usual_request(decoded):
        decoded.setdefault("params", {})
        return decoded
    try:
        message = jsonrpc_message_adapter.validate_python(decoded, by_name=False)
    except ValidationError:
        return None
    if isinstance(message, JSONRPCNotification) and "id" in decoded:  # a request whose ID is invalid
        return None
    plain: dict[str, Any] = message.model_dump(by_alias=True, mode="json", exclude_unset=True)
    if isinstance(message, JSONRPCRequest | JSONRPCNotification):
        plain["params"] = message.params or {}
    return plain


def _is_usual_request(decoded: dict[str, Any]) -> bool:
    """Return whether this is a JSON-RPC request with the usual members, which validation would return unchanged."""
    if decoded.keys() - {"params"} != {"jsonrpc", "id", "method"}:
        return False
    number, method = decoded["id"], decoded["method"]
    is_numbered = isinstance(number, str | int) and not isinstance(number, bool)
    has_params = is_object(decoded.get("params", {}))
    return decoded["jsonrpc"] == "2.0" and isinstance(method, str) and is_numbered and has_params


def _acknowledge(decoded: dict[str, Any], version: str) -> Response:
    """Accept a notification of a stateless client: this protocol has none that a server must handle."""
    try:
        JSONRPCNotification.model_validate(decoded)
    except ValidationError:
        return _refusal(INVALID_REQUEST, _NO_MESSAGE)
    unsupported = unsupported_protocol_version_rejection(version)
    return Response(status_code=202) if unsupported is None else _rejection(unsupported, None)


def _wrong_method(allowed: str) -> Response:
    return Response(status_code=405, headers={"Allow": allowed})


def _rejection(rejection: InboundLadderRejection, number: str | int | None) -> Response:
    return _refusal(rejection.code, rejection.message, number=number, data=rejection.data)


def _refusal(
    code: int, message: str, *, status: int | None = None, number: str | int | None = None, data: Any = None
) -> Response:
    """Return an error as a JSON-RPC message."""
    error = {"code": code, "message": message, **({} if data is None else {"data": data})}
    body = json.dumps({"jsonrpc": "2.0", "id": number, "error": error}, separators=(",", ":"))
    return Response(body, status or ERROR_CODE_HTTP_STATUS.get(code, 400), media_type=_JSON)
