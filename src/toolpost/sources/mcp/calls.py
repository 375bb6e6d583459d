"""Runs one tool of a server: asked, told of its progress, and paused where the server needs a person."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from mcp_types import ElicitResult

from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.questions import Question
from toolpost.sources.mcp.asking import ELICIT, demand_of, pages_of, question_of, replies, rounds
from toolpost.sources.mcp.results import output_of
from toolpost.sources.mcp.turns import CANCELLED, Turn

if TYPE_CHECKING:
    from collections.abc import Callable

    from mcp.shared.dispatcher import ProgressFnT

    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Answer
    from toolpost.contracts.spec import ToolSpec
    from toolpost.sources.mcp.lending import Lending
    from toolpost.sources.mcp.link import Link
    from toolpost.sources.mcp.tools import ServerTool
    from toolpost.sources.mcp.turns import Turns

_MOST_ROUNDS = 10
_HOLD_S = 900.0


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
            return await self._modern(link, call, params)
        if self.elicitation:
            return await self._legacy(link, tool, call, params)
        return await link.ask("tools/call", params, on_progress=_progress(call.context))

    def _pages(self, error: ToolClientError, call: AuthorizedCall) -> Question | None:
        """The question of a server that refuses until a person has visited its pages; it has done nothing yet."""
        pages = pages_of(error.__cause__)
        number = len(rounds(call.request.answers)) + 1
        return question_of(self._source, pages, {"pages": True}, number=number) if pages else None

    async def _modern(self, link: Link, call: AuthorizedCall, params: dict[str, Any]) -> dict[str, Any] | Question:
        """The stateless protocol: a server that needs more says so and forgets; the next request tells it all."""
        answered = rounds(call.request.answers)
        request = {**params, **_echoed(answered[-1])} if answered and "people" in answered[-1].state else params
        on_progress = _progress(call.context)
        for number in range(1, _MOST_ROUNDS + 1):
            raw = await link.ask("tools/call", request, on_progress=on_progress)
            if raw.get("resultType") != "input_required":
                return raw
            demand = demand_of(raw)
            lent = {key: await self._lend(request) for key, request in demand.machine.items()}
            if demand.people:
                state = {"people": demand.people, "lent": lent, "request_state": demand.state}
                return question_of(self._source, demand.people, state, number=len(answered) + 1)
            request = {**params, **_reply(lent, demand.state)}
            if not lent:
                await asyncio.sleep(min(1.0, 0.05 * 2**number))  # it only asked for patience
        raise ToolClientError(f"MCP tool error: {self._source!r} still needs input after {_MOST_ROUNDS} rounds")

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
        turns = link.turns
        answered = rounds(call.request.answers)
        turn = turns.held(call.request.call_id)
        if turn is not None:
            turn.answer(answered[-1].state["params"], answered[-1])
        elif _may_have_happened(answered, tool.spec) and "unknown" not in call.request.answers:
            return _unknown(tool.spec, self._source)
        else:
            turn = Turn(call, link.ask("tools/call", params, on_progress=_progress(call.context)))
            turns.begin(turn)
        return await self._until_news(turns, turn)

    async def _until_news(self, turns: Turns, turn: Turn) -> dict[str, Any] | Question:
        try:
            asked = await turn.next()
        except BaseException:
            turns.end(turn)
            raise
        if asked is None:
            turns.end(turn)
            return await turn.result()
        people = {"": {"method": ELICIT, "params": asked}}
        return question_of(self._source, people, {"params": asked}, number=turn.number)

    async def elicited(self, link: Link, context: Any, params: Any) -> ElicitResult:
        """A server on an older session asks; answer when a person has."""
        raw: dict[str, Any] = params.model_dump(by_alias=True, mode="json", exclude_none=True)
        turn = link.turns.asker()
        reply = CANCELLED if turn is None else await turn.ask(raw, hold_s=_HOLD_S)
        return ElicitResult.model_validate(reply)


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
    async def told(progress: float, total: float | None, message: str | None) -> None:
        text = message or (f"{progress:g}" if total is None else f"{progress:g} of {total:g}")
        context().progress(text, fraction=None if not total else progress / total)

    return told


def _may_have_happened(answered: list[Answer], spec: ToolSpec) -> bool:
    """Whether a call that was held, and is no longer, may have had an effect that must not come twice."""
    return bool(answered) and spec.replay == "unsafe" and "pages" not in answered[-1].state


def _unknown(spec: ToolSpec, source: str) -> Question:
    prompt = f"{spec.name} was interrupted while {source} waited for an answer. Did it happen?"
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown")
