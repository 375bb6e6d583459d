"""Operations on events: a stream of server-sent events that clients can resume, and the export of the event log."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from toolpost.contracts.events import EventFilter
from toolpost.gateway.event_feed import events_after
from toolpost.gateway.rest.components import ref
from toolpost.gateway.rest.operations import Operations, RestRequest, json_bytes
from toolpost.gateway.rest.pending import card_of

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from toolpost.contracts.events import StoredEvent

OPERATIONS = Operations("events")
_AFTER = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1, "description": "Only events with a higher ID"}
_FILTER = {"type": "string", "minLength": 1, "maxLength": 200}


def event_stream(events: AsyncIterable[bytes]) -> StreamingResponse:
    """Return a stream of server-sent events that reverse proxies do not buffer."""
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_in_turns(events), media_type="text/event-stream", headers=headers)


async def _in_turns(parts: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Yield to the event loop after each part, so that a long history does not block it."""
    async for part in parts:
        yield part
        await asyncio.sleep(0)


def server_event(name: str, data: Any, id: int | None = None) -> bytes:
    """Return one server-sent event."""
    line = b"" if id is None else b"id: %d\n" % id
    return b"%sevent: %s\ndata: %s\n\n" % (line, name.encode(), json_bytes(data))


@OPERATIONS.declare(
    "GET",
    "/events",
    query={
        "run": _FILTER,
        "tool": {**_FILTER, "description": "A name; * matches any characters"},
        "user": {**_FILTER, "description": "Of the caller's tenant"},
        "after": _AFTER,
    },
    headers={"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
    answers={200: {"text/event-stream": ref("EventMessage")}},
)
async def stream_events(request: RestRequest) -> Response:
    """Stream events as they happen, from now on or after a given event."""
    if request.raw.method == "HEAD":  # an endless stream without a body would hold the connection
        return Response(media_type="text/event-stream")
    return event_stream(_stream(request))


async def _stream(request: RestRequest) -> AsyncGenerator[bytes]:
    query, last = request.query, request.raw.headers.get("last-event-id")  # sent by browsers when they reconnect
    after: int | None = query.get("after") if last is None else int(last)
    run_id: str | None = query.get("run")
    only = EventFilter(tool=query.get("tool"), user=request.only_user or query.get("user"))

    def wanted(event: StoredEvent) -> bool:
        name = str(event.payload.get("tool_name", ""))
        return only.user in (None, event.user) and (only.tool is None or fnmatchcase(name, only.tool))

    feed = request.service.feed
    async for event in feed.listen(tenant=request.tenant, run_id=run_id, after=after, only=only, wanted=wanted):
        if event is None:
            yield b": listening\n\n"  # keeps proxies from closing an idle connection
        else:
            yield server_event(
                event.code.name,
                await request.box.pending.describe_event(event, by=request.user, show=partial(card_of, request)),
                event.id,
            )


@OPERATIONS.declare(
    "GET",
    "/audit",
    scope=("admin",),
    query={"after": _AFTER, "verify": {"type": "string", "enum": ["yes", "no"], "default": "no"}},
    answers={200: {"application/x-ndjson": {"type": "string"}}},
)
async def export_audit(request: RestRequest) -> Response:
    """Export all events of the tenant as JSON lines with their hashes, and verify the event log."""
    problems = (
        await request.box.store.events.verify(tenant=request.tenant) if request.query["verify"] == "yes" else None
    )
    return StreamingResponse(_in_turns(_export(request, problems)), media_type="application/x-ndjson")


async def _export(request: RestRequest, problems: list[str] | None) -> AsyncGenerator[bytes]:
    async for event in events_after(request.box.store.events, request.query.get("after", 0), tenant=request.tenant):
        yield json_bytes({**event.to_dict(), "user": event.user}) + b"\n"
    if problems is not None:
        yield json_bytes({"status": "changed" if problems else "verified", "problems": problems}) + b"\n"
