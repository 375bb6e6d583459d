"""Operations on pending actions: list, show and answer them."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, get_args

from toolpost.contracts.errors import PendingNotFoundError
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.questions import PendingStatus
from toolpost.gateway.answering import refusal
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.components import page, ref
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.pages import PAGE, decode_cursor, invalid_cursor, page_response

if TYPE_CHECKING:
    from starlette.responses import Response

    from toolpost.contracts.questions import PendingAction

OPERATIONS = Operations("pending")
_STATUS = {"status": {"type": "string", "enum": [*get_args(PendingStatus), "all"], "default": "open"}}


@OPERATIONS.declare("GET", "/pending", query={**_STATUS, **PAGE}, answers={200: page("Card")})
async def list_pending(request: RestRequest) -> Response:
    """List pending actions."""
    status = None if request.query["status"] == "all" else request.query["status"]
    limit: int = request.query["limit"]
    before = decode_cursor(request.query.get("cursor"))
    if before is not None:
        try:
            await _find_pending(request, before)
        except PendingNotFoundError:
            raise invalid_cursor() from None
    found = await request.box.pending.list(
        by=request.user, status=status, user=request.only_user, before=before, limit=limit + 1
    )
    return page_response(found, limit, lambda action: action.id, partial(_to_dict, request))


@OPERATIONS.declare("GET", "/pending/{pending_id}", answers={200: ref("Card")}, problems=(404,))
async def show_pending(request: RestRequest) -> Response:
    """Show one pending action."""
    return JsonResponse(_to_dict(request, await _find_pending(request, request.path["pending_id"])))


@OPERATIONS.declare(
    "POST",
    "/pending/{pending_id}/answer",
    scope=("answer",),
    takes=ref("Answer"),
    answers={200: ref("Outcome")},
    problems=(404, 409, 503),
)
async def answer_pending(request: RestRequest) -> Response:
    """Answer a pending action, run its call, and get the outcome."""
    action, body = await _find_pending(request, request.path["pending_id"]), request.body
    decision = body["decision"]
    if (problem := refusal(request.caller, action, decision)) is not None:
        raise problem
    if decision == "modify" and "changes" not in body:
        raise Problem(422, "invalid_body", "`modify` needs `changes`, a JSON Patch of the arguments")
    if decision != "modify" and "changes" in body:
        raise Problem(422, "invalid_body", f"{decision!r} does not accept `changes`; `modify` does")
    if decision == "answer" and "value" not in body:
        raise Problem(422, "invalid_body", "`answer` needs a `value`, which may be null")
    outcome = await request.box.pending.answer(
        action.id,
        body.get("value"),
        by=request.user,
        decision="approve" if decision == "modify" else decision,
        reason=body.get("reason", ""),
        changes=body.get("changes"),
        operator=request.caller.is_operator,
    )
    return JsonResponse(outcome_to_dict(outcome))


def _to_dict(request: RestRequest, action: PendingAction) -> dict[str, Any]:
    return request.box.pending.card(action, operator=request.caller.is_operator)


async def _find_pending(request: RestRequest, pending_id: str) -> PendingAction:
    """Return a pending action that is visible to the caller; others are not found."""
    action = await request.box.pending.get(pending_id, by=request.user)
    if request.only_user is not None and action.asked_by != request.caller.principal:
        raise PendingNotFoundError(pending_id)
    return action
