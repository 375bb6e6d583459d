"""Call sse and streamable_http templates: each item is reported as progress, all items are the output.

A stream of events or lines that does not end yields the items that came before its deadline or size limit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolTimeoutError
from toolpost.sources.utcp.context import MAX_BYTES, STREAM_TIME_SHARE, json_or_text
from toolpost.sources.utcp.http_calls import REMEDY, TRUNCATED, build_request, send_authenticated
from toolpost.web.content import OCTETS, LineDecoder, SseDecoder, decode_text, parse_media_type
from toolpost.web.encoding import compact_json
from toolpost.web.failures import response_error

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from toolpost.sources.utcp.context import Invocation, ManualContext, PreparedTool
    from toolpost.sources.utcp.templates import SseTemplate
    from toolpost.web.requests import PlannedRequest
    from toolpost.wire.requests import Follow
    from toolpost.wire.responses import Response

_MAX_LINE_BYTES = 16 * 1024 * 1024


async def call_sse(tool: PreparedTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call an sse template and return the data of its events, of one type where the template names one."""
    template = cast("SseTemplate", tool.template)
    planned = build_request(tool, invocation).with_headers((("Accept", "text/event-stream"),))
    async with await open_response(planned, tool, invocation, context) as response:
        if response.media_type != "text/event-stream":
            got = response.media_type or "a body that does not say what it is"
            raise ToolOutputError(f"{tool.label} answered with {got} where events were promised")
        events = SseDecoder()

        def decode(chunk: bytes) -> list[Any]:
            found = [
                event for event in events.feed(chunk) if template.event_type in (None, event.get("event") or "message")
            ]
            return [json_or_text(event["data"]) for event in found]

        return await _collect(response, decode, invocation.progress())


async def call_stream(tool: PreparedTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Call a streamable_http template and return its lines as a list, or its body where it is not lines."""
    async with await open_response(build_request(tool, invocation), tool, invocation, context) as response:
        kind = parse_media_type(response.headers.get("content-type") or "")
        report = invocation.progress()
        if kind.kind == "lines":
            return await _collect(response, _JsonLines(), report)
        data = bytearray()
        async for chunk in response.stream():
            data += chunk
            report(f"{len(data)} bytes")
        if kind.kind == "json":
            return ToolOutput([json_or_text(decode_text(bytes(data), kind.charset))] if data else [])
        if kind.kind in ("text", "xml", "yaml", "events"):
            return ToolOutput(decode_text(bytes(data), kind.charset))
        return ToolOutput(bytes(data), media_type=kind.essence or OCTETS)


class _JsonLines:
    """Decode chunks into the values of JSON lines; an empty chunk flushes the last line."""

    def __init__(self) -> None:
        self._lines = LineDecoder()

    def __call__(self, chunk: bytes) -> list[Any]:
        lines = self._lines.feed(chunk) if chunk else self._lines.flush()
        return [json_or_text(line) for line in lines if line.strip()]


async def _collect(
    response: Response, decode: Callable[[bytes], list[Any]], report: Callable[[str], None]
) -> ToolOutput:
    """Collect the items of a stream; return those that came where it is cut off."""
    items: list[Any] = []
    try:
        async for chunk in _chunks(response):
            for item in decode(chunk):
                items.append(item)
                report(item if isinstance(item, str) else compact_json(item))
    except (ToolTimeoutError, ToolClientError):
        if not items:
            raise
        return ToolOutput(items).noted(TRUNCATED)
    return ToolOutput(items)


async def _chunks(response: Response) -> AsyncIterator[bytes]:
    """Yield the chunks of a body, and an empty one at its end."""
    async for chunk in response.stream():
        yield chunk
    yield b""


async def open_response(
    planned: PlannedRequest,
    tool: PreparedTool,
    invocation: Invocation,
    context: ManualContext,
    *,
    follow: Follow = "none",
) -> Response:
    """Send a request and return its response with the body unread; a ToolError reports a failure status."""

    async def send(request: PlannedRequest) -> Response:
        return await context.client.send(request.to_wire(tool.timeout_s * STREAM_TIME_SHARE, MAX_BYTES, follow))

    response, presented = await send_authenticated(planned, tool, invocation, context, send)
    if 200 <= response.status < 300:
        return response
    async with response:
        secrets = (*presented.secrets, *tool.secrets, *context.header_secrets)
        body = await response.read()
        raise response_error(tool.label, response.status, response.headers, body, remedy=REMEDY, secrets=secrets)
