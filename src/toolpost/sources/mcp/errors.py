"""An HTTP transport that never lets one failed request take its session down.

The SDK's session ends when a single POST fails, and it forgets the status of a refusal.
Here every failure of a request becomes a JSON-RPC error to that request, which says
what happened: whether anything was sent, the status, how long to wait.
"""

from __future__ import annotations

import codecs
import json
from email.utils import parsedate_to_datetime
from http import HTTPStatus
from time import time
from typing import TYPE_CHECKING, Any, cast

import httpx2

from toolpost.schema.jsontypes import is_object
from toolpost.sources.mcp.framing import TOLD, Lines, error_message, too_long, unbatched

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

_NOT_SENT = (httpx2.ConnectError, httpx2.ConnectTimeout, httpx2.PoolTimeout, httpx2.UnsupportedProtocol)
_JSON = {"content-type": "application/json"}
_EVENTS = {"content-type": "text/event-stream"}
_EXPLANATION = 64 * 1024  # as much of a refusal's body as is read


class TellingTransport(httpx2.AsyncBaseTransport):
    """Passes requests on; `limit` is the longest message that is taken in.

    Where answers come on another stream, as in the older SSE transport, a failed POST just fails.
    """

    def __init__(self, inner: httpx2.AsyncBaseTransport, *, limit: int, answers_in_body: bool) -> None:
        self._inner = inner
        self._limit = limit
        self._answers_in_body = answers_in_body

    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        """Send one request; only requests that expect no answer may fail in the usual way."""
        if request.method != "POST" or not self._answers_in_body:
            return self._curbed(await self._inner.handle_async_request(request))
        request_id = _request_id(await request.aread())
        try:
            response = await self._inner.handle_async_request(request)
            return await self._checked(response, request_id)
        except httpx2.TransportError as error:
            if request_id is None:
                return httpx2.Response(202)  # a notification is not worth a session; the next request will tell
            facts = {"kind": "broken", "sent": not isinstance(error, _NOT_SENT)}
            return _answer(request_id, f"{type(error).__name__}: {error}", facts)

    async def _checked(self, response: httpx2.Response, request_id: Any) -> httpx2.Response:
        kind = response.headers.get("content-type", "").lower()
        if response.status_code >= 400:
            return await _refusal(response, request_id)
        if request_id is None or response.status_code != HTTPStatus.OK or kind.startswith("text/event-stream"):
            return self._curbed(response)
        body = await _read(response, self._limit)
        if body is None:
            size = response.headers.get("content-length", "")
            return _answer(request_id, *too_long(int(size) if size.isdigit() else self._limit + 1, self._limit))
        body = body.removeprefix(codecs.BOM_UTF8)
        if body.lstrip()[:1] not in (b"{", b"["):
            text = f"the server answered with {kind or 'something'} in place of a message; is this the right address?"
            return _answer(request_id, text, {"kind": "unreadable"})
        if batch := unbatched(body):
            return httpx2.Response(200, headers={**_plain(response.headers), **_EVENTS}, content=_as_events(batch))
        return httpx2.Response(200, headers={**_plain(response.headers), **_JSON}, content=body)

    def _curbed(self, response: httpx2.Response) -> httpx2.Response:
        """An event stream that holds messages, none longer than the limit."""
        kind = response.headers.get("content-type", "").lower()
        packed = response.headers.get("content-encoding", "identity") != "identity"
        if packed or not kind.startswith("text/event-stream"):
            return response
        inner = cast("httpx2.AsyncByteStream", response.stream)
        stream = _CurbedStream(inner, self._limit, messages_only=self._answers_in_body)
        return httpx2.Response(
            response.status_code, headers=_plain(response.headers), stream=stream, extensions=response.extensions
        )

    async def aclose(self) -> None:
        """Close the pool."""
        await self._inner.aclose()


class _CurbedStream(httpx2.AsyncByteStream):
    """Lines within the limit; where only messages count, other events are left out and batches taken apart.

    A server that serves both transports at one address begins every stream with an `endpoint`, which is not for us.
    """

    def __init__(self, inner: httpx2.AsyncByteStream, limit: int, *, messages_only: bool) -> None:
        self._inner = inner
        self._lines = Lines(limit)
        self._messages_only = messages_only
        self._foreign = False

    async def __aiter__(self) -> AsyncIterator[bytes]:
        async for chunk in self._inner:
            lines = self._lines.feed(chunk)
            if self._messages_only:
                lines = [told for line in lines if (told := self._told(line)) is not None]
            if lines:
                yield b"\n".join([*lines, b""])
        if rest := self._lines.rest():
            yield rest

    def _told(self, line: bytes) -> bytes | None:
        """A line as it is passed on; None for a part of an event that is no message."""
        if line.startswith(b"event:"):
            self._foreign = line[6:].strip() not in (b"message", b"")
        elif not line.strip():
            self._foreign = False
        elif line.startswith(b"data:") and not self._foreign and (batch := unbatched(line[5:])):
            return _as_events(batch)
        return None if self._foreign else line

    async def aclose(self) -> None:
        await self._inner.aclose()


def _as_events(batch: list[bytes]) -> bytes:
    return b"\n\n".join([*(b"data: " + message for message in batch), b""])


async def _read(response: httpx2.Response, limit: int) -> bytes | None:
    """The whole body; None when it is over the limit, the rest is then not waited for."""
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
    """A refusal that keeps its status for whoever looks, and tells it to the waiting call as well."""
    status, headers = response.status_code, response.headers
    body = await _read(response, _EXPLANATION) or b""
    if request_id is None:
        return httpx2.Response(status, headers=_plain(headers), content=body)
    told: dict[str, Any] = {"kind": "refused", "status": status, "retry_after_s": _retry_after(headers)}
    if challenge := headers.get("www-authenticate"):
        told["challenge"] = challenge
    content = _with_facts(body, told) or error_message(request_id, _reason(status, body), told)
    return httpx2.Response(status, headers={**_plain(headers), **_JSON}, content=content)


def _with_facts(body: bytes, told: dict[str, Any]) -> bytes | None:
    """The server's own JSON-RPC error with the facts added; None when the body is no such thing."""
    message = _object(body)
    error = message.get("error")
    if not (is_object(error) and isinstance(error.get("code"), int) and isinstance(error.get("message"), str)):
        return None
    data = error.get("data")
    if data is None or is_object(data):
        error["data"] = {**(data or {}), TOLD: told}
    return json.dumps(message).encode()


def _reason(status: int, body: bytes) -> str:
    text = " ".join(body[:300].decode("utf-8", "replace").split())
    return f"the server answered HTTP {status}" + (f": {text}" if text and not text.startswith("<") else "")


def _answer(request_id: Any, text: str, told: dict[str, Any]) -> httpx2.Response:
    return httpx2.Response(200, headers=_JSON, content=error_message(request_id, text, told))


def _plain(headers: httpx2.Headers) -> dict[str, str]:
    """Headers for a body that was read or changed."""
    gone = ("content-length", "content-encoding", "transfer-encoding")
    return {name: value for name, value in headers.items() if name.lower() not in gone}


def _request_id(content: bytes) -> Any:
    """The id of a JSON-RPC request; None for notifications and answers."""
    message = _object(content)
    return message.get("id") if "method" in message else None


def _object(body: bytes) -> dict[str, Any]:
    """A body that is a JSON object; an empty one for everything else."""
    try:
        value: Any = json.loads(body)
    except ValueError:
        return {}
    return value if is_object(value) else {}


def _retry_after(headers: httpx2.Headers) -> float | None:
    """Seconds to wait: RFC 9110 §10.2.3 has them as a number or as a date."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    try:
        return max(0.0, parsedate_to_datetime(value).timestamp() - time()) if value else None
    except (ValueError, TypeError):
        return None
