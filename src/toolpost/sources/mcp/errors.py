"""Errors of a session: report failed HTTP requests to the calls that wait for them, convert failures to ToolErrors.

A message is one line, on a pipe as in an event stream. A line over the limit is replaced by an error with the id
of its request: dropping the line would leave that call waiting, closing the stream would fail every other call.
"""

from __future__ import annotations

import codecs
import json
import re
import secrets
from collections.abc import AsyncIterator, Mapping
from functools import partial
from http import HTTPStatus
from typing import Any, cast

import anyio
import httpx2
from mcp import MCPError

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolClientError,
    ToolConnectionError,
    ToolError,
    ToolNodeError,
    ToolServerError,
    ToolTimeoutError,
    from_status,
)
from toolpost.contracts.lines import EDGE_BYTES, LineSplitter
from toolpost.schema.json_values import is_object
from toolpost.wire.messages import Headers, parse_retry_after

# Key in an error's data for facts that only the transport knows. It is random, so that no server can forge
# "never sent" and have a call run again.
FACTS_KEY = f"toolpost-{secrets.token_hex(16)}"
_HEAD = re.compile(
    rb'^(?:data: ?)?\s*\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})'
)
_TAIL = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')


def split_messages(limit: int) -> LineSplitter:
    """Return a line splitter that replaces a message over the limit by an error with the id of its request."""
    return LineSplitter(limit, replace_long=partial(_too_long_error, limit))


def _too_long_error(limit: int, head: bytes, tail: bytes, size: int) -> bytes:
    """Build an error with the id of a message over the limit; return nothing when the id cannot be found."""
    request_id = _find_id(head, tail)
    if request_id is None:
        return b""
    prefix = b"data: " if head.startswith(b"data:") else b""
    return prefix + build_error(request_id, *describe_too_long(size, limit))


def unreadable_error(message: bytes) -> bytes | None:
    """Build an error in place of a response that cannot be parsed; None when it has no id."""
    request_id = _find_id(message[:EDGE_BYTES], message[-EDGE_BYTES:])
    if request_id is None:
        return None
    text = f"the server's answer of {len(message)} bytes cannot be read: no JSON-RPC 2.0, or nested too deeply"
    return build_error(request_id, text, {"kind": "unreadable"})


def _find_id(head: bytes, tail: bytes) -> int | str | None:
    """Find the id of a response in its first and last bytes."""
    match = _HEAD.search(head) or _TAIL.search(tail)
    try:
        return None if match is None else json.loads(match[1])
    except ValueError:
        return None


def split_batch(message: bytes) -> list[bytes]:
    """Return the messages of a JSON-RPC batch, or none. Protocol revision 2025-03-26 lets servers send batches."""
    if message.lstrip()[:1] != b"[":
        return []
    try:
        batch: Any = json.loads(message)
    except (ValueError, RecursionError):
        return []
    return [json.dumps(one).encode() for one in batch if is_object(one)]


def describe_too_long(size: int, limit: int) -> tuple[str, dict[str, Any]]:
    """Return the error text and facts for a message over the limit."""
    text = f"the server's answer has {size} bytes, more than the {limit} that mcp.max_message_bytes allows"
    return text, {"kind": "too_long", "size": size, "limit": limit}


def build_error(request_id: Any, text: str, facts: dict[str, Any], *, code: int = -32000) -> bytes:
    """Build a JSON-RPC error that the waiting request receives in place of a response."""
    error = {"code": code, "message": text, "data": {FACTS_KEY: facts}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()


_CLOSED = -32000
_TIMED_OUT = -32001
_CLIENT_FAULTS = frozenset({-32600, -32601, -32602, -32700})
_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream"}
_MAX_REFUSAL_BYTES = 64 * 1024


def to_tool_error(raised: BaseException) -> ToolError:
    """Convert any exception of a session to a ToolError."""
    if isinstance(raised, ToolError):
        return raised
    if isinstance(raised, MCPError):
        return _from_rpc_error(raised)
    if isinstance(raised, BaseExceptionGroup):
        inner: tuple[BaseException, ...] = cast("Any", raised).exceptions
        return to_tool_error(inner[0])
    if isinstance(raised, httpx2.HTTPStatusError):
        status = raised.response.status_code
        facts = {"status": status, "challenge": raised.response.headers.get("www-authenticate")}
        return _from_status(facts, f"the server answered HTTP {status}", raised)
    if isinstance(raised, httpx2.HTTPError):
        sent = not isinstance(raised, _NOT_SENT)
        return ToolConnectionError(
            f"MCP connection failed: {_text(raised)}{_describe_url(raised)}", sent=sent, cause=raised
        )
    if isinstance(raised, TimeoutError):
        return ToolTimeoutError(f"the MCP server did not answer in time: {_text(raised)}", cause=raised)
    if isinstance(raised, (OSError, anyio.BrokenResourceError, anyio.ClosedResourceError)):
        return ToolConnectionError(f"MCP connection failed: {_text(raised)}", cause=raised)
    cause = raised.__cause__
    return to_tool_error(cause) if cause is not None else ToolNodeError(f"MCP error: {_text(raised)}", cause=raised)


def _from_rpc_error(raised: MCPError) -> ToolError:
    """Convert a JSON-RPC error by the transport's own facts first and the code second, never by its text."""
    code, text = raised.error.code, raised.error.message
    data: Any = raised.error.data
    facts: Mapping[str, Any] = data.get(FACTS_KEY, {}) if is_object(data) else {}
    match facts.get("kind"):
        case "too_long":
            return ToolClientError(f"MCP tool error: {text}", cause=raised, code="result_too_large")
        case "broken":
            return ToolConnectionError(f"MCP connection failed: {text}", sent=bool(facts["sent"]), cause=raised)
        case "refused":
            return _from_status(facts, text, raised)
        case _:
            return _from_code(code, text, raised)


def _from_status(facts: Mapping[str, Any], text: str, cause: BaseException) -> ToolError:
    error = from_status(facts["status"], f"MCP server: {text}", cause)
    error.retry_after_s = facts.get("retry_after_s")
    error.challenges = (facts["challenge"],) if facts.get("challenge") else ()
    return error


def _from_code(code: int, text: str, cause: BaseException) -> ToolError:
    if code == _TIMED_OUT:
        return ToolTimeoutError(f"the MCP server did not answer in time: {text}", cause=cause)
    if (code == _CLOSED and text in ("Connection closed", "")) or text.startswith("SSE stream "):
        return ToolConnectionError(f"MCP connection failed: {text or 'closed'}", cause=cause)
    if code in _CLIENT_FAULTS:
        return ToolClientError(f"MCP tool error: {text}", cause=cause)
    if code == -32603:
        return ToolServerError(f"MCP server error: {text}", cause=cause, category=ErrorCategory.UNKNOWN)
    return ToolClientError(f"MCP tool error: {text}", cause=cause)


def _describe_url(raised: httpx2.HTTPError) -> str:
    """Return the URL that failed, without its query and user, which may be secret."""
    try:
        url = raised.request.url
    except RuntimeError:  # raised before there was a request
        return ""
    return f" ({url.copy_with(username=None, password=None, query=None, fragment=None)})"


def _text(raised: BaseException) -> str:
    return f"{type(raised).__name__}: {raised}" if str(raised) else type(raised).__name__


class ErrorReportingTransport(httpx2.AsyncBaseTransport):
    """HTTP transport that converts each failed request to a JSON-RPC error for that request.

    The SDK's session ends when a single POST fails, and it drops the status of a refusal. The error made here says
    whether anything was sent, the status, and how long to wait. `limit` is the longest message that is accepted.
    Without `answers_in_body`, as in the older SSE transport, a failed POST raises as usual.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, limit: int, answers_in_body: bool) -> None:
        self._inner = inner
        self._limit = limit
        self._answers_in_body = answers_in_body

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; only a request that expects no response may raise."""
        if request.method != "POST" or not self._answers_in_body:
            return self._limit_events(await self._inner.handle_async_request(request))
        request_id = _request_id(await request.aread())
        try:
            response = await self._inner.handle_async_request(request)
            return await self._check_response(response, request_id)
        except httpx2.TransportError as error:
            if request_id is None:
                return httpx2.Response(202)  # a lost notification must not end the session
            facts = {"kind": "broken", "sent": not isinstance(error, _NOT_SENT)}
            return _error_response(request_id, f"{type(error).__name__}: {error}", facts)

    async def _check_response(self, response: httpx2.Response, request_id: Any) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 400:
            return await _refusal(response, request_id)
        if request_id is None or response.status_code != HTTPStatus.OK or kind.startswith("text/event-stream"):
            return self._limit_events(response)
        body = await _read_body(response, self._limit)
        if body is None:
            size = response.headers.get("content-length", "")
            return _error_response(
                request_id, *describe_too_long(int(size) if size.isdigit() else self._limit + 1, self._limit)
            )
        body = body.removeprefix(codecs.BOM_UTF8)
        if body.lstrip()[:1] not in (b"{", b"["):
            text = f"the server answered with {kind or 'something'} in place of a message; is this the right address?"
            return _error_response(request_id, text, {"kind": "unreadable"})
        if batch := split_batch(body):
            return httpx2.Response(
                200, headers={**_body_independent(response.headers), **_EVENTS}, content=_encode_events(batch)
            )
        return httpx2.Response(200, headers={**_body_independent(response.headers), **_JSON}, content=body)

    def _limit_events(self, response: httpx2.Response) -> httpx2.Response:
        """Limit the length of messages in an event stream."""
        kind = response.headers.get("content-type", "").lower()
        packed = response.headers.get("content-encoding", "identity") != "identity"
        if packed or not kind.startswith("text/event-stream"):
            return response
        inner = cast("httpx2.AsyncByteStream", response.stream)
        stream = _LimitedEventStream(inner, self._limit, messages_only=self._answers_in_body)
        return httpx2.Response(
            response.status_code,
            headers=_body_independent(response.headers),
            stream=stream,
            extensions=response.extensions,
        )

    async def aclose(self) -> None:
        """Close the connection pool."""
        await self._inner.aclose()


class _LimitedEventStream(httpx2.AsyncByteStream):
    """Event stream with a limit per line; `messages_only` drops other events and splits batches.

    A server with both transports at one URL begins every stream with an `endpoint` event of the older one.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, *, messages_only: bool) -> None:
        self._inner = inner
        self._lines = split_messages(limit)
        self._messages_only = messages_only
        self._skipping = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            lines = self._lines.feed(chunk)
            if self._messages_only:
                lines = [facts for line in lines if (facts := self._filter_line(line)) is not None]
            if lines:
                yield b"\n".join([*lines, b""])
        if rest := self._lines.take_rest():
            yield rest

    def _filter_line(self, line: bytes) -> bytes | None:
        """Return the line to pass on; None for a line of an event that is not a message."""
        if line.startswith(b"event:"):
            self._skipping = line[6:].strip() not in (b"message", b"")
        elif not line.strip():
            self._skipping = False
        elif line.startswith(b"data:") and not self._skipping and (batch := split_batch(line[5:])):
            return _encode_events(batch)
        return None if self._skipping else line

    async def aclose(self) -> None:
        await self._inner.aclose()


def _encode_events(batch: list[bytes]) -> bytes:
    return b"\n\n".join([*(b"data: " + message for message in batch), b""])


async def _read_body(response: httpx2.Response, limit: int) -> bytes | None:
    """Read the whole body; return None, without waiting for the rest, when it is over the limit."""
    chunks: list[bytes] = []
    size = 0
    try:
        async for chunk in response.aiter_bytes():
            size += len(chunk)
            if size > limit:
                return None
            chunks.append(chunk)
    finally:
        await response.aclose()
    return b"".join(chunks)


async def _refusal(response: httpx2.Response, request_id: Any) -> httpx2.Response:
    """Build a response that keeps the status of a refusal and reports it to the waiting request."""
    status, headers = response.status_code, response.headers
    body = await _read_body(response, _MAX_REFUSAL_BYTES) or b""
    if request_id is None:
        return httpx2.Response(status, headers=_body_independent(headers), content=body)
    wait_s = parse_retry_after(Headers(tuple(headers.items())))
    facts: dict[str, Any] = {"kind": "refused", "status": status, "retry_after_s": wait_s}
    if challenge := headers.get("www-authenticate"):
        facts["challenge"] = challenge
    content = _add_facts(body, facts) or build_error(request_id, _reason(status, body), facts)
    return httpx2.Response(status, headers={**_body_independent(headers), **_JSON}, content=content)


def _add_facts(body: bytes, facts: dict[str, Any]) -> bytes | None:
    """Add the facts to the server's own JSON-RPC error; None when the body is not one."""
    message = _object(body)
    error = message.get("error")
    if not (is_object(error) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)):
        return None
    data = error.get("data")
    if data is None or is_object(data):
        error["data"] = {**(data or {}), FACTS_KEY: facts}
    return json.dumps(message).encode()


def _reason(status: int, body: bytes) -> str:
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    return f"the server answered HTTP {status}" + (f": {text}" if text and not text.startswith("<") else "")


def _error_response(request_id: Any, text: str, facts: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, headers=_JSON, content=build_error(request_id, text, facts))


def _body_independent(headers: httpx2.Headers) -> dict[str, str]:
    """Return the headers that stay true after the body was read or changed."""
    dropped = ("content-length", "content-encoding", "transfer-encoding")
    return {name: value for name, value in headers.items() if name.lower() not in dropped}


def _request_id(content: bytes) -> Any:
    """Return the id of a JSON-RPC request; None for notifications and responses."""
    message = _object(content)
    return message.get("id") if "method" in message else None


def _object(body: bytes) -> dict[str, Any]:
    """Parse a JSON object; return an empty one for any other body."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return {}
    return value if is_object(value) else {}
