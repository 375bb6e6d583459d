"""Operations that call tools: wait for the outcome, return the ID of the run, or stream its events."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import Completed, Failed, Paused, outcome_to_dict
from toolpost.gateway.event_feed import events_after
from toolpost.gateway.problems import LIST_PENDING, Problem, ProblemResponse, problem_of
from toolpost.gateway.rest.event_stream import event_stream, server_event
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.pending import card_of
from toolpost.gateway.rest.schema_builders import ref
from toolpost.runtime.failures import STOPPED
from toolpost.runtime.jobs import call_job
from toolpost.runtime.persistence import load_outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from toolpost.contracts.outcomes import Outcome

OPERATIONS = Operations("calls")
_KEY_HEADER = "Idempotency-Key"
_PROMPT_S = 0.25
_LOOK_S = 0.02
_KEY = {
    _KEY_HEADER: {
        "type": "string",
        "minLength": 1,
        "maxLength": 255,
        "pattern": "^[!-~]+$",
        "description": "Run the call at most once per key; repeating the key returns the first outcome. "
        "With other arguments the call is rejected",
    }
}
# Errors of an idempotency key: used for another call, its call still runs, or the outcome is unknown.
_KEY_ERRORS = {"key_mismatch": 422, "in_progress": 409, "outcome_unknown": 409}


@OPERATIONS.declare(
    "POST",
    "/calls",
    scope=("call",),
    headers=_KEY,
    takes=ref("Call"),
    answers={200: {"application/json": ref("Outcome"), "text/event-stream": ref("CallMessage")}, 202: ref("Started")},
    problems=(404, 409, 503),
)
async def call(request: RestRequest) -> Response:
    """Call a tool: wait for the outcome, get the ID of the run, or stream its events."""
    body, mode = request.body, request.body.get("mode", "wait")
    if mode == "async":
        return await _enqueue(request)
    run_id, task = _start(request, body["tool"], body.get("arguments"), timeout_s=body.get("timeout_s"))
    if mode == "stream":
        return event_stream(_stream_run(request, task, run_id))
    outcome = await asyncio.shield(task)
    problem = _key_problem(outcome) or _shutdown_problem(request, outcome, run_id)
    if problem is not None:
        return problem
    replayed = {"Idempotent-Replayed": "true"} if outcome.run_id != run_id else {}
    return JsonResponse(outcome_to_dict(outcome), headers=replayed)


@OPERATIONS.declare(
    "POST",
    "/tools/{name}",
    scope=("call",),
    headers=_KEY,
    takes={"type": "object"},
    no_body={},
    answers={200: {}, 202: ref("Outcome")},
    problems=(404, 409, 429, 500, 502, 503, 504),
)
async def call_tool(request: RestRequest) -> Response:
    """Call a tool with the body as its arguments, and get only its result."""
    run_id, task = _start(request, request.path["name"], request.body)
    outcome = await asyncio.shield(task)
    problem = _shutdown_problem(request, outcome, run_id)
    if problem is not None:
        return problem
    match outcome:
        case Completed():
            return JsonResponse(outcome.content)
        case Failed():
            return _key_problem(outcome) or problem_of(outcome.error)
        case Paused():
            return JsonResponse(outcome_to_dict(outcome), 202)


def _start(
    request: RestRequest,
    tool: str,
    arguments: Mapping[str, Any] | None,
    *,
    timeout_s: float | None = None,
) -> tuple[str, asyncio.Task[Outcome]]:
    """Start a call in a task that is not cancelled with the request."""
    _refuse_while_stopping(request)
    run_id, key = request.box.router.new_id("run"), request.raw.headers.get(_KEY_HEADER)
    calling = request.tools.call(
        tool,
        arguments,
        user=request.user,
        timeout_s=timeout_s,
        idempotency_key=key,
        run_id=run_id,
        context=ToolContext(caller=request.caller.id),
        session=request.caller.id,
    )
    return run_id, request.service.start_call(calling)


def _refuse_while_stopping(request: RestRequest) -> None:
    if request.service.is_stopping:
        detail = "the gateway is shutting down; retry in a moment"
        raise Problem(503, "stopping", detail, headers={"Retry-After": "2"})


def _key_problem(outcome: Outcome) -> Response | None:
    if not isinstance(outcome, Failed) or outcome.error.error_code not in _KEY_ERRORS:
        return None
    code = outcome.error.error_code
    hint = f"; {LIST_PENDING}" if code == "outcome_unknown" else ""
    return ProblemResponse(_KEY_ERRORS[code], code, f"{outcome.error.message}{hint}")


def _shutdown_problem(request: RestRequest, outcome: Outcome, run_id: str) -> Response | None:
    """Return the response for a call that was still running when the gateway shut down, else None."""
    location = f"{request.service.public_url}/api/v1/runs/{outcome.run_id}/outcome"
    if outcome.run_id != run_id:  # of an earlier call with this key
        if not is_suspended(outcome):
            return None
        detail, code = f"the call with this key still runs; {location} will have the outcome", "in_progress"
        return ProblemResponse(409, code, detail, headers={"Retry-After": "1"}, run_id=outcome.run_id)
    if is_suspended(outcome):
        detail = f"the gateway is shutting down; the call resumes after a restart, and {location} has the outcome"
        code = "parked"
    elif isinstance(outcome, Failed) and outcome.error.error_code == STOPPED:
        detail, code = outcome.error.message, STOPPED
    else:
        return None
    headers = {"Retry-After": "5", "Location": location}
    return ProblemResponse(503, code, detail, headers=headers, run_id=outcome.run_id)


def is_suspended(outcome: Outcome) -> bool:
    """Return whether a call was suspended by the shutdown of its process, to resume in another one."""
    return isinstance(outcome, Paused) and outcome.question.kind == "restart"


async def _enqueue(request: RestRequest) -> Response:
    """Store a call as a job, and return the ID of its run, or an error that is already known.

    Clients may request the outcome from other processes, or from the next one if this one is killed now.
    """
    _refuse_while_stopping(request)
    body, key = request.body, request.raw.headers.get(_KEY_HEADER)
    if (refused := await request.tools.refusal(body["tool"])) is not None:
        return problem_of(refused)
    job = call_job(
        request.box.router.new_id("run"),
        body["tool"],
        body.get("arguments"),
        principal=request.caller.principal,
        at=time.time(),
        queue="calls",
        key=key,
        timeout_s=body.get("timeout_s"),
        caller=request.caller.id,
        session=request.caller.id,
    )
    await request.box.engine.enqueue(job)
    run_id = job.run_id
    if (known := await _begun(request, run_id)) is not None:
        problem = _key_problem(known)
        if problem is not None:
            return problem
        run_id = known.run_id  # of the first call with this key
    location = f"{request.service.public_url}/api/v1/runs/{run_id}/outcome"
    return JsonResponse({"status": "running", "run_id": run_id}, 202, headers={"Location": location})


async def _begun(request: RestRequest, run_id: str) -> Outcome | None:
    """Wait a moment for a job to begin; return the outcome if it is that of an earlier call, or known already."""
    deadline = time.monotonic() + _PROMPT_S
    while time.monotonic() < deadline:
        job = await request.box.store.jobs.of_run(run_id, tenant=request.tenant)
        if job is None or job.has_ended:
            return None if job is None or job.outcome is None else load_outcome(job.outcome)
        if await request.box.store.events.run(run_id, tenant=request.tenant) is not None:  # the key is new
            return None
        await asyncio.sleep(_LOOK_S)
    return None


async def _stream_run(request: RestRequest, task: asyncio.Task[Outcome], run_id: str) -> AsyncGenerator[bytes]:
    """Send the events of a run as they happen, then its outcome."""
    seen = 0
    box = request.box
    watch, done = request.service.feed.watch(run_id, tenant=request.tenant), False
    while not done:
        await watch.wait(task)
        done = task.done()  # before reading, so that the last event is among those read
        async for event in events_after(box.store.events, seen, tenant=request.tenant, run_id=run_id):
            seen = event.id
            yield server_event(
                event.code.name,
                await box.pending.describe_event(event, by=request.user, show=partial(card_of, request)),
                event.id,
            )
    yield server_event("outcome", outcome_to_dict(task.result()))
