"""The operation on events: a stream of server-sent events that clients can resume, or pages as JSON."""

from __future__ import annotations

import asyncio
import time
from fnmatch import fnmatchcase
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response, StreamingResponse

from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.event_filters import (
    AFTER,
    BEFORE,
    EVENT_LIMIT,
    RUN_FILTER,
    TIME_FILTERS,
    TOOL_FILTER,
    TYPE_FILTER,
    USER_FILTER,
    find_run,
    read_filter,
)
from toolpost.gateway.rest.operations import JsonResponse, JsonSchema, Operations, RestRequest, json_bytes
from toolpost.gateway.rest.pending import card_of
from toolpost.gateway.rest.schema_builders import ref

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterable

    from toolpost.contracts.events import EventFilter, StoredEvent

OPERATIONS = Operations("events")
_OF_PAGES: dict[str, JsonSchema] = {
    "before": BEFORE,
    "limit": {name: value for name, value in EVENT_LIMIT.items() if name != "default"},
    **TIME_FILTERS,
}
_CHECKED_S = 5.0  # a stream ends with the key, token or session of its caller, which is checked at most this often
_JSON, _STREAM = "application/json", "text/event-stream"


def event_stream(events: AsyncIterable[bytes]) -> StreamingResponse:
    """Return a stream of server-sent events that reverse proxies do not buffer."""
    headers = {"X-Accel-Buffering": "no"}
    return StreamingResponse(in_turns(events), media_type="text/event-stream", headers=headers)


async def in_turns(parts: AsyncIterable[bytes]) -> AsyncGenerator[bytes]:
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
        "run": RUN_FILTER,
        "tool": TOOL_FILTER,
        "user": USER_FILTER,
        "type": TYPE_FILTER,
        "after": AFTER,
        **_OF_PAGES,
    },
    headers={"Last-Event-ID": {"type": "string", "pattern": "^[0-9]{1,18}$"}},
    answers={200: {_STREAM: ref("EventMessage"), _JSON: ref("EventPage")}},
    problems=(404,),
)
async def stream_events(request: RestRequest) -> Response:
    """Stream events as they happen, or with `Accept: application/json` return a page of them, newest first."""
    accepted = request.raw.headers.get("accept", "")
    if _JSON in accepted and _STREAM not in accepted:
        return await _page(request)
    for name in _OF_PAGES:
        if name in request.query:
            detail = f"a stream has no `{name}`: send `Accept: {_JSON}` for pages, or omit it"
            raise Problem(400, "not_a_page", detail)
    if request.raw.method == "HEAD":  # an endless stream without a body would hold the connection
        return Response(media_type="text/event-stream")
    if request.service.is_stopping:  # a new stream would end immediately
        raise Problem(503, "stopping", "the gateway is shutting down", headers={"Retry-After": "2"})
    return event_stream(_stream(request, read_filter(request)))


async def _page(request: RestRequest) -> Response:
    query = request.query
    run_id, limit = query.get("run"), int(query.get("limit", EVENT_LIMIT["default"]))
    if run_id is not None:
        await find_run(request, run_id)
    found = await request.box.store.events.read(
        tenant=request.tenant,
        run_id=run_id,
        after=query.get("after", 0),
        before=query.get("before"),
        limit=limit + 1,
        only=read_filter(request),
        newest=True,
    )
    events = found[::-1][:limit]
    following = events[-1].id if len(found) > limit else None
    items = [event.to_dict() for event in events]
    return JsonResponse({"items": items, "next": following}, headers={"Vary": "Accept"})


async def _stream(request: RestRequest, only: EventFilter) -> AsyncGenerator[bytes]:
    query, last = request.query, request.raw.headers.get("last-event-id")  # sent by browsers when they reconnect
    after: int | None = query.get("after") if last is None else int(last)
    run_id: str | None = query.get("run")

    def wanted(event: StoredEvent) -> bool:
        name = str(event.payload.get("tool_name", ""))
        is_of_type = not only.codes or event.code in only.codes
        return is_of_type and only.user in (None, event.user) and (only.tool is None or fnmatchcase(name, only.tool))

    feed, checked = request.service.feed, time.monotonic()
    async for event in feed.listen(tenant=request.tenant, run_id=run_id, after=after, only=only, wanted=wanted):
        if (now := time.monotonic()) - checked >= _CHECKED_S:
            if not await request.service.sessions.is_current(request.caller):
                return
            checked = now
        if event is None:
            yield b": listening\n\n"  # keeps proxies from closing an idle connection
        else:
            yield server_event(
                event.code.name,
                await request.box.pending.describe_event(event, by=request.user, show=partial(card_of, request)),
                event.id,
            )
