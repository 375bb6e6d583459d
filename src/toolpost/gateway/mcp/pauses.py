"""Paused calls of MCP clients: prompt the client's user, and return the outcome.

No message of a client answers an approval: its user can answer the questions of tools, and is notified of all others,
which approvers answer elsewhere. The state of a pending call contains the IDs of its first and its last pending action
and the number of the round, with a MAC, so that a retry finds the call in any process on the same store.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import math
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from mcp.shared.exceptions import MCPError
from mcp_types import INVALID_PARAMS

from toolpost.contracts.errors import PendingNotFoundError, ToolError
from toolpost.contracts.outcomes import Failed, Outcome, Paused
from toolpost.contracts.questions import PendingAction, Question
from toolpost.gateway.mcp.elicitation import ELICIT, answer_options, can_answer, elicitation, has_form, send_requests
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.contracts.context import ToolContext
    from toolpost.gateway.mcp.client import Context
    from toolpost.toolbox.box import Toolbox

# The SDKs of Python, TypeScript, C# and Go raise an error after ten rounds, which ends the run of their agent.
_LAST_ROUND = 8
_SEPARATOR = "&"
_MAC = "request state"


class Retry(NamedTuple):
    """A repeated call of a client, with the state and the responses to the prompts of the first one."""

    tool_name: str
    arguments: dict[str, Any]
    state: str
    responses: Mapping[str, Any]


class _State(NamedTuple):
    """State of a pending call: its first pause, the last pause that the client received, and the round."""

    first_id: str
    known_id: str
    round: int


class PausedCalls:
    """Paused calls of the MCP clients of an open Toolbox, limited to the tools for which `sees` is true.

    `interactive` returns whether a user operates the client of a request.
    """

    def __init__(self, box: Toolbox, *, sees: Callable[[str], bool], interactive: Callable[[Context], bool]) -> None:
        self._box = box
        self._sees = sees
        self._interactive = interactive
        self._pending = box.pending

    @property
    def wait_s(self) -> float:
        """Seconds that a request waits for an answer before it returns the question."""
        return self._box.settings.server.pending_wait_s

    def is_for_client(self, question: Question, ctx: Context) -> bool:
        """Return whether the client of a request may answer a question; forms need a user who operates it.

        Requests of a server for sampling or roots need no user.
        """
        if question.kind != "input":
            return False
        methods = [request.get("method") for request in question.requests.values()]
        if methods and ELICIT not in methods:
            return True
        return not question.person and self._interactive(ctx)

    def client_requests(self, paused: Paused, ctx: Context, user: str) -> dict[str, Any]:
        """Return the requests to the client: those of the upstream server if it supports them all, else a prompt.

        The key of a prompt is the ID of the pending action, so that a late retry answers no other question.
        """
        question, is_asked = paused.question, self.is_for_client(paused.question, ctx)
        if is_asked and question.requests and can_answer(question.requests, ctx):
            return dict(question.requests)
        request = elicitation(paused, ctx, answer_options(self._box, user), is_asked=is_asked)
        return {} if request is None else {paused.pending_id: {"method": ELICIT, "params": request}}

    # ------------------------------------------------------------------ stateless clients, which retry

    async def collect(self, retry: Retry, ctx: Context, user: str, context: ToolContext) -> Outcome:
        """Submit the responses of a retried call, if they answer its question, and return the outcome.

        The arguments of the retry must be those of the first pause; an approver may have changed them since. A question
        that the client has not received yet is returned immediately.
        """
        state = self._read_state(retry.state, user)
        first = await self.find_own(state.first_id, user)
        if first is None or not self._is_same_call(await self._pending.outermost(first), retry):
            raise _invalid_state()
        if await self.find_own(state.known_id, user) is None:
            raise _invalid_state()
        now = await self._pending.outcome(first.id, by=user, wait_s=0)
        if not isinstance(now, Paused) or now.pending_id != state.known_id:
            return now
        if self.is_for_client(now.question, ctx):
            if now.pending_id in retry.responses:
                return await self._submit_form(now, _plain(retry.responses[now.pending_id]), user, context)
            if now.question.requests and retry.responses:
                return await self.answer(now, retry.responses, user, context)
        return await self._pending.outcome(now.pending_id, by=user, wait_s=self.wait_s)

    def input_required(self, paused: Paused, ctx: Context, user: str, *, state: str | None) -> dict[str, Any] | None:
        """Return the interim result of a paused call; None in the last round, which returns `pending_result`.

        `state` is the state of the retry, if the request is one.
        """
        last = None if state is None else self._read_state(state, user)
        if last is not None and last.round >= _LAST_ROUND:
            return None
        first_id, number = (paused.pending_id, 1) if last is None else (last.first_id, last.round + 1)
        echoed = self._write_state(_State(first_id, paused.pending_id, number), user)
        result: dict[str, Any] = {"resultType": "input_required", "requestState": echoed}
        requests = self.client_requests(paused, ctx, user)
        return {**result, "inputRequests": requests} if requests else result

    def _write_state(self, state: _State, user: str) -> str:
        plain = _SEPARATOR.join(map(str, state))
        return f"{plain}{_SEPARATOR}{self._state_mac(plain, user)}"

    def _read_state(self, text: str, user: str) -> _State:
        """Return a state that this gateway issued to this user; raise MCPError for any other."""
        plain, _, mac = text.rpartition(_SEPARATOR)
        if not hmac.compare_digest(mac.encode(), self._state_mac(plain, user).encode()):
            raise _invalid_state()
        first_id, known_id, number = plain.split(_SEPARATOR)
        return _State(first_id, known_id, int(number))

    def _state_mac(self, plain: str, user: str) -> str:
        message = json.dumps([user, plain]).encode()
        return self._box.store.mac(_MAC, message).hex()

    async def answer(self, paused: Paused, responses: Mapping[str, Any], user: str, context: ToolContext) -> Outcome:
        """Submit a client's responses to the requests of the upstream server; if some are missing, pause again."""
        requests = paused.question.requests
        given = {key: _plain(responses[key]) for key in requests if key in responses}
        closed = any(given[key].get("action") == "cancel" for key in given if requests[key].get("method") == ELICIT)
        if closed or len(given) < len(requests):
            return paused
        return await self._settle(
            paused, user, self._pending.answer(paused.pending_id, by=user, responses=given, context=context)
        )

    async def find_own(self, pending_id: str, user: str) -> PendingAction | None:
        """Return the pending action of this user's call, or None if it does not exist or is not the user's."""
        try:
            action = await self._pending.get(pending_id, by=user)
        except (PendingNotFoundError, ValueError):
            return None
        return action if await self.is_own(action, user) else None

    async def is_own(self, action: PendingAction, user: str) -> bool:
        """Return whether an action belongs to a visible call of this user, or to a nested call of one."""
        if str(action.asked_by) != user:
            return False
        return self._sees(action.tool_name) or self._sees((await self._pending.outermost(action)).tool_name)

    def _is_same_call(self, action: PendingAction, retry: Retry) -> bool:
        registry = self._box.registry
        canonical = registry.find(retry.tool_name).spec.name if registry.has(retry.tool_name) else retry.tool_name
        return action.tool_name == canonical and dict(action.arguments) == retry.arguments

    async def _submit_form(self, paused: Paused, response: dict[str, Any], user: str, context: ToolContext) -> Outcome:
        """Submit a form that the client's user filled in, declined or closed."""
        pending, pending_id = self._pending, paused.pending_id
        match response.get("action"):
            case "accept":
                value: Any = response.get("content") or {}
                if not has_form(paused.question):
                    value = value.get("value")  # the same value as from any other surface
                return await self._settle(paused, user, pending.answer(pending_id, value, by=user, context=context))
            case "decline":
                denial = pending.deny(pending_id, by=user, reason="declined in the client")
                return await self._settle(paused, user, denial)
            case _:
                return paused

    async def _settle(self, paused: Paused, user: str, answer: Awaitable[Outcome]) -> Outcome:
        """Return the outcome of an answer, also if another answer was faster."""
        pending, pending_id = self._pending, paused.pending_id
        try:
            return await answer
        except ToolError as error:
            if error.error_code == "already_answered":
                return await pending.outcome(pending_id, by=user, wait_s=self.wait_s)
            return Failed(paused.call_id, paused.run_id, paused.tool_name, error)

    # ------------------------------------------------------------------ session-based clients, which are prompted

    async def prompt(self, ctx: Context, paused: Paused, user: str, context: ToolContext) -> Outcome:
        """Prompt a session-based client until its call has no more questions for it, or it does not answer."""
        while True:
            requests = self.client_requests(paused, ctx, user)
            if not requests or not ctx.session.can_send_request:
                return paused
            outcome = await self._prompt_once(ctx, paused, requests, user, context)
            if not isinstance(outcome, Paused) or outcome.pending_id == paused.pending_id:
                return outcome
            paused = outcome

    async def _prompt_once(
        self, ctx: Context, paused: Paused, requests: Mapping[str, Any], user: str, context: ToolContext
    ) -> Outcome:
        """Prompt the client; withdraw the prompt if the question is answered elsewhere or expires."""
        loop = asyncio.get_running_loop()
        decided = loop.create_task(self._pending.outcome(paused.pending_id, by=user, wait_s=math.inf))
        asked = loop.create_task(send_requests(ctx, requests))
        try:
            await asyncio.wait((decided, asked), return_when=asyncio.FIRST_COMPLETED)
            if decided.done():
                return decided.result()
        finally:
            for task in (decided, asked):
                task.cancel()
            await asyncio.gather(decided, asked, return_exceptions=True)
        return await self.take(paused, asked.result(), ctx, user, context)

    async def take(
        self, paused: Paused, replies: Mapping[str, Any], ctx: Context, user: str, context: ToolContext
    ) -> Outcome:
        """Resume a call with the client's responses to `client_requests`."""
        is_asked = self.is_for_client(paused.question, ctx)
        if is_asked and paused.pending_id not in replies:
            return await self.answer(paused, replies, user, context)
        reply = _plain(replies.get(paused.pending_id))
        if is_asked:
            return await self._submit_form(paused, reply, user, context)
        wait_s = self.wait_s if reply.get("action") == "accept" else 0
        return await self._pending.outcome(paused.pending_id, by=user, wait_s=wait_s)

    async def decided(self, paused: Paused, user: str) -> Outcome:
        """Wait until the question is answered elsewhere."""
        return await self._pending.outcome(paused.pending_id, by=user, wait_s=math.inf)

    async def give_up(self, paused: Paused, ctx: Context, user: str) -> None:
        """Deny the question of a client that has cancelled its call."""
        if self.is_for_client(paused.question, ctx):
            await self._settle(paused, user, self._pending.deny(paused.pending_id, by=user, reason="cancelled"))


def _invalid_state() -> MCPError:
    return MCPError(code=INVALID_PARAMS, message="Invalid or expired requestState: call the tool without it")


def _plain(response: Any) -> dict[str, Any]:
    """Return a response as on the wire; empty if it is not an object."""
    if is_object(response):
        return response
    dump: Any = getattr(response, "model_dump", None)
    return {} if dump is None else cast("dict[str, Any]", dump(by_alias=True, mode="json", exclude_none=True))
