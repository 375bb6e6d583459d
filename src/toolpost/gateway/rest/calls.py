"""Operations on calls: call a tool and wait, be called back or listen; look at runs and cancel them; answer pauses."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.contracts.callers import OPERATOR_ID
from toolpost.contracts.calls import OutcomeKey
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import PendingNotFoundError
from toolpost.contracts.events import RunFilter
from toolpost.contracts.outcomes import Failed, Paused, outcome_to_dict
from toolpost.contracts.principal import Principal
from toolpost.gateway.access import insufficient_scope
from toolpost.gateway.event_feed import events_after
from toolpost.gateway.problems import OPEN_ONES, Problem, ProblemResponse, problem_of
from toolpost.gateway.rest.event_stream import event_stream, server_event
from toolpost.gateway.rest.operations import (
    CURSOR,
    LIMIT,
    JsonResponse,
    Operation,
    RestRequest,
    decode_cursor,
    invalid_cursor,
    page_response,
)
from toolpost.gateway.rest.schemas import STATUSES, page, ref
from toolpost.policy.approvals import is_same_person
from toolpost.runtime.persistence import kept_outcome

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Mapping

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.events import RunSummary
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import PendingAction

_KEY_HEADER = "Idempotency-Key"
_LONGEST_KEY = 255
_LONGEST_WAIT_S = 60.0
_MOST_EVENTS = 10_000
_OPEN = frozenset({"running", "paused"})
_REFUSALS = {"key_mismatch": 422, "in_progress": 409, "outcome_unknown": 409}
"""Of an idempotency key: used for another call, its call still runs, or nobody knows whether it happened."""


async def _handle_call(ask: RestRequest) -> Response:
    body = ask.body
    return await _call(ask, body["tool"], body.get("arguments"), body.get("mode", "wait"), body.get("timeout_s"))


async def _call_tool(ask: RestRequest) -> Response:
    """Call the tool of the path with the body as its arguments, and return its result alone."""
    run_id, task = _start(ask, ask.path["name"], ask.body)
    outcome = await asyncio.shield(task)
    stopped = _stopped(ask, outcome, run_id)
    if stopped is not None:
        return stopped
    if isinstance(outcome, Failed):
        return _refusal(outcome) or problem_of(outcome.error)
    shown = outcome_to_dict(outcome)
    return JsonResponse(shown["content"]) if shown["status"] == "completed" else JsonResponse(shown, 202)


async def _call(
    ask: RestRequest, tool: str, arguments: Mapping[str, Any] | None, mode: str, timeout_s: float | None
) -> Response:
    run_id, task = _start(ask, tool, arguments, timeout_s=timeout_s, kept=mode == "async")
    if mode == "async":
        return await _started(ask, task, run_id)
    if mode == "stream":
        return event_stream(_stream_run(ask, task, run_id))
    return _answer(ask, await asyncio.shield(task), run_id)


def _start(
    ask: RestRequest,
    tool: str,
    arguments: Mapping[str, Any] | None,
    *,
    timeout_s: float | None = None,
    kept: bool = False,
) -> tuple[str, asyncio.Task[Outcome]]:
    """Start a call in a task of its own: a request that ends before it does not end it half-way.

    Where the outcome is to be `kept`, that is under a key of the run, if the client gave none.
    """
    if ask.service.is_stopping:
        raise Problem(503, "stopping", "the gateway is stopping; call again in a moment", headers={"Retry-After": "2"})
    run_id, key = ask.box.router.new_id("run"), ask.raw.headers.get(_KEY_HEADER)
    if kept:
        key = key or OutcomeKey(f"run:{run_id}")
    calling = ask.tools.call(
        tool,
        arguments,
        user=ask.user,
        timeout_s=timeout_s,
        idempotency_key=key,
        run_id=run_id,
        context=ToolContext(caller=ask.caller.id),
        session=ask.caller.id,
    )
    return run_id, ask.service.start_call(calling)


def _answer(ask: RestRequest, outcome: Outcome, run_id: str) -> Response:
    """Return an outcome; one of an earlier call with the same key says so."""
    refused = _refusal(outcome) or _stopped(ask, outcome, run_id)
    if refused is not None:
        return refused
    replayed = {"Idempotent-Replayed": "true"} if outcome.run_id != run_id else {}
    return JsonResponse(outcome_to_dict(outcome), headers=replayed)


def _refusal(outcome: Outcome) -> Response | None:
    status = _REFUSALS.get(outcome.error.error_code) if isinstance(outcome, Failed) else None
    if status is None or not isinstance(outcome, Failed):
        return None
    hint = f"; {OPEN_ONES}" if outcome.error.error_code == "outcome_unknown" else ""
    return Problem(status, outcome.error.error_code, f"{outcome.error.message}{hint}").response()


def _stopped(ask: RestRequest, outcome: Outcome, run_id: str) -> Response | None:
    """Return what a client is told whose call was under way when the gateway had to stop; None for other outcomes."""
    location = f"{ask.service.public_url}/api/v1/runs/{outcome.run_id}/outcome"
    if outcome.run_id != run_id:  # of an earlier call with this key
        if not _is_parked(outcome):
            return None
        detail, code = f"the call with this key still runs; {location} will have the outcome", "in_progress"
        return ProblemResponse(409, code, detail, headers={"Retry-After": "1"}, run_id=outcome.run_id)
    if _is_parked(outcome):
        detail, code = (
            f"the gateway stops; the call goes on when it runs again, and {location} has the outcome",
            "parked",
        )
    elif isinstance(outcome, Failed) and outcome.error.error_code == "stopped":
        detail, code = outcome.error.message, "stopped"
    else:
        return None
    headers = {"Retry-After": "5", "Location": location}
    return ProblemResponse(503, code, detail, headers=headers, run_id=outcome.run_id)


def _is_parked(outcome: Outcome) -> bool:
    return isinstance(outcome, Paused) and outcome.question.kind == "restart"


async def _started(ask: RestRequest, task: asyncio.Task[Outcome], run_id: str) -> Response:
    """Return the run's id once the run is recorded, or what is already known to be wrong."""
    await asyncio.wait([task], timeout=0.02)
    # Where the outcome will be is asked of other processes, too, and of the next one if this one is killed now.
    while not task.done() and await ask.box.run(run_id, user=ask.user) is None:
        await asyncio.wait([task], timeout=0.02)
    if task.done():
        outcome = task.result()
        refused = _refusal(outcome)
        if refused is not None:
            return refused
        if isinstance(outcome, Failed) and not outcome.call_id:  # of a tool that the caller does not see: nothing ran
            return problem_of(outcome.error)
        run_id = outcome.run_id  # of the first call with this key
    location = f"{ask.service.public_url}/api/v1/runs/{run_id}/outcome"
    return JsonResponse({"status": "running", "run_id": run_id}, 202, headers={"Location": location})


async def _stream_run(ask: RestRequest, task: asyncio.Task[Outcome], run_id: str) -> AsyncGenerator[bytes]:
    """Send the events of a run as they happen, then its outcome."""
    seen = 0
    box = ask.box
    with ask.service.feed.watching(run_id, tenant=ask.tenant) as watch:
        done = False
        while not done:
            await watch.wait(task)
            done = task.done()  # before reading: then the last event is among those that are read
            async for event in events_after(box.store.events, seen, tenant=ask.tenant, run_id=run_id):
                seen = event.id
                yield server_event(event.code.name, await box.pending.describe_event(event, by=ask.user), event.id)
    yield server_event("outcome", outcome_to_dict(task.result()))


# ---------------------------------------------------------------- runs


async def _list_runs(ask: RestRequest) -> Response:
    limit: int = ask.query["limit"]
    before = decode_cursor(ask.query.get("cursor"))
    if before is not None:
        await _find_run(ask, before, code="invalid_cursor", status=400)
    runs: list[RunSummary] = await ask.box.store.events.runs(
        tenant=ask.tenant, before=before, limit=limit + 1, only=RunFilter(user=ask.only_user)
    )
    return page_response(runs, limit, lambda run: run.run_id, lambda run: run.to_dict())


async def _show_run(ask: RestRequest) -> Response:
    run = await _find_run(ask, ask.path["run_id"])
    store = ask.box.store
    events = await store.events.read(tenant=ask.tenant, run_id=run.run_id, limit=_MOST_EVENTS)
    artifacts = await store.artifacts.list(tenant=ask.tenant, user=ask.only_user, run_id=run.run_id)
    log = [event.to_dict() for event in events]
    return JsonResponse({**run.to_dict(), "log": log, "artifacts": [one.to_dict() for one in artifacts]})


async def _find_run(ask: RestRequest, run_id: str, *, code: str = "run_not_found", status: int = 404) -> RunSummary:
    """Return a run that the caller may see; those of others are missing."""
    run = await ask.box.run(run_id, user=ask.user)
    if run is None or (ask.only_user is not None and run.user != ask.only_user):
        raise Problem(status, code, f"there is no run {run_id!r}")
    return run


async def _cancel_run(ask: RestRequest) -> Response:
    run = await _find_run(ask, ask.path["run_id"])
    if not await ask.box.cancel(run.run_id, by=ask.user):
        raise Problem(409, "run_ended", f"run {run.run_id!r} has ended: {run.status}; there is nothing to cancel")
    return JsonResponse({"status": "cancelling", "run_id": run.run_id}, 202)


async def _run_outcome(ask: RestRequest) -> Response:
    run_id, deadline = ask.path["run_id"], time.monotonic() + ask.query["wait_s"]
    with ask.service.feed.watching(run_id, tenant=ask.tenant) as watch:
        while True:
            run, left_s = await _find_run(ask, run_id), deadline - time.monotonic()
            known = await kept_outcome(ask.box.store, run)
            if known is not None and not _is_parked(known):
                return JsonResponse(outcome_to_dict(known))
            if known is None and run.status not in _OPEN and not await _is_kept(ask, run):
                detail = "the outcome was given to the caller that waited; it is not kept"
                raise Problem(404, "outcome_not_kept", detail)
            if left_s <= 0:
                return JsonResponse({"status": "running", "run_id": run.run_id}, 202)
            await watch.wait(at_most_s=left_s)


async def _is_kept(ask: RestRequest, run: RunSummary) -> bool:
    """Return whether the outcome of a run that has ended is about to be written."""
    record = await ask.box.store.keys.find(Principal(run.tenant, run.user), run.call_id)
    return record is not None and record.owner_alive


async def _list_pending(ask: RestRequest) -> Response:
    status = None if ask.query["status"] == "all" else ask.query["status"]
    limit: int = ask.query["limit"]
    before = decode_cursor(ask.query.get("cursor"))
    if before is not None:
        try:
            await _find_pending(ask, before)
        except PendingNotFoundError:
            raise invalid_cursor() from None
    found = await ask.box.pending.list(by=ask.user, status=status, user=ask.only_user, before=before, limit=limit + 1)
    return page_response(found, limit, lambda action: action.id, partial(_card, ask))


async def _show_pending(ask: RestRequest) -> Response:
    return JsonResponse(_card(ask, await _find_pending(ask, ask.path["pending_id"])))


def _card(ask: RestRequest, action: PendingAction) -> dict[str, Any]:
    return ask.box.pending.card(action, operator=ask.caller.is_operator)


async def _answer_pending(ask: RestRequest) -> Response:
    """Answer a question: the waiting call runs, and its outcome is the response."""
    action, body = await _find_pending(ask, ask.path["pending_id"]), ask.body
    decision = body["decision"]
    _check_answerer(ask.caller, action, decision)
    if decision == "modify" and "changes" not in body:
        raise Problem(422, "invalid_body", "`modify` takes the changes of the arguments, as JSON Patch")
    if decision != "modify" and "changes" in body:
        raise Problem(422, "invalid_body", f"{decision!r} takes no changes; `modify` does")
    if decision == "answer" and "value" not in body:
        raise Problem(422, "invalid_body", "`answer` takes a value; null, too, is written out")
    outcome = await ask.box.pending.answer(
        action.id,
        body.get("value"),
        by=ask.user,
        decision="approve" if decision == "modify" else decision,
        reason=body.get("reason", ""),
        changes=body.get("changes"),
        operator=ask.caller.is_operator,
    )
    return JsonResponse(outcome_to_dict(outcome))


def _check_answerer(caller: Caller, action: PendingAction, decision: str) -> None:
    """Refuse what an agent may hold: a credential of no person, or of the user whom the call was made for.

    The operator's token is a person's. A call that is denied was withdrawn, unless its tool is given the denial.
    """
    if not caller.may_answer(action.tool_name):
        raise insufficient_scope("answer")
    if not caller.person:
        detail = "the client of this token is not one that people use (server.oidc.person_clients), so it never answers"
        raise Problem(403, "not_a_person", detail)
    is_withdrawn = decision == "deny" and not action.question.deliver_denial
    if caller.id != OPERATOR_ID and not is_withdrawn and is_same_person(caller.principal, action.asked_by):
        detail = (
            f"the call was made for {action.asked_by}, and a key or token of the same user may be the agent's; "
            "another user of the tenant answers it, or the operator on the machine: `toolpost pending list`"
        )
        raise Problem(403, "own_call", detail)


async def _find_pending(ask: RestRequest, pending_id: str) -> PendingAction:
    """Return a pending action that the caller may see; those of others are missing."""
    action = await ask.box.pending.get(pending_id, by=ask.user)
    if ask.only_user is not None and action.asked_by != ask.caller.principal:
        raise PendingNotFoundError(pending_id)
    return action


_KEY = {
    _KEY_HEADER: {
        "type": "string",
        "minLength": 1,
        "maxLength": _LONGEST_KEY,
        "pattern": "^[!-~]+$",
        "description": "The same key gives the same answer, once; with other arguments it is refused",
    }
}
OPERATIONS = [
    Operation(
        id="call",
        method="POST",
        path="/calls",
        summary="Call a tool: wait for the outcome, get the id of the run, or listen to its events",
        tag="calls",
        handler=_handle_call,
        scope=("call",),
        headers=_KEY,
        takes=ref("Call"),
        answers={
            200: {"application/json": ref("Outcome"), "text/event-stream": {}},
            202: ref("Started"),
        },
        problems=(404, 409, 503),
    ),
    Operation(
        id="call_tool",
        method="POST",
        path="/tools/{name}",
        summary="Call a tool with the body as its arguments, and get its result alone",
        tag="calls",
        handler=_call_tool,
        scope=("call",),
        headers=_KEY,
        takes={"type": "object"},
        no_body={},
        answers={200: {}, 202: ref("Outcome")},
        problems=(404, 409, 429, 500, 502, 503, 504),
    ),
    Operation(
        id="list_runs",
        method="GET",
        path="/runs",
        summary="List runs, the newest first",
        tag="runs",
        handler=_list_runs,
        query={"limit": LIMIT, "cursor": CURSOR},
        answers={200: page("Run")},
    ),
    Operation(
        id="show_run",
        method="GET",
        path="/runs/{run_id}",
        summary="Show a run with its events and artifacts",
        tag="runs",
        handler=_show_run,
        answers={200: ref("Run")},
        problems=(404,),
    ),
    Operation(
        id="run_outcome",
        method="GET",
        path="/runs/{run_id}/outcome",
        summary="Get what came of an asynchronous call, or wait for it for a while",
        tag="runs",
        handler=_run_outcome,
        query={"wait_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S, "default": 0}},
        answers={200: ref("Outcome"), 202: ref("Started")},
        problems=(404,),
    ),
    Operation(
        id="cancel_run",
        method="POST",
        path="/runs/{run_id}/cancel",
        summary="Cancel a run, in whatever process it runs",
        tag="runs",
        handler=_cancel_run,
        answers={202: ref("Cancelling")},
        problems=(404, 409),
    ),
    Operation(
        id="list_pending",
        method="GET",
        path="/pending",
        summary="List what waits for a person, as cards",
        tag="pending",
        handler=_list_pending,
        query={"status": {"type": "string", "enum": STATUSES, "default": "open"}, "limit": LIMIT, "cursor": CURSOR},
        answers={200: page("Card")},
    ),
    Operation(
        id="show_pending",
        method="GET",
        path="/pending/{pending_id}",
        summary="Show the card of one pending action",
        tag="pending",
        handler=_show_pending,
        answers={200: ref("Card")},
        problems=(404,),
    ),
    Operation(
        id="answer_pending",
        method="POST",
        path="/pending/{pending_id}/answer",
        summary="Answer, and get the outcome of the call that waited",
        tag="pending",
        handler=_answer_pending,
        scope=("answer",),
        takes=ref("Answer"),
        answers={200: ref("Outcome")},
        problems=(404, 409, 503),
    ),
]
