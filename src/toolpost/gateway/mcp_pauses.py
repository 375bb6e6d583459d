"""Calls of MCP clients that wait for a person: ask the client's user, and collect what was decided.

Nothing that a client sends answers an approval. Its user can fill in what a tool wants to know, and is told of all
else; whoever may decide does so elsewhere. The state of a waiting call is the ids of its first and its last pending
action, so that a retry finds it in any process on the same store.
"""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Any, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolpost.contracts.errors import PendingNotFoundError, ToolError
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.contracts.questions import NEXT_STEPS
from toolpost.gateway.mcp_results import META
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from mcp.server.context import ServerRequestContext
    from mcp_types import CallToolRequestParams

    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import PendingAction, Question
    from toolpost.contracts.spec import ToolSpec
    from toolpost.toolbox.box import Toolbox

    Context = ServerRequestContext[Any, Any]

COLLECT_S = 25.0  # a retry waits this long for a person before it says again what is missing
_STATUS, _WAIT = "pending_status", "pending_wait"
_LONGEST_WAIT_S = 120.0
_MOST_LISTED = 20
_AND = "&"
_PENDING_ID = {"pending_id": {"type": "string", "description": "The id that the waiting call's result named"}}
_EMPTY_FORM: dict[str, Any] = {"type": "object", "properties": {}}
PENDING_TOOLS: list[dict[str, Any]] = [
    {
        "name": _STATUS,
        "description": "Say what came of an earlier call of yours that waits for a person; without an id, list them.",
        "inputSchema": {"type": "object", "properties": _PENDING_ID},
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
    {
        "name": _WAIT,
        "description": "Wait until a person has decided about an earlier call of yours, and return its result.",
        "inputSchema": {
            "type": "object",
            "properties": {**_PENDING_ID, "timeout_s": {"type": "number", "minimum": 0, "maximum": _LONGEST_WAIT_S}},
            "required": ["pending_id"],
        },
        "annotations": {"readOnlyHint": True, "openWorldHint": False},
    },
]


class PausedCalls:
    """Ask about and collect the paused calls of an open Toolbox's MCP clients; of tools that they see."""

    def __init__(self, box: Toolbox, *, sees: Callable[[str], bool]) -> None:
        self._box = box
        self._sees = sees
        self._pending = box.pending

    # ------------------------------------------------------------------ newer clients, which retry

    async def collect(self, params: CallToolRequestParams, user: str) -> Outcome:
        """Return what came of a call that is retried; hand in what the client's user filled in, if that is asked for.

        The state begins with the first pause, whose arguments are those of the retry: a person may have changed them
        since. It ends with the question that the client knows of; another is returned at once.
        """
        first_id, _, known_id = str(params.request_state).partition(_AND)
        first = await self._own(first_id, user)
        if first is None or not self._is_same_call(first, params):
            raise MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState: call the tool without it")
        now = await self._pending.outcome(first.id, by=user, wait_s=0)
        if not isinstance(now, Paused) or now.pending_id != (known_id or first_id):
            return now
        responses: Mapping[str, Any] = params.input_responses or {}
        if now.question.kind == "input" and now.pending_id in responses:
            return await self._hand_in(now, _plain(responses[now.pending_id]), user)
        return await self._pending.outcome(now.pending_id, by=user, wait_s=COLLECT_S)

    async def _own(self, pending_id: str, user: str) -> PendingAction | None:
        """Return the pending action of this user's own call; None for all others, which are not told apart."""
        try:
            action = await self._pending.get(pending_id, by=user)
        except (PendingNotFoundError, ValueError):
            return None
        return action if self._is_own(action, user) else None

    def _is_own(self, action: PendingAction, user: str) -> bool:
        return str(action.asked_by) == user and self._sees(action.tool_name)

    def _is_same_call(self, action: PendingAction, params: CallToolRequestParams) -> bool:
        registry = self._box.registry
        canonical = registry.find(params.name).spec.name if registry.has(params.name) else params.name
        return action.tool_name == canonical and dict(action.arguments) == (params.arguments or {})

    async def _hand_in(self, paused: Paused, response: dict[str, Any], user: str) -> Outcome:
        """Hand in a form that the client's user filled in, declined or closed."""
        pending, pending_id = self._pending, paused.pending_id
        try:
            match response.get("action"):
                case "accept":
                    return await pending.answer(pending_id, response.get("content") or {}, by=user)
                case "decline":
                    return await pending.deny(pending_id, by=user, reason="declined in the client")
                case _:
                    return paused
        except ToolError as error:
            if error.error_code == "already_answered":
                return await pending.outcome(pending_id, by=user, wait_s=COLLECT_S)
            return Failed(paused.call_id, paused.run_id, paused.tool_name, error)

    # ------------------------------------------------------------------ older clients, which are asked

    async def ask(self, ctx: Context, paused: Paused, user: str) -> Outcome:
        """Ask the user of an older client that can ask, until nothing is asked any more or nobody answers."""
        while True:
            request = _elicitation(paused, ctx)
            if request is None or not ctx.session.can_send_request:
                return paused
            outcome = await self._ask_once(ctx, paused, request, user)
            if not isinstance(outcome, Paused) or outcome.pending_id == paused.pending_id:
                return outcome
            paused = outcome

    async def _ask_once(self, ctx: Context, paused: Paused, request: dict[str, Any], user: str) -> Outcome:
        """Ask, and stop asking when it is decided elsewhere meanwhile or has expired."""
        loop = asyncio.get_running_loop()
        decided = loop.create_task(self._pending.outcome(paused.pending_id, by=user, wait_s=math.inf))
        asked = loop.create_task(_elicit(ctx, request))
        try:
            await asyncio.wait((decided, asked), return_when=asyncio.FIRST_COMPLETED)
            if decided.done():
                return decided.result()
        finally:
            for task in (decided, asked):
                task.cancel()
            await asyncio.gather(decided, asked, return_exceptions=True)
        reply = asked.result()
        if paused.question.kind == "input":
            return await self._hand_in(paused, reply, user)
        wait_s = COLLECT_S if reply.get("action") == "accept" else 0
        return await self._pending.outcome(paused.pending_id, by=user, wait_s=wait_s)

    # ------------------------------------------------------------------ clients that can be asked nothing

    def is_own_tool(self, name: str) -> bool:
        """Return whether this is `pending_status` or `pending_wait`, and no tool of the catalog."""
        return name in (_STATUS, _WAIT) and not self._box.registry.has(name)

    async def call_own_tool(self, params: CallToolRequestParams, user: str) -> Outcome | dict[str, Any]:
        """Return what came of a pending call; `pending_wait` waits for a person for a while."""
        given = params.arguments or {}
        pending_id, wait_s = given.get("pending_id"), given.get("timeout_s", COLLECT_S)
        if pending_id is None and params.name == _STATUS:
            return await self._list(user)
        if not isinstance(pending_id, str) or not isinstance(wait_s, int | float):
            raise MCPError(code=INVALID_PARAMS, message=f"{params.name} takes pending_id, a text, and timeout_s")
        action = await self._own(pending_id, user)
        if action is None:
            raise MCPError(code=INVALID_PARAMS, message=f"none of your calls waits as {pending_id!r}")
        wait = min(max(0.0, wait_s), _LONGEST_WAIT_S) if params.name == _WAIT else 0
        return await self._pending.outcome(pending_id, by=user, wait_s=wait)

    async def _list(self, user: str) -> dict[str, Any]:
        """Return the newest calls of this user that waited or still wait."""
        found = [action for action in await self._pending.list(by=user, status=None) if self._is_own(action, user)]
        lines = [
            f"{action.id} {action.tool_name} {dict(action.question.arguments)}: {action.status}"
            for action in found[:_MOST_LISTED]
        ]
        return {"content": [{"type": "text", "text": "\n".join(lines) or "none of your calls waits"}], "isError": False}


def input_required(paused: Paused, ctx: Context, *, state: str | None) -> dict[str, Any]:
    """Return the interim result of a call that waits; `state` is that of the retry which still waits, if it is one."""
    first = paused.pending_id if state is None else state.partition(_AND)[0]
    known = first if first == paused.pending_id else f"{first}{_AND}{paused.pending_id}"
    result: dict[str, Any] = {"resultType": "input_required", "requestState": known}
    request = _elicitation(paused, ctx)
    if request is not None:
        # The key names the question: a retry that comes late answers no other.
        result["inputRequests"] = {paused.pending_id: {"method": "elicitation/create", "params": request}}
    return result


def pending_result(paused: Paused, spec: ToolSpec) -> dict[str, Any]:
    """Return the result for clients that can be asked nothing: what waits, where it is answered, how to collect it.

    Clients refuse a result without structured content where the tool has an output schema, unless it is an error.
    """
    text = (
        f"This call waits for a person. {_where_to_answer(paused)}\nThen call {_WAIT}, pending_id: {paused.pending_id}"
    )
    meta = {f"{META}pending_id": paused.pending_id, f"{META}run_id": paused.run_id, f"{META}kind": paused.question.kind}
    return {"content": [{"type": "text", "text": text}], "isError": spec.output_schema is not None, "_meta": meta}


def _elicitation(paused: Paused, ctx: Context) -> dict[str, Any] | None:
    """Return what the client's user is asked: a form for input, a page to sign in, or news of an approval.

    An approval is only told of: whoever may decide does so elsewhere, and the client's user says when to look again.
    """
    question, offered = paused.question, _elicitation_modes(ctx)
    address = question.payload.get("auth_url")
    if question.kind == "consent" and isinstance(address, str) and "url" in offered:
        return {"mode": "url", "message": question.prompt, "url": address, "elicitationId": paused.pending_id}
    if "form" not in offered:
        return None
    if question.kind == "input":
        return {"mode": "form", "message": question.prompt, "requestedSchema": _form(question)}
    return {"mode": "form", "message": _where_to_answer(paused), "requestedSchema": _EMPTY_FORM}


def _form(question: Question) -> dict[str, Any]:
    schema = question.answer_schema
    if schema is not None and schema.get("type") == "object":
        return dict(schema)
    return {"type": "object", "properties": {"value": {"type": "string"}}, "required": ["value"]}


def _elicitation_modes(ctx: Context) -> set[str]:
    capabilities = ctx.session.client_capabilities
    offered = None if capabilities is None else capabilities.elicitation
    if offered is None:
        return set()
    modes = {mode for mode in ("form", "url") if getattr(offered, mode, None) is not None}
    return modes or {"form"}  # an empty capability means forms, as before there were modes


async def _elicit(ctx: Context, request: dict[str, Any]) -> dict[str, Any]:
    """Send an elicitation and return the reply; a client that refuses to ask has closed the form."""
    session, related = ctx.session, ctx.request_id
    try:
        if request["mode"] == "url":
            reply = await session.elicit_url(
                request["message"], request["url"], request["elicitationId"], related_request_id=related
            )
        else:
            reply = await session.elicit_form(request["message"], request["requestedSchema"], related)
    except MCPError:
        return {"action": "cancel"}
    return _plain(reply)


def _where_to_answer(paused: Paused) -> str:
    question = paused.question
    target = question.target.get("summary", "")
    shown = f"{question.prompt}\narguments: {dict(question.arguments)}" + (f"\ntarget: {target}" if target else "")
    service = question.payload.get("provider", "SERVICE")
    step = NEXT_STEPS[question.kind].format(id=paused.pending_id, service=service, options="")
    return f"{shown}\n{step}"


def _plain(response: Any) -> dict[str, Any]:
    data: Any = response if is_object(response) else response.model_dump(by_alias=True, mode="json")
    return cast("dict[str, Any]", data)
