"""The operation that exports the event log, as JSON lines or CSV."""

from __future__ import annotations

import asyncio
import csv
from datetime import UTC, datetime
from io import StringIO
from typing import TYPE_CHECKING

from starlette.responses import Response, StreamingResponse

from toolpost.gateway.event_feed import events_after
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.event_filters import (
    AFTER,
    RUN_FILTER,
    TIME_FILTERS,
    TOOL_FILTER,
    TYPE_FILTER,
    USER_FILTER,
    find_run,
    read_filter,
)
from toolpost.gateway.rest.event_stream import in_turns
from toolpost.gateway.rest.operations import Operations, RestRequest, json_bytes

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, AsyncIterator

    from toolpost.contracts.events import StoredEvent

OPERATIONS = Operations("events")
_LINES, _CSV = "application/x-ndjson", "text/csv"
_COLUMNS = ("id", "at", "type", "tool", "user", "run_id", "seq", "call_id", "payload", "hash")
_PROGRESS_S = 0.5
# Spreadsheets run a cell that begins with one of these, also in its full-width form.
_FORMULA = (*"=+-@", *"\uff1d\uff0b\uff0d\uff20", "\t", "\r", "\n")


@OPERATIONS.declare(
    "GET",
    "/audit",
    scope=("admin",),
    query={
        "format": {"type": "string", "enum": ["jsonl", "csv"], "default": "jsonl"},
        "run": RUN_FILTER,
        "tool": TOOL_FILTER,
        "user": USER_FILTER,
        "type": TYPE_FILTER,
        **TIME_FILTERS,
        "after": AFTER,
        "verify": {
            "type": "string",
            "enum": ["no", "yes", "progress"],
            "default": "no",
            "description": "`progress`: also send lines with the number of verified runs, while it takes",
        },
    },
    answers={200: {_LINES: {"type": "string"}, _CSV: {"type": "string"}}},
    problems=(404,),
)
async def export_audit(request: RestRequest) -> Response:
    """Export events of the tenant with their hashes as JSON lines or CSV, and verify the event log or one run."""
    query, log = request.query, request.box.store.events
    run_id, verify = query.get("run"), query["verify"]
    if run_id is not None:
        await find_run(request, run_id)
    only = read_filter(request)
    if verify != "no" and query["format"] == "csv":
        detail = "a table has no place for the result of `verify`: omit `verify`, or use `format=jsonl`"
        raise Problem(400, "not_in_csv", detail)
    problems = await log.verify(run_id, tenant=request.tenant) if verify == "yes" else None
    events = events_after(log, query.get("after", 0), tenant=request.tenant, run_id=run_id, only=only)
    if query["format"] == "csv":
        headers = {"Content-Disposition": 'attachment; filename="events.csv"'}
        return StreamingResponse(in_turns(_rows(events)), media_type=_CSV, headers=headers)
    lines = _lines(events, problems) if verify != "progress" else _verified_lines(request, run_id, events)
    return StreamingResponse(in_turns(lines), media_type=_LINES)


async def _verified_lines(
    request: RestRequest, run_id: str | None, events: AsyncIterator[StoredEvent]
) -> AsyncGenerator[bytes]:
    """Yield lines of progress while the log is verified, then those of the events and of the result."""
    verified, runs = 0, 0

    def note(done: int, of: int) -> None:
        nonlocal verified, runs
        verified, runs = done, of

    log = request.box.store.events
    verifying = asyncio.ensure_future(log.verify(run_id, tenant=request.tenant, on_progress=note))
    try:
        while not (await asyncio.wait({verifying}, timeout=_PROGRESS_S))[0]:
            yield json_bytes({"status": "verifying", "verified": verified, "runs": runs}) + b"\n"
    finally:
        verifying.cancel()
    async for line in _lines(events, await verifying):
        yield line


async def _lines(events: AsyncIterator[StoredEvent], problems: list[str] | None) -> AsyncGenerator[bytes]:
    async for event in events:
        yield json_bytes({**event.to_dict(), "user": event.user}) + b"\n"
    if problems is not None:
        yield json_bytes({"status": "changed" if problems else "verified", "problems": problems}) + b"\n"


async def _rows(events: AsyncIterator[StoredEvent]) -> AsyncGenerator[bytes]:
    yield _row(*_COLUMNS)
    async for event in events:
        at = datetime.fromtimestamp(event.at, UTC).isoformat()
        payload = json_bytes(dict(event.payload)).decode()
        tool = str(event.payload.get("tool_name", ""))
        names = (event.code.name, tool, event.user, event.run_id, event.seq, event.call_id)
        yield _row(event.id, at, *names, payload, event.hash)


def _row(*cells: object) -> bytes:
    text = StringIO()
    csv.writer(text).writerow([f"'{cell}" if str(cell).startswith(_FORMULA) else cell for cell in cells])
    return text.getvalue().encode()
