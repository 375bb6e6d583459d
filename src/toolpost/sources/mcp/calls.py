"""Runs one tool of a server: asked, told of its progress, and paused where the server needs a person."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from mcp_types import ElicitResult

from toolpost.contracts.errors import ToolClientError, ToolOutputError
from toolpost.contracts.questions import Question
from toolpost.sources.mcp.elicitation import ELICIT, demand_of, next_number, pages_of, question_of, replies, rounds
from toolpost.sources.mcp.results import output_of
from toolpost.sources.mcp.turns import CANCELLED

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.shared.dispatcher import ProgressFnT

    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import ToolSpec
    from toolpost.sources.mcp.elicitation import Demand
    from toolpost.sources.mcp.lending import Lending
    from toolpost.sources.mcp.session import Link
    from toolpost.sources.mcp.tools import ServerTool

_MOST_ROUNDS = 10
_HOLD_S = 900.0
_PROGRESS_S = 0.05  # what comes faster is not worth an event


class Calls:
    """The tool calls of one source."""

    def __init__(self, source: str, lending: Lending, *, elicitation: bool) -> None:
        self._source = source
        self._lending = lending
        self.elicitation = elicitation

    async def run(self, link: Link, tool: ServerTool, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a tool to its output, or to a question."""
        params: dict[str, Any] = {"name": tool.remote_name, "arguments": call.arguments}
        try:
            raw = await self._asked(link, tool, call, params)
        except ToolClientError as error:
            question = self._pages(error, call) if self.elicitation else None
            if question is None:
                raise
            return question
        return raw if isinstance(raw, Question) else await output_of(raw, call.context)

    async def _asked(
        self, link: Link, tool: ServerTool, call: AuthorizedCall, params: dict[str, Any]
    ) -> dict[str, Any] | Question:
        if link.session.modern:
            if tool.mirrors:
                link.session.learn_headers(tool.remote_name, tool.spec.input_schema)
            return await self._modern(link, call, params)
        if self.elicitation:
            return await self._legacy(link, tool, call, params)
        return await link.ask("tools/call", params, on_progress=_progress(call.context))

    def _pages(self, error: ToolClientError, call: AuthorizedCall) -> Question | None:
        """The question of a server that refuses until a person has visited its pages; it has done nothing yet."""
        pages = pages_of(error.__cause__)
        if not pages:
            return None
        number = next_number(call.request.answers)
        return question_of(self._source, pages, {"pages": True}, number=number, deliver_denial=False)

    async def _modern(self, link: Link, call: AuthorizedCall, params: dict[str, Any]) -> dict[str, Any] | Question:
        """The stateless protocol: a server that needs more says so and forgets; the next request tells it all."""
        answered = rounds(call.request.answers)
        request = {**params, **_echoed(answered[-1])} if answered and "people" in answered[-1].state else params
        on_progress = _progress(call.context)
        for patience in range(_MOST_ROUNDS):
            raw = await link.ask("tools/call", request, on_progress=on_progress)
            if raw.get("resultType", "complete") == "complete":
                return raw
            demand = self._demand(raw)
            lent = {key: await self._lend(request) for key, request in demand.machine.items()}
            if demand.people:
                state = {"people": demand.people, "lent": lent, "request_state": demand.state}
                number = next_number(call.request.answers)
                return question_of(self._source, demand.people, state, number=number)
            request = {**params, **_reply(lent, demand.state)}
            if not lent:
                await asyncio.sleep(min(1.0, 0.1 * 2**patience))  # it only asked for patience
        raise ToolClientError(f"MCP tool error: {self._source!r} still needs input after {_MOST_ROUNDS} rounds")

    def _demand(self, raw: dict[str, Any]) -> Demand:
        """What a server needs that did not give a result."""
        if raw["resultType"] != "input_required":
            raise ToolOutputError(f"the MCP server's answer is of a kind that is not known: {raw['resultType']!r}")
        demand = demand_of(raw)
        if demand.people and not self.elicitation:
            raise ToolClientError(f"MCP tool error: {self._source!r} wants to ask a person, which is not on offer here")
        return demand

    async def _lend(self, request: dict[str, Any]) -> dict[str, Any]:
        reply = await self._lending.answer(request)
        if reply is None:
            method = request.get("method")
            raise ToolClientError(f"MCP tool error: {self._source!r} asks for {method!r}, which is not on offer here")
        return reply

    async def _legacy(
        self, link: Link, tool: ServerTool, call: AuthorizedCall, params: dict[str, Any]
    ) -> dict[str, Any] | Question:
        """The older protocol: a call that was held goes on; one whose session is gone may or may not be repeated."""
        turn = link.turns.held(call.request.call_id)
        if turn is not None:
            last = rounds(call.request.answers)[-1]
            turn.answer(last.state["params"], last)
        elif (question := orphaned(call, tool.spec, self._source)) is not None:
            return question
        else:
            asking = link.ask("tools/call", params, on_progress=_progress(call.context))
            turn = link.turns.begin(call, asking)
        asked = await turn.next()
        if asked is None:
            return await turn.result()
        people = {"": {"method": ELICIT, "params": asked}}
        number = next_number(call.request.answers)
        try:
            return question_of(self._source, people, {"params": asked}, number=number, held=True)
        except ToolClientError:
            turn.stop()
            raise

    async def elicited(self, link: Link, context: Any, params: Any) -> ElicitResult:
        """A server on an older session asks; answer when a person has."""
        raw: dict[str, Any] = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        turn = link.turns.asker()
        reply = CANCELLED if turn is None else await turn.ask(raw, hold_s=_HOLD_S)
        return ElicitResult.model_validate(reply)


def orphaned(call: AuthorizedCall, spec: ToolSpec, source: str) -> Question | None:
    """What to ask about a call that was held and no longer is: it may have had an effect that must not come twice.

    A person's leave to run it again counts once: it is bound to the answers that were known when it was given.
    """
    answered = rounds(call.request.answers)
    if spec.replay != "unsafe" or not answered or "params" not in answered[-1].state:
        return None
    told = {"rounds": len(answered)}
    leave = call.request.answers.get("unknown")
    if leave is not None and leave.state == told:
        return None
    prompt = f"{spec.name} was interrupted while {source} waited for an answer. Did it happen?"
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown", state=told)


def _echoed(answer: Answer) -> dict[str, Any]:
    """The answers of the last round, with the server's state exactly as it gave it."""
    state = answer.state
    return _reply({**state["lent"], **replies(state["people"], answer)}, state["request_state"])


def _reply(responses: dict[str, Any], state: str | None) -> dict[str, Any]:
    return {
        **({"inputResponses": responses} if responses else {}),
        **({} if state is None else {"requestState": state}),
    }


def _progress(context: Callable[[], ToolContext]) -> ProgressFnT:
    last = 0.0

    async def told(progress: float, total: float | None, message: str | None) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last < _PROGRESS_S and progress != total:
            return
        last = now
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        context().progress(text, fraction=None if not total else progress / total)

    return told
