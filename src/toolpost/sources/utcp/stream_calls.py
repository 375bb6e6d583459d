"""Calls whose answers come bit by bit: sse and streamable_http templates; each bit is progress, all are the result.

A stream of events or lines that does not end gives what came until its time or its room was up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolTimeoutError
from toolpost.sources.utcp.auth_objects import present
from toolpost.sources.utcp.event_streams import Events, Lines, json_or_text
from toolpost.sources.utcp.http_calls import CUT, REMEDY, planned_of
from toolpost.sources.utcp.wires import MAX_BYTES, SHARE_OF_TIME
from toolpost.web.contents import decoded
from toolpost.web.encoding import compact_json
from toolpost.web.failures import failure_of
from toolpost.web.media_types import OCTETS, media_type
from toolpost.wire.pace import Pace
from toolpost.wire.requests import Request

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from toolpost.sources.utcp.templates import SseTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires
    from toolpost.web.planned import PlannedRequest
    from toolpost.wire.requests import Follow
    from toolpost.wire.responses import Response

_LONGEST_PROGRESS = 200


async def call_sse(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Call an sse template: the data of all events, those of one type where the template names it."""
    template = cast("SseTemplate", prepared.template)
    planned = planned_of(prepared, asked).with_headers((("Accept", "text/event-stream"),))
    async with await opened(planned, prepared, asked, wires) as response:
        if response.media_type != "text/event-stream":
            got = response.media_type or "a body that does not say what it is"
            raise ToolOutputError(f"{prepared.shown} answered with {got} where events were promised")
        events = Events()

        def take(piece: bytes) -> list[Any]:
            return [event.data for event in events.feed(piece) if template.event_type in (None, event.kind)]

        return await _collected(response, take, _progress(asked))


async def call_stream(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Call a streamable_http template: a list of what its lines say, or the bytes where it has none."""
    async with await opened(planned_of(prepared, asked), prepared, asked, wires) as response:
        kind = media_type(response.headers.get("content-type") or "")
        tell = _progress(asked)
        if kind.kind == "lines":
            return await _collected(response, _LineTaker(), tell)
        data = bytearray()
        async for piece in response.stream():
            data += piece
            tell(f"{len(data)} bytes")
        if kind.kind == "json":
            return ToolOutput([json_or_text(decoded(bytes(data), kind.charset))] if data else [])
        if kind.kind in ("text", "xml", "yaml", "events"):
            return ToolOutput(decoded(bytes(data), kind.charset))
        return ToolOutput(bytes(data), media_type=kind.essence or OCTETS)


class _LineTaker:
    """JSON lines as values; called without a piece it gives the last line."""

    def __init__(self) -> None:
        self._lines = Lines()

    def __call__(self, piece: bytes) -> list[Any]:
        lines = self._lines.feed(piece) if piece else self._lines.rest()
        return [json_or_text(line) for line in lines if line.strip()]


async def _collected(response: Response, take: Callable[[bytes], list[Any]], tell: Callable[[str], None]) -> ToolOutput:
    found: list[Any] = []
    try:
        async for piece in _pieces(response):
            for item in take(piece):
                found.append(item)
                tell(item if isinstance(item, str) else compact_json(item))
    except (ToolTimeoutError, ToolClientError):
        if not found:
            raise
        return ToolOutput(found).noted(CUT)
    return ToolOutput(found)


async def _pieces(response: Response) -> AsyncIterator[bytes]:
    """The pieces of a body, and an empty one at its end."""
    async for piece in response.stream():
        yield piece
    yield b""


def _progress(asked: Asked) -> Callable[[str], None]:
    context, pace = asked.context(), Pace()
    return lambda text: context.progress(text[:_LONGEST_PROGRESS]) if pace.allows() else None


async def opened(
    planned: PlannedRequest, prepared: Prepared, asked: Asked, wires: Wires, *, follow: Follow = "none"
) -> Response:
    """The head of a successful answer; a token that was refused is renewed once."""
    auth = getattr(prepared.template, "auth", None)
    planned = planned.with_headers(wires.headers)
    presented = await present(auth, asked.credential, wires.tokens)
    response = await _sent(planned.presenting(presented), prepared, wires, follow)
    if response.status == 401 and presented.tokens:
        await response.close()
        for token in presented.tokens:
            wires.tokens.forget(token)
        presented = await present(auth, asked.credential, wires.tokens)
        response = await _sent(planned.presenting(presented), prepared, wires, follow)
    if 200 <= response.status < 300:
        return response
    async with response:
        secrets = (*presented.secrets, *prepared.secrets, *wires.header_secrets)
        body = await response.read()
        raise failure_of(prepared.shown, response.status, response.headers, body, remedy=REMEDY, secrets=secrets)


async def _sent(whole: PlannedRequest, prepared: Prepared, wires: Wires, follow: Follow) -> Response:
    return await wires.client.send(
        Request(
            whole.method,
            whole.wire_url,
            headers=tuple(whole.wire_headers),
            body=whole.body,
            timeout_s=prepared.timeout_s * SHARE_OF_TIME,
            max_bytes=MAX_BYTES,
            follow=follow,
        )
    )
