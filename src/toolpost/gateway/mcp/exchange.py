"""One request of an MCP client over HTTP, run where it arrives and answered with JSON or a stream of events.

The SDK's transport opens task groups, tasks and streams for every request, which costs several times as much as the
request itself. An exchange runs the SDK's server without its transport. The response is a JSON document, or a stream of
events if there is a message before the result or the call takes long.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING, Any

import anyio
from mcp.server.runner import modern_error_data
from mcp.shared.exceptions import NoBackChannelError
from mcp.shared.inbound import ERROR_CODE_HTTP_STATUS
from mcp.shared.jsonrpc_dispatcher import progress_token_from_params
from mcp.shared.message import ServerMessageMetadata
from mcp.shared.transport_context import TransportContext
from mcp_types.jsonrpc import CONNECTION_CLOSED
from starlette.requests import Request

from toolpost.gateway.mcp.event_streams import MessageStream, encode, notification
from toolpost.wire.http_server import ON_DISCONNECT

if TYPE_CHECKING:
    from collections.abc import Mapping

    from mcp.shared.dispatcher import CallOptions
    from starlette.types import Send

    from toolpost.gateway.mcp.requests import RequestRunner
    from toolpost.gateway.mcp.sessions import ClientSession

_OK = 200
# A response becomes a stream after this time. Proxies close connections that are idle for longer than the first; a
# client of protocol 2025-11-25 can resume its response once it is a stream.
_SILENT_S, _RESUMABLE_S = 15.0, 0.1
_GONE = {"code": CONNECTION_CLOSED, "message": "The client has disconnected"}


class McpExchange:
    """A request in progress: the SDK's dispatch context, which handlers use to send messages to the client.

    The client of a session can cancel its request, resume its response, and be sent requests. A stateless client
    cancels by closing the connection.
    """

    def __init__(
        self, request: Request, message: Mapping[str, Any], send: Send, session: ClientSession | None = None
    ) -> None:
        self.request_id: str | int = message["id"]
        self.request = request
        self._method: str = message["method"]
        self._params: Mapping[str, Any] = message["params"]
        self._send = send
        self._session = session
        self._stream = MessageStream(None if session is None else session.recent)
        self._is_stream = False
        self._is_primed = session is not None and session.is_resumable
        self._opening: asyncio.Task[None] | None = None
        self._running: asyncio.Task[Any] | None = None  # the handler
        self._cancelled_with: dict[str, Any] | None = None
        self.message_metadata = ServerMessageMetadata(
            request_context=request, close_sse_stream=self._disconnect if self._is_primed else None
        )

    async def run(self, runner: RequestRunner) -> None:
        """Handle the request and send the response."""
        loop, session = asyncio.get_running_loop(), self._session
        self._running = asyncio.current_task()
        if session is not None:
            session.begin(self)
        when_gone = self.request.scope.get(ON_DISCONNECT) if session is None else None
        if when_gone is not None:
            when_gone(partial(self.cancel, _GONE))
        silence = loop.call_later(_RESUMABLE_S if self._is_primed else _SILENT_S, self._break_silence)
        try:
            status, answer = await self._answer(runner)
        finally:
            silence.cancel()
            if when_gone is not None:
                when_gone(None)
            if session is not None:
                session.finish(self)
        if self._opening is not None:
            await self._opening
        await self._finish(status, {"jsonrpc": "2.0", "id": self.request_id, **answer})

    async def _answer(self, runner: RequestRunner) -> tuple[int, dict[str, Any]]:
        task, status = self._running, _OK
        answer: dict[str, Any] = {}
        try:
            answer = {"result": await runner.on_request(self, self._method, self._params)}
        except asyncio.CancelledError:
            if self._cancelled_with is None or task is None or task.cancelling() > 1:
                raise
        except Exception as error:  # noqa: BLE001 - the SDK converts it to a protocol error
            data = modern_error_data(error)
            answer = {"error": data.model_dump(by_alias=True, mode="json", exclude_none=True)}
            if self._session is None:  # other statuses would be errors of the session
                status = ERROR_CODE_HTTP_STATUS.get(data.code, _OK)
        finally:
            self._running = None
        if task is not None and self._cancelled_with is not None:
            task.uncancel()
            return _OK, {"error": self._cancelled_with}
        return status, answer

    def cancel(self, error: dict[str, Any]) -> None:
        """Cancel the request, unless it has ended; the response is this error."""
        if self._running is not None and self._cancelled_with is None:
            self._cancelled_with = error
            self._running.cancel()

    # ------------------------------------------------------------------ response

    async def _finish(self, status: int, message: dict[str, Any]) -> None:
        if self._is_stream:
            await self._stream.complete(message)
            return
        body = encode(message)
        headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(body))]
        if self._session is not None:
            headers.append(self._session.header)
        await self._send({"type": "http.response.start", "status": status, "headers": headers})
        await self._send({"type": "http.response.body", "body": body})

    async def _open_stream(self) -> None:
        """Turn the response into a stream of events, if it is not one yet."""
        if self._is_stream:
            return
        self._is_stream = True
        headers = () if self._session is None else (self._session.header,)
        await self._stream.open(self._send, headers, primed=self._is_primed)

    def _break_silence(self) -> None:
        self._opening = asyncio.get_running_loop().create_task(self._show_life())

    async def _show_life(self) -> None:
        await self._open_stream()
        if not self._is_primed:
            await self._stream.ping()

    async def _disconnect(self) -> None:
        """Close the connection; the client opens another one for the rest of the response."""
        await self._open_stream()
        await self._stream.close()

    # ------------------------------------------------------------------ the dispatch context of the SDK

    @property
    def transport(self) -> TransportContext:
        """The transport of the request."""
        headers = self.request.headers
        return TransportContext(kind="streamable-http", can_send_request=self.can_send_request, headers=headers)

    @property
    def can_send_request(self) -> bool:
        """Whether the client can be sent requests."""
        return self._session is not None and self._running is not None

    @property
    def cancel_requested(self) -> anyio.Event:
        """An event that is never set: cancellation cancels the handler."""
        return anyio.Event()

    async def send_raw_request(
        self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None
    ) -> dict[str, Any]:
        """Send a request to the client of a session and return its result."""
        if self._session is None or not self.can_send_request:
            raise NoBackChannelError(method)
        await self._open_stream()
        return await self._session.request(self._stream, method, params)

    async def notify(self, method: str, params: Mapping[str, Any] | None, opts: CallOptions | None = None) -> None:
        """Send a notification to the client, which turns the response into a stream."""
        if self._running is not None:  # there is nothing after the response
            await self._open_stream()
            await self._stream.send(notification(method, params))

    async def progress(self, progress: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress if the client requested it."""
        token = progress_token_from_params(self._params)
        if token is None:
            return
        params = {"progressToken": token, "progress": progress, "total": total, "message": message}
        await self.notify("notifications/progress", {key: value for key, value in params.items() if value is not None})
