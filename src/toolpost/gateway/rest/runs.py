"""Operations on runs: list, show and cancel them, and wait for the outcome of an asynchronous call."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from toolpost.contracts.events import RunFilter
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.principal import Principal
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.calls import is_suspended
from toolpost.gateway.rest.components import page, ref
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.pages import PAGE, decode_cursor, page_response
from toolpost.runtime.persistence import kept_outcome

if TYPE_CHECKING:
    from starlette.responses import Response

    from toolpost.contracts.events import RunSummary

OPERATIONS = Operations("runs")
_LONGEST_WAIT_S = 60.0
_LOOK_S = 2.0  # in case that an outcome is stored without an event
_STORING_S = 0.02
_MOST_EVENTS = 10_000
_OPEN = frozenset({"running", "paused"})


@OPERATIONS.declare("GET", "/runs", query=PAGE, answers={200: page("Run")})
async def list_runs(request: RestRequest) -> Response:
    """List runs, newest first."""
    limit: int = request.query["limit"]
    before = decode_cursor(request.query.get("cursor"))
    if before is not None:
        await _find_run(request, before, code="invalid_cursor", status=400)
    runs: list[RunSummary] = await request.box.store.events.runs(
        tenant=request.tenant, before=before, limit=limit + 1, only=RunFilter(user=request.only_user)
    )
    return page_response(runs, limit, lambda run: run.run_id, lambda run: run.to_dict())


@OPERATIONS.declare("GET", "/runs/{run_id}", answers={200: ref("Run")}, problems=(404,))
async def show_run(request: RestRequest) -> Response:
    """Show a run with its events and artifacts."""
    run = await _find_run(request, request.path["run_id"])
    store = request.box.store
    events = await store.events.read(tenant=request.tenant, run_id=run.run_id, limit=_MOST_EVENTS)
    artifacts = await store.artifacts.list(tenant=request.tenant, user=request.only_user, run_id=run.run_id)
    log = [event.to_dict() for event in events]
    return JsonResponse({**run.to_dict(), "log": log, "artifacts": [one.to_dict() for one in artifacts]})


@OPERATIONS.declare(
    "GET",
    "/runs/{run_id}/outcome",
    query={"wait_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S, "default": 0}},
    answers={200: ref("Outcome"), 202: ref("Started")},
    problems=(404,),
)
async def run_outcome(request: RestRequest) -> Response:
    """Get the outcome of an asynchronous call, and wait for it up to `wait_s` seconds."""
    run_id, deadline = request.path["run_id"], time.monotonic() + request.query["wait_s"]
    watch = request.service.feed.watch(run_id, tenant=request.tenant)
    while True:
        run, left_s = await _find_run(request, run_id), deadline - time.monotonic()
        known = await kept_outcome(request.box.store, run)
        if known is not None and not is_suspended(known):
            return JsonResponse(outcome_to_dict(known))
        if known is None and run.status not in _OPEN and not await _is_kept(request, run):
            detail = "the outcome was returned to the caller that waited for it, and is not stored"
            raise Problem(404, "outcome_not_kept", detail)
        if left_s <= 0:
            return JsonResponse({"status": "running", "run_id": run.run_id}, 202)
        # The outcome is stored shortly after the last event.
        await watch.wait(at_most_s=min(left_s, _LOOK_S if run.status in _OPEN else _STORING_S))


@OPERATIONS.declare("POST", "/runs/{run_id}/cancel", answers={202: ref("Cancelling")}, problems=(404, 409))
async def cancel_run(request: RestRequest) -> Response:
    """Cancel a run, regardless of the process that runs it."""
    run = await _find_run(request, request.path["run_id"])
    if not await request.box.cancel(run.run_id, by=request.user):
        raise Problem(409, "run_ended", f"run {run.run_id!r} has already ended: {run.status}")
    return JsonResponse({"status": "cancelling", "run_id": run.run_id}, 202)


@OPERATIONS.declare("GET", "/runs/{run_id}/verify", answers={200: ref("Verified")}, problems=(404,))
async def verify_run(request: RestRequest) -> Response:
    """Verify the events of a run: whether they were changed outside Toolpost."""
    run = await _find_run(request, request.path["run_id"])
    problems = await request.box.store.events.verify(run.run_id, tenant=request.tenant)
    return JsonResponse({"status": "changed" if problems else "verified", "problems": problems, "events": run.events})


async def _find_run(request: RestRequest, run_id: str, *, code: str = "run_not_found", status: int = 404) -> RunSummary:
    """Return a run that is visible to the caller; other runs are not found."""
    run = await request.box.run(run_id, user=request.user)
    if run is None or (request.only_user is not None and run.user != request.only_user):
        raise Problem(status, code, f"unknown run {run_id!r}")
    return run


async def _is_kept(request: RestRequest, run: RunSummary) -> bool:
    """Return whether the outcome of an ended run is about to be stored."""
    record = await request.box.store.idempotency.find(Principal(run.tenant, run.user), run.call_id)
    return record is not None and record.owner_alive
