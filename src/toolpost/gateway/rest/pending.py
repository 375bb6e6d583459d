"""Operations on pending actions: list and show them as cards, and answer them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.errors import PendingNotFoundError
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.gateway.access import insufficient_scope
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import CURSOR, LIMIT, JsonResponse, Operation, RestRequest, page_of
from toolpost.gateway.rest.schemas import STATUSES, page, ref

if TYPE_CHECKING:
    from starlette.responses import Response

    from toolpost.contracts.questions import PendingAction

_MOST = 10_000


async def _list_pending(ask: RestRequest) -> Response:
    status = None if ask.query["status"] == "all" else ask.query["status"]
    found = await ask.box.pending.list(by=ask.user, status=status, limit=_MOST)
    return page_of(ask, [one for one in found if _is_visible(ask, one)], lambda one: one.id, ask.box.pending.card)


async def _show_pending(ask: RestRequest) -> Response:
    return JsonResponse(ask.box.pending.card(await _find(ask)))


async def _answer_pending(ask: RestRequest) -> Response:
    """Answer a question: the waiting call runs, and its outcome is the response."""
    action, body = await _find(ask), ask.body
    if not ask.caller.may_answer(action.tool_name):
        raise insufficient_scope("answer")
    decision = body["decision"]
    if decision == "modify" and "arguments" not in body:
        raise Problem(422, "invalid_body", "`modify` takes the arguments that the call shall run with")
    if decision != "modify" and "arguments" in body:
        raise Problem(422, "invalid_body", f"{decision!r} takes no arguments; `modify` does")
    if decision == "answer" and "value" not in body:
        raise Problem(422, "invalid_body", "`answer` takes a value; null, too, is written out")
    outcome = await ask.box.pending.answer(
        action.id,
        body.get("value"),
        by=ask.user,
        decision="approve" if decision == "modify" else decision,
        reason=body.get("reason", ""),
        arguments=body.get("arguments"),
    )
    return JsonResponse(outcome_to_dict(outcome))


async def _find(ask: RestRequest) -> PendingAction:
    action = await ask.box.pending.get(ask.path["pending_id"], by=ask.user)
    if not _is_visible(ask, action):
        raise PendingNotFoundError(ask.path["pending_id"])
    return action


def _is_visible(ask: RestRequest, action: PendingAction) -> bool:
    return ask.only_user is None or action.asked_by == ask.caller.principal


OPERATIONS = [
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
