"""Operations on pending actions: list, show, answer and escalate them."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast, get_args

from toolpost.contracts.errors import PendingNotFoundError, ToolConflictError, ToolError, ToolPermissionError
from toolpost.contracts.outcomes import outcome_to_dict
from toolpost.contracts.questions import PendingAction, PendingStatus
from toolpost.gateway.answering import refusal, viewer_of
from toolpost.gateway.problems import Problem, problem_of
from toolpost.gateway.rest.caller_names import key_names
from toolpost.gateway.rest.components import PREVIEW
from toolpost.gateway.rest.operations import JsonResponse, JsonSchema, Operations, RestRequest
from toolpost.gateway.rest.pages import PAGE, YES_NO, decode_cursor, encode_cursor, invalid_cursor
from toolpost.gateway.rest.policy import rule_places
from toolpost.gateway.rest.schema_builders import array, ref
from toolpost.policy.call_summary import target_summary
from toolpost.schema.json_patch import PATCH_SCHEMA

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Coroutine, Sequence

    from starlette.responses import Response

    from toolpost.contracts.outcomes import Outcome

OPERATIONS = Operations("pending")
_PAGE = 500
_MOST_SEARCHED = 10_000  # actions that one request reads
_TEXT = {"type": "string", "minLength": 1}
_TOTAL = "How many match; null unless it was requested, and if counting reads more than 10,000 pending actions"
_FILTERS: dict[str, JsonSchema] = {
    "status": {"type": "string", "enum": [*get_args(PendingStatus), "all"], "default": "open"},
    "kind": {"type": "string", "enum": ["approval", "consent", "input", "restart", "unknown"]},
    "tool": {**_TEXT, "description": "The name of the tool"},
    "asked_by": {**_TEXT, "description": "A user of the tenant, as `tenant:user`"},
    "answered_by": {**_TEXT, "description": "A user of the tenant, as `tenant:user`"},
    "mine": {**YES_NO, "description": "Only those that the caller may answer"},
    "since": {"type": "number", "description": "Only those that were created at this Unix time or later"},
    "total": {**YES_NO, "description": "Count all that match, in `total`"},
    "view": {"type": "string", "enum": ["full", "summary"], "default": "full", "description": "`summary`: no schemas"},
}
_LIST = {
    "type": "object",
    "properties": {
        "items": array(ref("Card")),
        "next": {"type": ["string", "null"]},
        "total": {"type": ["integer", "null"], "description": _TOTAL},
    },
    "required": ["items", "next", "total"],
}
_PREVIEW_BODY = {
    "type": "object",
    "properties": {"changes": PATCH_SCHEMA},
    "required": ["changes"],
    "additionalProperties": False,
}
_PREVIEW = {
    "type": "object",
    "properties": {
        "arguments": {"type": "object"},
        "masked": {"type": "array", "items": {"type": "string"}},
        "preview": PREVIEW,
    },
    "required": ["arguments", "masked", "preview"],
}
_ESCALATION = {
    "type": "object",
    "properties": {
        "to": {"type": "string", "minLength": 3, "maxLength": 200, "description": "A user, or a pattern of users"},
        "note": {"type": "string", "maxLength": 2000, "default": ""},
    },
    "required": ["to"],
    "additionalProperties": False,
}


@OPERATIONS.declare("GET", "/pending", query={**_FILTERS, **PAGE}, answers={200: _LIST})
async def list_pending(request: RestRequest) -> Response:
    """List pending actions, newest first."""
    query, limit = request.query, cast("int", request.query["limit"])
    before = decode_cursor(query.get("cursor"))
    if before is not None:
        try:
            await _find_pending(request, before)
        except PendingNotFoundError:
            raise invalid_cursor() from None
    found, last = await _search(request, before=before, limit=limit)
    shown = await cards(request, found)
    if query["view"] == "summary":
        for card in shown:
            card["answers"] = [{"decision": answer["decision"], "schema": {}} for answer in card["answers"]]
    total = await _count(request) if query["total"] == "yes" else None
    following = None if last is None else encode_cursor(last)
    return JsonResponse({"items": shown, "next": following, "total": total})


async def _search(request: RestRequest, *, before: str | None, limit: int) -> tuple[list[PendingAction], str | None]:
    """Return the pending actions that match the filters of a request, and the ID after which the next page begins.

    A page that read many actions for few matches ends early.
    """
    found, read = list[PendingAction](), 0
    async for page in _pages(request, before=before, size=min(limit + 1, _PAGE)):
        for action in page:
            if _matches(request, action):
                if len(found) == limit:
                    return found, before
                found.append(action)
            before = action.id
        read += len(page)
        if read >= _MOST_SEARCHED:
            return found, before
    return found, None


async def _count(request: RestRequest) -> int | None:
    """Return how many pending actions match the filters of a request, or None if counting reads too many."""
    count, read = 0, 0
    async for page in _pages(request):
        count += sum(_matches(request, action) for action in page)
        read += len(page)
        if read > _MOST_SEARCHED:
            return None
    return count


async def _pages(
    request: RestRequest, *, before: str | None = None, size: int = _PAGE
) -> AsyncIterator[list[PendingAction]]:
    """Yield the pending actions after `before`, newest first, within `status` and `since`; `size` is the first page."""
    query = request.query
    status, since = None if query["status"] == "all" else query["status"], query.get("since", 0)
    while True:
        page = await request.box.pending.list(
            by=request.user, status=status, user=request.only_user, before=before, limit=size
        )
        yield [action for action in page if action.created_at >= since]
        if len(page) < size or page[-1].created_at < since:
            return
        before, size = page[-1].id, _PAGE


def _matches(request: RestRequest, action: PendingAction) -> bool:
    query = request.query
    wanted = {
        "kind": action.question.kind,
        "tool": action.tool_name,
        "asked_by": str(action.asked_by),
        "answered_by": action.answered_by,
    }
    if any(query.get(name) not in (None, value) for name, value in wanted.items()):
        return False
    return query["mine"] != "yes" or bool(card_of(request, action)["viewer"]["may"])


@OPERATIONS.declare("GET", "/pending/{pending_id}", answers={200: ref("Card")}, problems=(404,))
async def show_pending(request: RestRequest) -> Response:
    """Show one pending action."""
    [card] = await cards(request, [await _find_pending(request, request.path["pending_id"])])
    return JsonResponse(card)


@OPERATIONS.declare(
    "POST",
    "/pending/{pending_id}/answer",
    scope=("answer",),
    takes=ref("Answer"),
    answers={200: ref("Outcome"), 202: ref("Claimed")},
    problems=(404, 409, 503),
)
async def answer_pending(request: RestRequest) -> Response:
    """Answer a pending action, run its call, and get the outcome."""
    action, body = await _find_pending(request, request.path["pending_id"]), request.body
    decision = body["decision"]
    if (problem := refusal(request.caller, action, decision)) is not None:
        raise problem
    _check_body(body)
    claimed = asyncio.Event()
    answering = request.box.pending.answer(
        action.id,
        body.get("value"),
        by=request.user,
        decision="approve" if decision == "modify" else decision,
        reason=body.get("reason", ""),
        changes=body.get("changes"),
        operator=request.caller.is_operator,
        on_claimed=claimed.set,
    )
    try:
        if body.get("mode") == "async":
            return await _answer_async(request, action, answering, claimed)
        return JsonResponse(outcome_to_dict(await answering))
    except (ToolConflictError, ToolPermissionError) as error:
        return await _refused(request, action.id, error)


def _check_body(body: dict[str, Any]) -> None:
    decision = body["decision"]
    if decision == "modify" and "changes" not in body:
        raise Problem(422, "invalid_body", "`modify` needs `changes`, a JSON Patch of the arguments")
    if decision != "modify" and "changes" in body:
        raise Problem(422, "invalid_body", f"{decision!r} does not accept `changes`; `modify` does")
    if decision == "answer" and "value" not in body:
        raise Problem(422, "invalid_body", "`answer` needs a `value`, which may be null")


async def _answer_async(
    request: RestRequest, action: PendingAction, answering: Coroutine[None, None, Outcome], claimed: asyncio.Event
) -> Response:
    """Return as soon as the answer is stored, while its call runs; raise the error of a refused answer."""
    task = request.service.start_call(answering)
    accepted = asyncio.ensure_future(claimed.wait())
    try:
        await asyncio.wait({task, accepted}, return_when=asyncio.FIRST_COMPLETED)
    finally:
        accepted.cancel()
    if not claimed.is_set():
        task.result()  # raises the refusal
    location = f"{request.service.public_url}/api/v1/pending/{action.id}"
    body = {"status": "claimed", "pending_id": action.id, "run_id": action.run_id}
    return JsonResponse(body, 202, headers={"Location": location})


async def _refused(request: RestRequest, pending_id: str, error: ToolError) -> Response:
    """Return the problem of a refused answer with its facts: the pending action, who may answer, what has changed."""
    error.conceal(request.box.redactor.message)
    action = await _find_pending(request, pending_id)
    facts: dict[str, Any] = {}
    if isinstance(error, ToolPermissionError):
        answerers = None if action.answerers is None else list(action.answerers)
        facts = {"answerers": answerers, "four_eyes": action.question.four_eyes}
    else:
        [card] = await cards(request, [action])
        facts = {"card": card, "answered_by": action.answered_by, "answered_at": action.answered_at}
    if error.error_code == "tool_changed" and request.box.registry.has(action.tool_name):
        spec = request.box.registry.find(action.tool_name).spec
        now = target_summary(spec, request.box.redactor.redact)
        facts |= {"from": dict(action.question.target), "to": now}
    return problem_of(error, **facts)


@OPERATIONS.declare(
    "POST",
    "/pending/{pending_id}/escalate",
    scope=("answer",),
    takes=_ESCALATION,
    answers={200: ref("Card")},
    problems=(404, 409),
)
async def escalate_pending(request: RestRequest) -> Response:
    """Pass a pending action on to another person; who may answer it does not change."""
    action = await _find_pending(request, request.path["pending_id"])
    if (problem := refusal(request.caller, action, "deny")) is not None:
        raise problem
    try:
        passed = await request.box.pending.escalate(
            action.id, by=request.user, to=request.body["to"], note=request.body.get("note", "")
        )
    except ToolConflictError as error:
        return await _refused(request, action.id, error)
    [card] = await cards(request, [passed])
    return JsonResponse(card)


@OPERATIONS.declare(
    "POST",
    "/pending/{pending_id}/preview",
    takes=_PREVIEW_BODY,
    answers={200: _PREVIEW},
    problems=(404, 409),
)
async def preview_pending(request: RestRequest) -> Response:
    """Show what a pending call would do with changed arguments; nothing runs."""
    action = await _find_pending(request, request.path["pending_id"])
    return JsonResponse(await request.box.pending.preview(action.id, request.body["changes"], by=request.user))


def card_of(request: RestRequest, action: PendingAction) -> dict[str, Any]:
    """Return a pending action as JSON data, with the answers that the caller may give."""
    card = request.box.pending.card(action, operator=request.caller.is_operator)
    decisions: list[str] = [answer["decision"] for answer in card["answers"]]
    return {**card, "viewer": viewer_of(request.caller, action, decisions)}


async def cards(request: RestRequest, actions: Sequence[PendingAction]) -> list[dict[str, Any]]:
    """Return pending actions as JSON data, with the names of their callers' keys and the places of their rules."""
    shown = [card_of(request, action) for action in actions]
    by_rule = [card["rule"] for card in shown if card["rule"] is not None and card["rule"]["index"]]
    if by_rule:
        policy = request.box.router.policy
        places = await rule_places(request)
        for rule in by_rule:  # rules that were changed since are not where they were
            if rule["of"] == len(places) and rule["text"] == policy.rules[int(rule["index"]) - 1].text:
                rule["file"], rule["line"] = places[rule["index"] - 1]
    callers: list[dict[str, Any]] = [card["caller"] for card in shown if card["caller"] is not None]
    by_key = [caller for caller in callers if caller["kind"] == "key"]
    if by_key:
        names = await key_names(request)
        for caller in by_key:
            caller["name"] = names.get(caller["id"], caller["id"])
    return shown


async def _find_pending(request: RestRequest, pending_id: str) -> PendingAction:
    """Return a pending action that is visible to the caller; others are not found."""
    action = await request.box.pending.get(pending_id, by=request.user)
    if request.only_user is not None and action.asked_by != request.caller.principal:
        raise PendingNotFoundError(pending_id)
    return action
