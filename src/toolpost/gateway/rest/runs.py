"""Operations on runs: list, show and cancel them, and wait for the outcome of an asynchronous call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from toolpost.contracts.callers import KEY_ID
from toolpost.contracts.events import EventFilter, RunFilter
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.principal import Principal
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.caller_names import key_names
from toolpost.gateway.rest.calls import is_suspended
from toolpost.gateway.rest.event_filters import (
    AFTER,
    EVENT_LIMIT,
    TIME_FILTERS,
    TOOL_FILTER,
    TYPE_FILTER,
    USER_FILTER,
    find_run,
    read_times,
    read_types,
)
from toolpost.gateway.rest.operations import JsonResponse, JsonSchema, Operations, RestRequest
from toolpost.gateway.rest.pages import PAGE, YES_NO, decode_cursor, encode_cursor
from toolpost.gateway.rest.schema_builders import MAYBE_TEXT, array, record, ref
from toolpost.runtime.job_runs import find_outcome

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from starlette.responses import Response

    from toolpost.contracts.events import RunSummary

OPERATIONS = Operations("runs")
_LONGEST_WAIT_S = 60.0
_LOOK_S = 2.0  # in case that an outcome is stored without an event
_STORING_S = 0.02
_MOST_EVENTS = 10_000
_OPEN = frozenset({"running", "paused"})
_NOT_KEPT = "not kept"

_FILTERS: dict[str, JsonSchema] = {
    "status": {"type": "string", "enum": ["running", "paused", "completed", "failed"]},
    "tool": TOOL_FILTER,
    "source": {"type": "string", "minLength": 1, "maxLength": 200, "pattern": r"^[^*?\[\]]+$"},
    "user": USER_FILTER,
    **TIME_FILTERS,
    "q": {
        "type": "string",
        "minLength": 1,
        "maxLength": 200,
        "description": "Part of the run ID, the tool or the user",
    },
    "total": {**YES_NO, "description": "Count all that match, in `total`"},
}
_TOTAL = {"type": ["integer", "null"], "description": "How many match; null unless it was requested"}


@OPERATIONS.declare(
    "GET",
    "/runs",
    query={**_FILTERS, **PAGE},
    answers={200: record({"items": array(ref("Run")), "next": MAYBE_TEXT, "total": _TOTAL})},
)
async def list_runs(request: RestRequest) -> Response:
    """List runs, newest first."""
    query, limit = request.query, int(request.query["limit"])
    since, until = read_times(query)
    names = {name: query.get(name) for name in ("status", "tool", "source", "q")}
    only = RunFilter(user=request.only_user or query.get("user"), since=since, until=until, **names)
    before = decode_cursor(query.get("cursor"))
    if before is not None:
        await find_run(request, before, code="invalid_cursor", status=400)
    log = request.box.store.events
    runs: list[RunSummary] = await log.runs(tenant=request.tenant, before=before, limit=limit + 1, only=only)
    shown = await _to_dicts(request, runs[:limit])
    total = await log.count_runs(tenant=request.tenant, only=only) if query["total"] == "yes" else None
    following = encode_cursor(runs[limit - 1].run_id) if len(runs) > limit else None
    return JsonResponse({"items": shown, "next": following, "total": total})


@OPERATIONS.declare(
    "GET",
    "/runs/{run_id}",
    query={"log": {"type": "string", "enum": ["yes", "no"], "default": "yes"}},
    answers={200: ref("Run")},
    problems=(404,),
)
async def show_run(request: RestRequest) -> Response:
    """Show a run with its artifacts and, unless `log` is `no`, its first 10,000 events."""
    run = await find_run(request, request.path["run_id"])
    store = request.box.store
    (document,) = await _to_dicts(request, [run])
    artifacts = await store.artifacts.list(tenant=request.tenant, user=request.only_user, run_id=run.run_id)
    shown = {**document, "artifacts": [one.to_dict() for one in artifacts]}
    shown["result"] = await _describe_result(request, run)
    if request.query["log"] == "yes":
        events = await store.events.read(tenant=request.tenant, run_id=run.run_id, limit=_MOST_EVENTS)
        shown["log"] = [event.to_dict() for event in events]
    return JsonResponse(shown)


@OPERATIONS.declare(
    "GET",
    "/runs/{run_id}/events",
    query={"after": AFTER, "limit": EVENT_LIMIT, "type": TYPE_FILTER},
    answers={200: ref("EventPage")},
    problems=(404,),
)
async def list_run_events(request: RestRequest) -> Response:
    """List the events of a run, oldest first; `next` is the `after` of the next page."""
    run = await find_run(request, request.path["run_id"])
    query, limit = request.query, int(request.query["limit"])
    events = await request.box.store.events.read(
        tenant=request.tenant,
        run_id=run.run_id,
        after=query.get("after", 0),
        limit=limit + 1,
        only=EventFilter(codes=read_types(query)),
    )
    following = events[limit - 1].id if len(events) > limit else None
    return JsonResponse({"items": [event.to_dict() for event in events[:limit]], "next": following})


@OPERATIONS.declare(
    "GET",
    "/runs/{run_id}/outcome",
    query={"wait_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S, "default": 0}},
    answers={200: {"oneOf": [ref("Outcome"), ref("OutcomeNotKept")]}, 202: ref("Started")},
    problems=(404,),
)
async def run_outcome(request: RestRequest) -> Response:
    """Get the outcome of a run, and wait for it up to `wait_s` seconds; without `content` it is not stored."""
    run_id, deadline = request.path["run_id"], time.monotonic() + request.query["wait_s"]
    watch = request.service.feed.watch(run_id, tenant=request.tenant)
    while True:
        run, left_s = await find_run(request, run_id), deadline - time.monotonic()
        known = await find_outcome(request.box.store, run)
        if known is not None and not is_suspended(known):
            return JsonResponse(outcome_to_dict(known))
        if known is None and run.status not in _OPEN and not await _is_kept(request, run):
            return JsonResponse(await _not_kept(request, run))
        if left_s <= 0:
            return JsonResponse({"status": "running", "run_id": run.run_id}, 202)
        # The outcome is stored shortly after the last event.
        await watch.wait(at_most_s=min(left_s, _LOOK_S if run.status in _OPEN else _STORING_S))


@OPERATIONS.declare("POST", "/runs/{run_id}/cancel", answers={202: ref("Cancelling")}, problems=(404, 409))
async def cancel_run(request: RestRequest) -> Response:
    """Cancel a run, regardless of the process that runs it."""
    run = await find_run(request, request.path["run_id"])
    if not await request.box.cancel(run.run_id, by=request.user):
        raise Problem(409, "run_ended", f"run {run.run_id!r} has already ended: {run.status}")
    return JsonResponse({"status": "cancelling", "run_id": run.run_id}, 202)


@OPERATIONS.declare("GET", "/runs/{run_id}/verify", answers={200: ref("Verified")}, problems=(404,))
async def verify_run(request: RestRequest) -> Response:
    """Verify the events of a run: whether they were changed outside Toolpost."""
    run = await find_run(request, request.path["run_id"])
    problems = await request.box.store.events.verify(run.run_id, tenant=request.tenant)
    return JsonResponse({"status": "changed" if problems else "verified", "problems": problems, "events": run.events})


async def _to_dicts(request: RestRequest, runs: Sequence[RunSummary]) -> list[dict[str, Any]]:
    """Return runs as JSON data, with the names of their callers' keys."""
    found = zip(runs, await request.box.store.events.run_details(runs), strict=True)
    shown = [{**run.to_dict(), **details.to_dict()} for run, details in found]
    callers = [str(one["caller"] or "") for one in shown]
    names: Mapping[str, str] = {}
    if any(caller.startswith(KEY_ID) for caller in callers):
        names = await key_names(request)
    return [
        {**one, "caller_name": names.get(caller.removeprefix(KEY_ID)) if caller.startswith(KEY_ID) else None}
        for one, caller in zip(shown, callers, strict=True)
    ]


async def _not_kept(request: RestRequest, run: RunSummary) -> dict[str, Any]:
    """Return how a run ended whose outcome only the caller that waited for it received."""
    (details,) = await request.box.store.events.run_details([run])
    names = {name: getattr(run, name) for name in ("status", "run_id", "call_id", "tool_name")}
    return {**names, "error_code": details.error_code, "result": _NOT_KEPT}


async def _describe_result(request: RestRequest, run: RunSummary) -> str | None:
    """Return whether the outcome of a run is stored; None while the run is open."""
    if run.status in _OPEN:
        return None
    is_kept = await find_outcome(request.box.store, run) is not None or await _is_kept(request, run)
    return "kept" if is_kept else _NOT_KEPT


async def _is_kept(request: RestRequest, run: RunSummary) -> bool:
    """Return whether the outcome of an ended run is about to be stored."""
    record = await request.box.store.idempotency.find(Principal(run.tenant, run.user), run.call_id)
    return record is not None and record.owner_alive
