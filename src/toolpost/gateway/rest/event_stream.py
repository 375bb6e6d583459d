"""Events as server-sent events: with ids to go on from, and with the card of whatever waits for a person."""

from __future__ import annotations

import asyncio
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from toolpost.contracts.events import EventFilter
from toolpost.gateway.event_feed import events_after
from toolpost.gateway.rest.operations import Operation, RestRequest, json_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from toolpost.contracts.events import StoredEvent

_HIGHEST = 2**63 - 1
_FILTER = {"type": "string", "minLength": 1, "maxLength": 200}


def event_stream(events: AsyncIterable[bytes]) -> StreamingResponse:
    """Return a stream of server-sent events, which no proxy should hold back."""
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(_in_turns(events), media_type="text/event-stream", headers=headers)


async def _in_turns(parts: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
    """Let others run after each part: a long history holds nobody up, and a client that is gone is noticed."""
    async for part in parts:
        yield part
        await asyncio.sleep(0)


def server_event(name: str, data: Any, id: int | None = None) -> bytes:
    """Return one server-sent event."""
    line = b"" if id is None else b"id: %d\n" % id
    return b"%sevent: %s\ndata: %s\n\n" % (line, name.encode(), json_bytes(data))


async def _stream_events(ask: RestRequest) -> Response:
    """Send events from an id on, or from now on, for as long as the client listens."""
    if ask.raw.method == "HEAD":  # a stream without an end would hold the connection, and nobody would hear it
        return Response(media_type="text/event-stream")
    return event_stream(_stream(ask, _after(ask)))


def _after(ask: RestRequest) -> int | None:
    """Return the last event that the client has: a browser that connects again sends it by itself."""
    last = ask.raw.headers.get("last-event-id")
    if last is None:
        after: int | None = ask.query.get("after")
        return after
    return int(last)


async def _stream(ask: RestRequest, after: int | None) -> AsyncGenerator[bytes]:
    only = _filter(ask)
    run_id: str | None = ask.query.get("run")

    def wanted(event: StoredEvent) -> bool:
        name = str(event.payload.get("tool_name", ""))
        return only.user in (None, event.user) and (only.tool is None or fnmatchcase(name, only.tool))

    feed = ask.service.feed
    async for event in feed.listen(tenant=ask.tenant, run_id=run_id, after=after, only=only, wanted=wanted):
        if event is None:
            yield b": listening\n\n"  # no proxy closes a connection on which something is sent
        else:
            yield server_event(event.code.name, await ask.box.pending.describe_event(event, by=ask.user), event.id)


def _filter(ask: RestRequest) -> EventFilter:
    return EventFilter(tool=ask.query.get("tool"), user=ask.only_user or ask.query.get("user"))


async def _export_audit(ask: RestRequest) -> Response:
    """Send every event of the tenant, one JSON object a line, with the hashes of the chain."""
    problems = await ask.box.store.events.verify(tenant=ask.tenant) if ask.query["verify"] == "yes" else None
    return StreamingResponse(_in_turns(_export(ask, problems)), media_type="application/x-ndjson")


async def _export(ask: RestRequest, problems: list[str] | None) -> AsyncGenerator[bytes]:
    async for event in events_after(ask.box.store.events, ask.query.get("after", 0), tenant=ask.tenant):
        yield json_bytes({**event.to_dict(), "user": event.user}) + b"\n"
    if problems is not None:
        yield json_bytes({"status": "changed" if problems else "verified", "problems": problems}) + b"\n"


_AFTER = {"type": "integer", "minimum": 0, "maximum": _HIGHEST, "description": "Only events with a higher id"}
OPERATIONS = [
    Operation(
        id="stream_events",
        method="GET",
        path="/events",
        summary="Listen to events as they happen, from any event on",
        tag="events",
        handler=_stream_events,
        query={
            "run": _FILTER,
            "tool": {**_FILTER, "description": "A name; * stands for any letters"},
            "user": {**_FILTER, "description": "Of the caller's tenant"},
            "after": _AFTER,
        },
        headers={"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
        answers={200: {"text/event-stream": {}}},
    ),
    Operation(
        id="export_audit",
        method="GET",
        path="/audit",
        summary="Export all events of the tenant as JSON lines, and verify the record",
        tag="events",
        handler=_export_audit,
        scope=("admin",),
        query={"after": _AFTER, "verify": {"type": "string", "enum": ["yes", "no"], "default": "no"}},
        answers={200: {"application/x-ndjson": {"type": "string"}}},
    ),
]
