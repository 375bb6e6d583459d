"""MCP over HTTP on the guarded client: streamable HTTP with its sessions and resumption, and the older SSE transport.

A failed POST fails its own request and no other. What only this side knows of a failure, such as the status, travels
with the error of the request.
"""

from __future__ import annotations

import asyncio
import codecs
from contextlib import suppress
from functools import partial
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from mcp import MCPError
from mcp.shared.inbound import MCP_PROTOCOL_VERSION_HEADER
from mcp_types import INVALID_REQUEST, METHOD_NOT_FOUND
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic_core import from_json

from toolpost.auth.oauth.jose import dpop_nonce
from toolpost.contracts.errors import ToolConnectionError, ToolError
from toolpost.schema.json_size import JsonLimits
from toolpost.schema.json_values import is_object
from toolpost.sources.mcp.errors import FACTS_KEY, describe_too_long, split_messages
from toolpost.sources.mcp.jsonrpc import LARGE_MESSAGE, encode_message, read_large, read_messages
from toolpost.web.content import SseDecoder
from toolpost.wire.client import HttpClient, default_transport
from toolpost.wire.messages import (
    MANAGED_HEADERS,
    REDIRECTS,
    Headers,
    Pairs,
    Request,
    body_decoder,
    clean_headers,
    parse_retry_after,
)
from toolpost.wire.network import check_credential_origin, join_url, parse_target

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

    from toolpost.contracts.calls import Credential
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.mcp.jsonrpc import JsonRpc, Message, PendingRequest
    from toolpost.wire.http1 import Exchange
    from toolpost.wire.network import NetworkPolicy

_SESSION_ID = "mcp-session-id"
_LAST_EVENT_ID = "last-event-id"
_ACCEPT = {"accept": "application/json, text/event-stream", "content-type": "application/json"}
_EVENTS = {"accept": "text/event-stream", "cache-control": "no-store"}
_EVENT_STREAM = "text/event-stream"
_JSON = "application/json"
_EVENT_FRAME = 4096
_MAX_CONNECTIONS = 200
_KEEP_ALIVE_S = 30.0
_MAX_REDIRECTS = 5
_MAX_REFUSAL_BYTES = 64 * 1024
_MAX_ATTEMPTS = 2  # to take up a broken stream again
_RETRY_MS = 1000
_MAX_RETRY_MS = 60_000
_NOTICE_S = 5.0
_LAST_POSTS_S = 1.0


class ServerConnection(Protocol):
    """What requests are sent for: the configuration of a source, and its credential as it is now."""

    config: ExternalToolConfig
    credential: Credential


class Event(NamedTuple):
    """A server-sent event; `retry_ms` is how long the server wants a broken stream to be left alone."""

    kind: str
    data: str
    event_id: str
    retry_ms: int | None


class ResponseHead(NamedTuple):
    """The head of a response, and the exchange that its body comes by."""

    status: int
    headers: Headers
    exchange: Exchange
    url: str


class HttpRequests:
    """Send requests to one server with the credential of the moment, within its origin."""

    def __init__(self, connection: ServerConnection, url: str, network: NetworkPolicy) -> None:
        policy = network.for_source(url)
        self._connections = default_transport(
            policy.proxy, max_connections=_MAX_CONNECTIONS, keep_alive_s=_KEEP_ALIVE_S
        )
        self._client = HttpClient(policy, transport=self._connections)
        self._connection = connection
        self._nonce = ""
        self._fixed = {
            "accept-encoding": "identity",
            "user-agent": "toolpost",
            **{name.lower(): value for name, value in connection.config.headers.items()},
        }
        self._checked: tuple[dict[str, str], Pairs] = ({}, ())
        self._target = parse_target(url)
        self._connect_s = connection.config.connect_timeout_s
        self.url = url
        self.limit = connection.config.mcp.max_message_bytes
        self.values = JsonLimits.of(connection.config)

    async def send(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None = None) -> ResponseHead:
        """Send a request and wait for the head of its response; follow redirects that keep origin and method."""
        return await self._follow(await self._authorized(method, url, headers, body), method, headers, body)

    def begin(self, headers: Mapping[str, str], body: bytes) -> Exchange | None:
        """Post a body at once, where a connection is idle; None where `send` has something to wait for."""
        credential = self._connection.credential
        if credential.proof is not None:
            return None
        fields = self._with_proof("POST", self.url, headers, credential)
        return self._client.begin(self._request("POST", self.url, fields, body), self._target)

    async def go_on(self, exchange: Exchange, headers: Mapping[str, str], body: bytes) -> ResponseHead:
        """Wait for the head of the response to what `begin` posted, as `send` does."""
        await self._client.wait_for_head(exchange, self._target)
        answer = ResponseHead(exchange.status, exchange.headers, exchange, self.url)
        return await self._follow(answer, "POST", headers, body)

    async def _follow(
        self, answer: ResponseHead, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> ResponseHead:
        if answer.status not in REDIRECTS:
            return answer
        for _ in range(_MAX_REDIRECTS):
            target = _redirect_within_origin(answer, method) if answer.status in REDIRECTS else None
            if target is None:
                self._refuse_redirect(answer)
                break
            await answer.exchange.close()
            answer = await self._authorized(method, target, headers, body)
        return answer

    def _refuse_redirect(self, answer: ResponseHead) -> None:
        """Raise ToolPermissionError when a redirect would send a bound credential to another origin."""
        location, credential = answer.headers.get("location"), self._connection.credential
        if answer.status in REDIRECTS and location and credential.origin:
            check_credential_origin(credential, parse_target(join_url(answer.url, location)))

    async def _authorized(self, method: str, url: str, headers: Mapping[str, str], body: bytes | None) -> ResponseHead:
        """Send a request; once more when the server wants another nonce in the proof of possession."""
        credential = self._connection.credential
        nonce = self._nonce
        answer = await self._send(method, url, self._with_proof(method, url, headers, credential), body)
        if credential.proof is None:
            return answer
        self._nonce = dpop_nonce(answer.headers) or nonce  # RFC 9449 section 9: required in proofs from now on
        if answer.status != HTTPStatus.UNAUTHORIZED or self._nonce == nonce:
            return answer
        await answer.exchange.close()
        return await self._send(method, url, self._with_proof(method, url, headers, credential), body)

    def _with_proof(self, method: str, url: str, headers: Mapping[str, str], credential: Credential) -> dict[str, str]:
        fields = {**self._fixed, **headers}
        if credential.origin:
            check_credential_origin(credential, self._target if url == self.url else parse_target(url))
        fields.update((name.lower(), value) for name, value in credential.headers.items())
        if credential.proof is not None:
            proof = credential.proof(method, url, self._nonce)
            fields.update((name.lower(), value) for name, value in proof.items())
        return fields

    async def _send(self, method: str, url: str, fields: dict[str, str], body: bytes | None) -> ResponseHead:
        target = self._target if url == self.url else parse_target(url)
        exchange = await self._client.exchange(self._request(method, url, fields, body), target, self._connect_s)
        return ResponseHead(exchange.status, exchange.headers, exchange, url)

    def _request(self, method: str, url: str, fields: dict[str, str], body: bytes | None) -> Request:
        if fields != self._checked[0]:  # nearly all requests of a session have the same
            self._checked = (
                fields,
                clean_headers(tuple(pair for pair in fields.items() if pair[0] not in MANAGED_HEADERS)),
            )
        return Request(method, url, self._checked[1], body)

    async def read(self, answer: ResponseHead, limit: int) -> bytes | None:
        """Read a whole body; None, without waiting for the rest, when it is over the limit."""
        whole = answer.exchange.take()
        if whole is not None and "content-encoding" not in answer.headers:
            return whole if len(whole) <= limit else None
        pieces: list[bytes] = []
        size = 0
        async for piece in _pieces(answer, whole):
            size += len(piece)
            if size > limit:
                await answer.exchange.close()
                return None
            pieces.append(piece)
        return b"".join(pieces)

    async def events(self, answer: ResponseHead) -> AsyncGenerator[Event]:
        """Yield the events of a stream; a message over the limit is replaced by the error of its request."""
        lines = split_messages(self.limit, universal=True)
        decoder = SseDecoder(lines, max_event_bytes=self.limit + _EVENT_FRAME, without_data=True)
        try:
            async for piece in _pieces(answer, answer.exchange.take()):
                for fields in decoder.feed(piece):
                    yield _event(fields)
            for fields in decoder.flush():
                yield _event(fields)
        finally:
            await answer.exchange.close()

    async def close(self) -> None:
        """Close every connection."""
        await self._client.close()
        await self._connections.close()


async def _pieces(answer: ResponseHead, whole: bytes | None) -> AsyncGenerator[bytes]:
    """Yield the body as it arrives, decompressed where the server compresses although it was asked not to."""
    decoder = body_decoder((answer.headers.get("content-encoding") or "").lower(), answer.url)
    chunk = whole or await answer.exchange.chunk()
    while chunk:
        if decoder is None:
            yield chunk
        else:
            for piece in decoder.feed(chunk):
                yield piece
        chunk = await answer.exchange.chunk()


def _event(fields: Mapping[str, str]) -> Event:
    retry = fields.get("retry", "")
    return Event(
        fields.get("event") or "message",
        fields.get("data", ""),
        fields.get("id", ""),
        min(int(retry), _MAX_RETRY_MS) if retry.isdecimal() and len(retry) < 10 else None,
    )


def _redirect_within_origin(answer: ResponseHead, method: str) -> str | None:
    """Return where a redirect leads that stays within the origin and keeps the method, or None."""
    location = answer.headers.get("location")
    if not location or (method == "POST" and answer.status not in (307, 308)):
        return None
    url = join_url(answer.url, location)
    source, target = parse_target(answer.url), parse_target(url)
    upgrade = (source.host, source.scheme, source.port, target.scheme, target.port) == (
        target.host,
        "http",
        80,
        "https",
        443,
    )
    return url if upgrade or (source.scheme, source.authority) == (target.scheme, target.authority) else None


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
        """Wait: responses come by the requests' own tasks. Closing ends the server's session."""
        self._rpc = rpc
        await asyncio.get_running_loop().create_future()

    async def close(self) -> None:
        """End the server's session and close every connection."""
        try:
            if self._notices:
                _, late = await asyncio.wait(self._notices, timeout=_LAST_POSTS_S)
                for notice in late:
                    notice.cancel()
            if self._session_id is not None:
                with suppress(ToolError, TimeoutError):
                    async with asyncio.timeout(_NOTICE_S):
                        answer = await self._http.send("DELETE", self._url, self._headers(None))
                        await self._http.read(answer, _MAX_REFUSAL_BYTES)
        finally:
            await self._http.close()

    def ask(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        """Post a request, at once where a connection is idle, otherwise in a task."""
        if pending.method == "initialize":
            self._version = None  # it negotiates the version, whatever was probed before
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

    async def tell(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Post a notification or a response, and wait until the server has it, so that messages keep their order."""
        if headers is not None:
            self._version = headers.get(MCP_PROTOCOL_VERSION_HEADER, self._version)
        with suppress(ToolError):  # a lost notification must not end the session
            answer = await self._http.send("POST", self._url, self._headers(headers), encode_message(message))
            await self._http.read(answer, _MAX_REFUSAL_BYTES)
        if message.get("method") == "notifications/initialized" and self._session_id is not None:
            self._open_rpc.start(self._listen())

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        """Close the response; the older protocol wants a notice as well."""
        if self._version not in MODERN_PROTOCOL_VERSIONS:
            told = asyncio.get_running_loop().create_task(self._give_notice(notice))
            self._notices.add(told)
            told.add_done_callback(self._notices.discard)
        if pending.stop is not None:
            pending.stop()

    def hang_up(self) -> None:
        """Have the session ended, and with it what is open."""
        self._on_end()

    async def _give_notice(self, notice: Message) -> None:
        with suppress(TimeoutError):
            async with asyncio.timeout(_NOTICE_S):
                await self.tell(notice)

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
        """Deliver a small response that has come as a whole; let a task read any other."""
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
        except Exception as error:  # noqa: BLE001 - nobody else would tell who waits
            rpc.fail(pending, error)

    async def _finish(self, find_answer: Callable[[], Awaitable[ResponseHead]], pending: PendingRequest) -> None:
        """Wait for the head of a response and read the rest; whatever fails, fails the request."""
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
            body = await self._http.read(answer, _MAX_REFUSAL_BYTES) or b""
            raise _refusal(answer, body, code=METHOD_NOT_FOUND if unknown else INVALID_REQUEST)
        if answer.status in REDIRECTS:
            raise MCPError(code=INVALID_REQUEST, message=_describe_redirect(answer))
        if answer.status == HTTPStatus.ACCEPTED:
            raise MCPError(code=INVALID_REQUEST, message="the server answered a request with 202 Accepted")
        if pending.method == "initialize":
            self._session_id = answer.headers.get(_SESSION_ID) or self._session_id
        if answer.headers.media_type == _EVENT_STREAM:
            await self._read_events(answer, pending)
        elif answer.status == HTTPStatus.OK:
            await self._read_body(answer, pending)
        else:
            raise MCPError(code=INVALID_REQUEST, message=f"the server answered HTTP {answer.status} without a message")

    async def _read_body(self, answer: ResponseHead, pending: PendingRequest) -> None:
        body = self._find_message(answer, await self._http.read(answer, self._http.limit))
        await self._deliver(body, pending)
        _require_response(pending)

    def _find_message(self, answer: ResponseHead, body: bytes | None) -> bytes:
        """Return the JSON in a body; raise where there is none, or too much."""
        limit = self._http.limit
        if body is None or len(body) > limit:
            size = answer.headers.get("content-length") or ""
            text, facts = describe_too_long(int(size) if size.isdecimal() else limit + 1, limit)
            raise _with_facts(text, facts)
        body = body.removeprefix(codecs.BOM_UTF8).lstrip()
        if body[:1] not in (b"{", b"["):
            kind = answer.headers.media_type or "something"
            text = f"the server answered with {kind} in place of a message; is this the right address?"
            raise _with_facts(text, {"kind": "unreadable"})
        return body

    async def _deliver(self, text: str | bytes, pending: PendingRequest | None) -> bool:
        """Deliver what a body or an event contains; return whether the response to a request was in it."""
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
        """Deliver the events of a response; take a stream up again that ended before the response came."""
        last_id, retry_ms, attempts = "", _RETRY_MS, 0
        while True:
            try:
                async for event in self._http.events(answer):
                    last_id, attempts = event.event_id or last_id, 0
                    retry_ms = retry_ms if event.retry_ms is None else event.retry_ms
                    if event.kind == "message" and event.data and await self._deliver(event.data, pending):
                        return
            except ToolConnectionError:
                pass  # it broke off
            if not last_id:
                raise ToolConnectionError("MCP connection failed: SSE stream ended without a response")
            answer, attempts = await self._resume(last_id, retry_ms, attempts)

    async def _resume(self, last_id: str, retry_ms: int, attempts: int) -> tuple[ResponseHead, int]:
        """Open a broken stream again after its last event; return how often that was tried since an event came."""
        while attempts < _MAX_ATTEMPTS:
            await asyncio.sleep(retry_ms / 1000)
            attempts += 1
            with suppress(ToolConnectionError):
                answer = await self._open_stream(last_id)
                if answer is not None:
                    return answer, attempts
        raise ToolConnectionError("MCP connection failed: SSE stream ended and could not be taken up again")

    async def _open_stream(self, last_id: str) -> ResponseHead | None:
        headers = {**self._headers(None), **_EVENTS, **({_LAST_EVENT_ID: last_id} if last_id else {})}
        answer = await self._http.send("GET", self._url, headers)
        if answer.status == HTTPStatus.OK and answer.headers.media_type == _EVENT_STREAM:
            return answer
        await answer.exchange.close()
        return None

    async def _listen(self) -> None:
        """Receive what belongs to no request, for as long as the server offers that."""
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
            # Whatever the server asks for: one that ends every stream at once would be asked without a pause.
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
        raise _with_facts("the server's answer has no response in it", {"kind": "unreadable"})


def _refusal(answer: ResponseHead, body: bytes, *, code: int = INVALID_REQUEST) -> MCPError:
    """Build the error of a refused request: the server's own where it sent one, with the status."""
    facts: dict[str, Any] = {
        "kind": "refused",
        "status": answer.status,
        "retry_after_s": parse_retry_after(answer.headers),
        "challenge": answer.headers.get("www-authenticate"),
    }
    error = _rpc_error(body)
    if error is None:
        return _with_facts(_reason(answer.status, body), facts, code=code)
    data = error.get("data")
    kept = {**(data or {}), FACTS_KEY: facts} if data is None or is_object(data) else data
    return MCPError(code=error["code"], message=error["message"], data=kept)


def _with_facts(text: str, facts: dict[str, Any], *, code: int = -32000) -> MCPError:
    return MCPError(code=code, message=text, data={FACTS_KEY: facts})


def _rpc_error(body: bytes) -> dict[str, Any] | None:
    """Return the JSON-RPC error in a body, if it is one."""
    try:
        message = from_json(body)
    except ValueError:
        return None
    error = message.get("error") if is_object(message) else None
    whole = is_object(error) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)
    return error if whole else None


def _reason(status: int, body: bytes) -> str:
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    return f"the server answered HTTP {status}" + (f": {text}" if text and not text.startswith("<") else "")


def _describe_redirect(answer: ResponseHead) -> str:
    location = join_url(answer.url, answer.headers.get("location") or "").partition("?")[0].partition("#")[0]
    return f"the redirect to {location} was not followed; use that address if it is the server's"


class EventStream:
    """Link of the older SSE transport: messages are posted, and everything comes by one stream of events."""

    def __init__(
        self, connection: ServerConnection, url: str, network: NetworkPolicy, *, on_end: Callable[[], None]
    ) -> None:
        self._http = HttpRequests(connection, url, network)
        self._url = url
        self._target = ""
        self._on_end = on_end
        self._rpc: JsonRpc | None = None
        self._posts: set[asyncio.Task[None]] = set()
        self._stream: AsyncGenerator[Event] | None = None

    async def open(self) -> None:
        """Open the stream, whose first event names the URL to post to."""
        answer = await self._http.send("GET", self._url, _EVENTS)
        if answer.status != HTTPStatus.OK:
            raise _refusal(answer, await self._http.read(answer, _MAX_REFUSAL_BYTES) or b"")
        self._stream = self._http.events(answer)
        async for event in self._stream:
            if event.kind == "endpoint":
                self._target = join_url(self._url, event.data)
                break
        else:
            raise ToolConnectionError("the event stream ended before it named an endpoint", sent=False)
        source, target = parse_target(self._url), parse_target(self._target)
        if (source.scheme, source.authority) != (target.scheme, target.authority):
            raise ToolConnectionError(
                f"the server at {self._url} wants messages sent elsewhere, to {self._target}", sent=False
            )

    async def run(self, rpc: JsonRpc) -> None:
        """Deliver the messages of the stream."""
        self._rpc = rpc
        if self._stream is not None:
            with suppress(ToolError):
                async for event in self._stream:
                    if event.kind == "message" and event.data:
                        large = len(event.data) > LARGE_MESSAGE
                        read = read_large(event.data, self._http.values) if large else None
                        for message in read_messages(event.data) if read is None else await read:
                            rpc.receive(message)
                        if pause_s := rpc.due_pause():
                            await asyncio.sleep(pause_s)
        if self._posts:  # their own failures say whether they were sent
            await asyncio.wait(self._posts, timeout=_LAST_POSTS_S)
        self._on_end()

    async def close(self) -> None:
        """Close the stream and every connection."""
        if self._stream is not None:
            await self._stream.aclose()
        await self._http.close()

    def ask(self, message: Message, pending: PendingRequest, headers: Mapping[str, str] | None) -> None:
        """Post a request in a task; its response comes by the stream."""
        if self._rpc is None:
            raise ToolConnectionError("the MCP connection is not open", sent=False)
        post = self._rpc.start(self._ask(encode_message(message), pending, self._rpc))
        pending.stop = post.cancel
        self._posts.add(post)
        post.add_done_callback(self._posts.discard)

    async def _ask(self, body: bytes, pending: PendingRequest, rpc: JsonRpc) -> None:
        try:
            await self._post(body)
        except (ToolError, MCPError) as error:
            rpc.fail(pending, error)

    async def _post(self, body: bytes) -> None:
        answer = await self._http.send("POST", self._target, {"content-type": "application/json"}, body)
        body = await self._http.read(answer, _MAX_REFUSAL_BYTES) or b""
        if not 200 <= answer.status < 300:
            raise _refusal(answer, body)

    async def tell(self, message: Message, headers: Mapping[str, str] | None = None) -> None:
        """Post a notification or a response."""
        with suppress(ToolError, MCPError):
            await self._post(encode_message(message))

    def abandon(self, pending: PendingRequest, notice: Message) -> None:
        """Post the notice."""
        if self._rpc is not None:
            self._rpc.start(self.tell(notice))

    def hang_up(self) -> None:
        """Have the session ended, and with it what is open."""
        self._on_end()
