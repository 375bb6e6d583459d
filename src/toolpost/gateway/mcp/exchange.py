"""One request of a stateless MCP client, run where it arrives and answered with JSON or a stream of events.

The SDK's transport opens a task group, two tasks and a stream for every request, which costs several times as much as
the request itself. An exchange runs the SDK's server without its transport. The response is a JSON document, or a
stream of events if there is a notification before the result or the call takes long.
"""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.connection import Connection
from mcp.server.runner import ServerRunner, modern_error_data
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import (
    ERROR_CODE_HTTP_STATUS,
    InboundModernRoute,
)
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from starlette.requests import Request

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.server.lowlevel import Server
    from mcp.shared.dispatcher import CallOptions
    from starlette.types import Receive, Send


_OK = 200
_PING_S = 15.0  # proxies close connections that are idle for longer
_PING = b": ping\r\n\r\n"
_STREAM = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache, no-transform"),
    (b"connection", b"keep-alive"),
    (b"x-accel-buffering", b"no"),
]


class McpExchange:
    """A request in progress: the SDK's dispatch context, which handlers use to send notifications."""

    can_send_request = False  # stateless servers send no requests

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
        """Handle the request and send the response; a disconnect of the client cancels it."""
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        watching = loop.create_task(self._watch(receive, task))
        silence = loop.call_later(_PING_S, self._keep_alive)
        try:
            status, answer = await self._answer(server, route, state)
        except asyncio.CancelledError:
            if task is None or not self._is_gone or task.uncancel():
                raise
            return  # the client has disconnected
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
        except Exception as error:  # noqa: BLE001 - the SDK converts it to a protocol error
            data = modern_error_data(error)
            plain = data.model_dump(by_alias=True, mode="json", exclude_none=True)
            return ERROR_CODE_HTTP_STATUS.get(data.code, _OK), {"error": plain}
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
        """Send an event, and before the first one the head of the stream; several tasks may send concurrently."""
        async with self._turn:
            if not self._is_stream:
                self._is_stream = True
                await self._send({"type": "http.response.start", "status": _OK, "headers": _STREAM})
            await self._send({"type": "http.response.body", "body": event, "more_body": not last})

    # ------------------------------------------------------------------ the dispatch context of the SDK

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: a client cancels by closing the connection."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Reject requests to the client: results contain them instead."""
        raise NoBackChannelError(method)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification to the client, which turns the response into a stream."""
        await self._send_event(_event({"jsonrpc": "2.0", "method": method, **({"params": params} if params else {})}))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress if the client requested it."""
        token = progress_token_from_params(self._params)
        if token is None:
            return
        params = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: value for key, value in params.items() if value is not None})


def _event(message: Mapping[str, Any]) -> bytes:
    return f"event: message\r\ndata: {json.dumps(message, separators=(',', ':'))}\r\n\r\n".encode()
