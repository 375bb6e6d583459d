"""MCP over streamable HTTP, with sessions and resumption of broken streams.

A failed POST fails its own request and no other. The error of the request contains
facts that only the transport knows, such as the status.
"""

from __future__ import annotations

import asyncio
import codecs
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from mcp import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS

from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.sources.mcp.errors import describe_too_long
from toolpost.sources.mcp.http_requests import (
    EVENT_HEADERS,
    LAST_POSTS_S,
    MAX_REFUSAL_BYTES,
    HttpRequests,
    ResponseHead,
    ServerConnection,
    error_with_facts,
    refusal,
)
from toolpost.sources.mcp.jsonrpc import (
    LARGE_MESSAGE,
    JsonRpc,
    PendingRequest,
    encode_message,
    read_large,
    read_messages,
)
from toolpost.sources.mcp.peer_requests import Message
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.redirects import REDIRECTS
from toolpost.wire.targets import join_url

if TYPE_CHECKING:
    from toolpost.wire.http1 import Exchange

_SESSION_ID = "mcp-session-id"
_LAST_EVENT_ID = "last-event-id"
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_EVENT_STREAM = "text/event-stream"
_JSON = "application/json"
_MAX_ATTEMPTS = 2  # to resume a broken stream
_RETRY_MS = 1000
_NOTICE_S = 5.0


class StreamableHttp:
    """Link over streamable HTTP: every message is a POST, whose response is JSON or a stream of events."""

    def __init__(
        self, connection: ServerConnection, url: str, network: NetworkPolicy, *, on_end: Callable[[], None]
    ) -> None:
        self._http = HttpRequests(connection, url, network)
        self._on_end = on_end
        self._url = url
        self._rpc: JsonRpc | None = None
        self._session_id: str | None = None
        self._version: str | None = None
        self._notices: set[asyncio.Task[Any]] = set()

    async def run(self, rpc: JsonRpc) -> None:
        """Wait until the session ends; the tasks of requests deliver the responses."""
        self._rpc = rpc
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        try:
            if self._notices:
                _, late = await asyncio.wait(self._notices, timeout=LAST_POSTS_S)
                for notice in late:
                    notice.cancel()
            if self._session_id is not None:
                with suppress(ToolError, TimeoutError):
                    async with asyncio.timeout(_NOTICE_S):
                        answer = await self._http.send("DELETE", self._url, self._headers(None))
                        await self._http.read(answer, MAX_REFUSAL_BYTES)
        finally:
            await self._http.close()

    def request(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        """Post a request, immediately if a connection is idle, otherwise in a task."""
        if pending.method == "initialize":
            self._version = None  # it negotiates the version again
        elif headers is not None:
            self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        rpc, body, fields = self._open_rpc, encode_message(message), self._headers(headers)
        exchange = self._http.begin(fields, body)
        if exchange is None:
            send = partial(self._http.send, "POST", self._url, fields, body)
            pending.stop = rpc.start(self._finish(send, pending)).cancel
        else:
            pending.stop = exchange.abandon
            exchange.on_news = partial(self._on_news, exchange, pending, fields, body)

    @property
    def _open_rpc(self) -> JsonRpc:
        if self._rpc is None:
            raise ToolConnectionError("the MCP connection is not open", sent=False)
        return self._rpc

    async def send(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Post a notification or a response, and wait until the server has it, to keep the order of messages."""
        if headers is not None:
            self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        with suppress(ToolError):  # a lost notification must not end the session
            answer = await self._http.send("POST", self._url, self._headers(headers), encode_message(message))
            await self._http.read(answer, MAX_REFUSAL_BYTES)
        if message.get("method") == "notifications/initialized" and self._session_id is not None:
            self._open_rpc.start(self._listen())

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        """Close the response; the older protocol requires a notification as well."""
        if self._version not in MODERN_PROTOCOL_VERSIONS:
            sending = asyncio.get_running_loop().create_task(self._send_notice(notice))
            self._notices.add(sending)
            sending.add_done_callback(self._notices.discard)
        if pending.stop is not None:
            pending.stop()

    def hang_up(self) -> None:
        self._on_end()

    async def _send_notice(self, notice: Message) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_S):
                await self.send(notice)

    def _headers(self, more: Mapping[str, str] | None) -> dict[str, str]:
        headers = dict(_ACCEPT)
        if self._session_id is not None:
            headers[_SESSION_ID] = self._session_id
        if self._version is not None:
            headers[MCP_PROTOCOL_VERSION_HEADER] = self._version
        if more is not None:
            headers.update(more)
        return headers

    # ------------------------------------------------------------------ responses

    def _on_news(self, exchange: Exchange, pending: PendingRequest, headers: Mapping[str, str], body: bytes) -> None:
        """Deliver a small response that has arrived completely; start a task to read any other."""
        if pending.future.done():
            exchange.abandon()
            return
        rpc, answer = self._open_rpc, ResponseHead(exchange.status, exchange.headers, exchange, self._url)
        small = exchange.whole and exchange.ahead_bytes <= LARGE_MESSAGE
        if not small or pending.method == "initialize" or not _is_plain_json(answer):
            go_on = partial(self._http.go_on, exchange, headers, body)
            pending.stop = rpc.start(self._finish(go_on, pending)).cancel
            return
        try:
            messages = read_messages(self._find_message(answer, exchange.take()))
            self._receive(messages, pending)
            _require_response(pending)
        except Exception as error:  # noqa: BLE001 - the waiting request must end
            rpc.fail(pending, error)

    async def _finish(self, find_answer: Callable[[], Awaitable[ResponseHead]], pending: PendingRequest) -> None:
        """Wait for the head of a response and read the rest; any failure fails the request."""
        try:
            answer = await find_answer()
            try:
                await self._read_answer(answer, pending)
            finally:
                if not answer.exchange.whole:
                    await answer.exchange.close()
        except (ToolError, MCPError) as error:
            self._open_rpc.fail(pending, error)

    async def _read_answer(self, answer: ResponseHead, pending: PendingRequest) -> None:
        if answer.status >= 400:
            unknown = answer.status == HTTPStatus.NOT_FOUND and self._session_id is None
            body = await self._http.read(answer, MAX_REFUSAL_BYTES) or b""
            raise refusal(answer, body, code=METHOD_NOT_FOUND if unknown else INVALID_REQUEST)
        if answer.status in REDIRECTS:
            location = join_url(answer.url, answer.headers.get("location") or "").partition("?")[0].partition("#")[0]
            raise MCPError(
                code=INVALID_REQUEST,
                message=f"the redirect to {location} was not followed; use that address if it is the server's",
            )
        if answer.status == HTTPStatus.ACCEPTED:
            raise MCPError(code=INVALID_REQUEST, message="the server answered a request with 202 Accepted")
        if pending.method == "initialize":
            self._session_id = answer.headers.get(_SESSION_ID) or self._session_id
        if answer.headers.media_type == _EVENT_STREAM:
            await self._read_events(answer, pending)
        elif answer.status == HTTPStatus.OK:
            read = await self._http.read(answer, self._http.limit)
            await self._deliver(self._find_message(answer, read), pending)
            _require_response(pending)
        else:
            raise MCPError(code=INVALID_REQUEST, message=f"the server answered HTTP {answer.status} without a message")

    def _find_message(self, answer: ResponseHead, body: bytes | None) -> bytes:
        """Return the JSON in a body; raise an error if there is none, or too much."""
        limit = self._http.limit
        if body is None or len(body) > limit:
            size = answer.headers.get("content-length") or ""
            text, facts = describe_too_long(int(size) if size.isdecimal() else limit + 1, limit)
            raise error_with_facts(text, facts)
        body = body.removeprefix(codecs.BOM_UTF8).lstrip()
        if body[:1] not in (b"{", b"["):
            kind = answer.headers.media_type or "something"
            text = f"the server answered with {kind} in place of a message; is this the right address?"
            raise error_with_facts(text, {"kind": "unreadable"})
        return body

    async def _deliver(self, text: str | bytes, pending: PendingRequest | None) -> bool:
        """Deliver the messages of a body or an event; return whether the response to the request was among them."""
        large = len(text) > LARGE_MESSAGE
        messages = await read_large(text, self._http.values) if large else read_messages(text)
        answered = self._receive(messages, pending)
        if pause_s := self._open_rpc.due_pause():
            await asyncio.sleep(pause_s)
        return answered

    def _receive(self, messages: list[Message], pending: PendingRequest | None) -> bool:
        answered = False
        for message in messages:
            if "method" not in message and pending is not None:
                message["id"] = pending.id  # what comes by this response answers this request
                answered = True
            self._open_rpc.receive(message)
        return answered

    async def _read_events(self, answer: ResponseHead, pending: PendingRequest) -> None:
        """Deliver the events of a response; resume a stream that ended before the response arrived."""
        last_id, retry_ms, attempts = "", _RETRY_MS, 0
        while True:
            try:
                async for event in self._http.events(answer):
                    last_id, attempts = event.event_id or last_id, 0
                    retry_ms = retry_ms if event.retry_ms is None else event.retry_ms
                    if event.kind == "message" and event.data and await self._deliver(event.data, pending):
                        return
            except ToolConnectionError:
                pass  # the stream broke
            if not last_id:
                raise ToolConnectionError("MCP connection failed: SSE stream ended without a response")
            answer, attempts = await self._resume(last_id, retry_ms, attempts)

    async def _resume(self, last_id: str, retry_ms: int, attempts: int) -> tuple[ResponseHead, int]:
        """Resume a broken stream after its last event; return it with the number of attempts since an event arrived."""
        while attempts < _MAX_ATTEMPTS:
            await asyncio.sleep(retry_ms / 1000)
            attempts += 1
            with suppress(ToolConnectionError):
                answer = await self._open_stream(last_id)
                if answer is not None:
                    return answer, attempts
        raise ToolConnectionError("MCP connection failed: SSE stream ended and could not be resumed")

    async def _open_stream(self, last_id: str) -> ResponseHead | None:
        headers = {**self._headers(None), **EVENT_HEADERS, **({_LAST_EVENT_ID: last_id} if last_id else {})}
        answer = await self._http.send("GET", self._url, headers)
        if answer.status == HTTPStatus.OK and answer.headers.media_type == _EVENT_STREAM:
            return answer
        await answer.exchange.close()
        return None

    async def _listen(self) -> None:
        """Receive messages that do not belong to a request, while the server supports that."""
        last_id, retry_ms, failures = "", _RETRY_MS, 0
        while failures < _MAX_ATTEMPTS:
            try:
                answer = await self._open_stream(last_id)
                if answer is None:
                    return
                async for event in self._http.events(answer):
                    last_id = event.event_id or last_id
                    retry_ms = retry_ms if event.retry_ms is None else event.retry_ms
                    if event.kind == "message" and event.data:
                        await self._deliver(event.data, None)
                failures = 0
            except ToolError:
                failures += 1
            # Wait at least _RETRY_MS: a server that closes every stream immediately would be polled in a tight loop.
            await asyncio.sleep(max(retry_ms, _RETRY_MS) / 1000)


def _is_plain_json(answer: ResponseHead) -> bool:
    """Whether a response is a message, neither compressed nor a stream."""
    return (
        answer.status == HTTPStatus.OK
        and answer.headers.media_type == _JSON
        and "content-encoding" not in answer.headers
    )


def _require_response(pending: PendingRequest) -> None:
    if not pending.future.done():
        raise error_with_facts("the server's answer has no response in it", {"kind": "unreadable"})
