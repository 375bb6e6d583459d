"""A ReAct planner: a loop that asks a model and runs the tool calls of its replies, pauses for people and goes on."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from toolpost.agents.answers import AnswerSchema, action_rules, action_schema, as_actions, read_action
from toolpost.agents.budget import Budget, PlanningHints, check_at_least_one
from toolpost.agents.catalogs import AgentCatalog
from toolpost.agents.conversation import (
    Conversation,
    opening_messages,
)
from toolpost.agents.models.names import open_model
from toolpost.agents.models.replies import ask_model
from toolpost.agents.results import (
    ModelReplied,
    ModelText,
    PlannerFinish,
    PlannerPause,
    RunFinished,
    RunPaused,
)
from toolpost.agents.runs import Run, RunCalls, as_question
from toolpost.contracts.calls import writable
from toolpost.contracts.chat import TextDelta
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    ConfigError,
    ToolError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.contracts.outcomes import Paused
from toolpost.contracts.principal import PrincipalCache
from toolpost.stores.messages import close_tool_calls
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.state import StateEvents

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
    from types import TracebackType

    from toolpost.agents.budget import BudgetKind
    from toolpost.agents.catalogs import Catalog
    from toolpost.agents.results import FinishReason, OnEvent, PlannerEvent, PlannerResult
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.chat import ChatModel, ModelReply, ToolCallDelta
    from toolpost.contracts.spec import ToolDefinition
    from toolpost.contracts.storage import PlannerStateStore, StateStore
    from toolpost.toolbox.box import Toolbox

INSTRUCTIONS = "Call tools where they help. When you can answer the request, answer it without calling a tool."
_log = logging.getLogger("toolpost.agents")
_FLUSH_S = 10.0
_SHORTEST_TOKEN = 20
_CUT_OFF = "it was cut off at its greatest length; write less"
_REFUSALS = frozenset({"refusal", "content_filter"})


class ReactPlanner:
    """Let a model call the tools of a `catalog` until it can answer.

    The catalog is an open Toolbox or a search view of it, a ToolRegistry or a list of tools. For the latter two the
    planner opens a Toolbox with `settings` itself, at the first run or by `async with`; it is closed by `close`, or
    when the event loop ends. `llm` is a ChatModel or the name of a model. `tools` are the names that the model may
    call; None is all.

    Pauses, and the events of runs, are stored in `state_store`. By default pauses are stored in the Toolbox, for
    `pause_ttl_s`, by default as long as pending actions. `budget` limits each run, its `steps` are `max_iters` where
    it does not say. One reply may make `absolute_max_parallel` calls, or fewer by `planning_hints`; of more, none is
    made. After `repair_attempts` unusable replies in a row the run ends. With `mode="json"` a model without function
    calling writes JSON. `answer_schema` is a JSON Schema or a type that the answer must fit. `on_event` is called with
    every event of every run and returns at once. One planner serves any number of runs at once.
    """

    def __init__(  # noqa: PLR0913 - one declaration; all keyword-only
        self,
        *,
        catalog: Catalog,
        llm: str | ChatModel,
        max_iters: int = 8,
        budget: Budget | None = None,
        tools: Sequence[str] | None = None,
        state_store: StateStore | PlannerStateStore | None = None,
        pause_ttl_s: float | None = None,
        settings: Settings | Mapping[str, Any] | None = None,
        planning_hints: PlanningHints | Mapping[str, Any] | None = None,
        absolute_max_parallel: int | None = None,
        mode: Literal["native", "json"] = "native",
        answer_schema: Mapping[str, Any] | type | None = None,
        repair_attempts: int = 3,
        llm_timeout_s: float = 120.0,
        instructions: str = INSTRUCTIONS,
        on_event: OnEvent | None = None,
    ) -> None:
        limited = {"max_iters": max_iters, "absolute_max_parallel": absolute_max_parallel}
        for name, limit in {**limited, "repair_attempts": repair_attempts}.items():
            check_at_least_one(name, limit)
        if mode not in {"native", "json"}:
            raise ConfigError(f"mode is 'native' or 'json', not {mode!r}")
        self._events = StateEvents(cast("StateStore", state_store)) if hasattr(state_store, "save_event") else None
        self._catalog = AgentCatalog(catalog, settings=settings, sink=self._events)
        if self._catalog.view is not None and tools is not None:
            raise ConfigError("the tools of a search view are chosen where it is made: box.search_view(patterns=[...])")
        limits, network = self._catalog.settings.limits, self._catalog.settings.network
        self._llm = open_model(llm, proxy=network.proxy)
        self._is_named = isinstance(llm, str)
        self._exit = AsyncExitStack()
        self._budget = _with_steps(budget or Budget(), max_iters)
        self._tools = tools
        self._pause_ttl_s = pause_ttl_s or limits.pending_ttl
        self._pauses = None if state_store is None else PlannerPauses(state_store, ttl_s=self._pause_ttl_s)
        self._hints = PlanningHints.parse(planning_hints)
        most = absolute_max_parallel or limits.absolute_max_parallel
        self._calls = RunCalls(self._catalog, tools, most=min(most, self._hints.max_parallel or most))
        self._mode = mode
        self._answer = None if answer_schema is None else AnswerSchema(answer_schema)
        self._repair_attempts = repair_attempts
        self._llm_timeout_s = llm_timeout_s
        self._instructions = instructions
        self._on_event = on_event

    async def __aenter__(self) -> Self:
        await self._catalog.open()
        if self._is_named and isinstance(self._llm, AbstractAsyncContextManager):
            await self._exit.enter_async_context(self._llm)  # it keeps its connections between requests
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the Toolbox and the model that the planner opened; those that it was given stay open."""
        await self._exit.aclose()
        await self._catalog.close()
        await self._flush_events()

    async def run(
        self,
        query: str,
        *,
        tool_context: Mapping[str, Any] | None = None,
        llm_context: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        budget: Budget | None = None,
        resume_token: str | None = None,
        on_event: OnEvent | None = None,
    ) -> PlannerResult:
        """Answer a request, for the `user_id` and under the `trace_id` of `tool_context`, which only tools see.

        `llm_context` is shown to the model, without what stands under secret-like names. `messages` are those of an
        earlier PlannerFinish, whose conversation goes on. `budget` replaces the planner's for this run.

        With a `resume_token`, a secret of the caller's, every step is stored before its calls are made: if this raises,
        is cancelled or its process dies, `resume` goes on from there. KeyError when the token was used before.
        """
        box = await self._catalog.open()
        for name in self._tools or ():
            if not box.sources.may_have(name):  # else its source is down, and may come
                box.registry.find(name)  # an unknown name is an error before a model is asked
        given = dict(tool_context or {})
        conversation = Conversation(
            user=_user_of(given),
            run_id=writable(given.get("trace_id") or box.router.new_id("run")),
            key=f"plan_{secrets.token_hex(12)}",
            messages=opening_messages(query, self._instructions, llm_context or {}, messages),
            budget=self._budget if budget is None else _with_steps(budget, self._budget.steps),
        )
        context = ToolContext(trace_id=conversation.run_id, tool_context=given, llm_context=llm_context)
        run = Run(box=box, conversation=conversation, context=context, on_event=on_event or self._on_event)
        self._catalog.follow_run(conversation.run_id)
        if resume_token is not None:
            _check_token(resume_token)
            run.claim, run.saved = (
                await self._pauses_of(box).begin(resume_token, run.snapshot()),
                len(conversation.messages),
            )
        async with _claimed(run):
            result = await self._loop(run)
        return await self._conclude(run, result)

    async def resume(
        self,
        resume_token: str,
        user_input: Any = None,
        *,
        answers: Mapping[str, Any] | None = None,
        by: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
        on_event: OnEvent | None = None,
    ) -> PlannerResult:
        """Resume a run: the calls whose questions are answered run again with their answers.

        The token is that of a pause, or the one that the run began with. `user_input` answers the first question of the
        pause: the value for a tool that asked, or `approve` or `deny`, or an `Answer`. `answers` has these by pending
        id, for any of the questions; those that stay open come back in the next pause. `by` is the person who answers,
        as `tenant:user`: the run's own user when not said, which `four_eyes` does not take. Members of `tool_context`
        replace those of the first run, and `budget` replaces the run's; what was used so far counts.

        KeyError when the token is unknown, used, expired or somebody else's, or a run is being resumed with it. If
        this raises, is cancelled or its process dies, the same token resumes from there.
        """
        if answers is not None and user_input is not None:
            raise ConfigError("give user_input for the first question, or answers by pending id, not both")
        box = await self._catalog.open()
        given = dict(tool_context or {})
        user = None if given.get("user_id") is None else _user_of(given)
        claim = await self._pauses_of(box).claim(resume_token, user=user)
        kept = claim.payload
        conversation = Conversation.restore(kept["conversation"], claim.steps)
        if budget is not None:
            conversation.budget = _with_steps(budget, conversation.budget.steps)
        context = ToolContext(
            trace_id=conversation.run_id,
            tool_context={**kept["tool_context"], **given},
            llm_context=kept["llm_context"],
        )
        run = Run(box=box, conversation=conversation, context=context, on_event=on_event or self._on_event, claim=claim)
        run.asked, run.saved = kept["asked"], len(conversation.messages)
        self._catalog.follow_run(conversation.run_id)
        async with _claimed(run):
            if claim.recovered:
                await box.recovery.sweep()  # what came of the calls of the process that died is then known
            decisions = dict.fromkeys(run.asked[:1], user_input) if answers is None else answers
            await self._calls.answer(run, decisions, by=by or conversation.user)
            result = await self._loop(run)
        return await self._conclude(run, result)

    def stream(
        self,
        query: str,
        *,
        tool_context: Mapping[str, Any] | None = None,
        llm_context: Mapping[str, Any] | None = None,
        messages: Sequence[Mapping[str, Any]] | None = None,
        budget: Budget | None = None,
        resume_token: str | None = None,
    ) -> AsyncGenerator[PlannerEvent]:
        """Run a request and yield its events, the last of which has the result; its error is raised at the end.

        The run is cancelled when the generator is closed.
        """
        start = partial(
            self.run,
            query,
            tool_context=tool_context,
            llm_context=llm_context,
            messages=messages,
            budget=budget,
            resume_token=resume_token,
        )
        return self._stream(start)

    def stream_resume(
        self,
        resume_token: str,
        user_input: Any = None,
        *,
        answers: Mapping[str, Any] | None = None,
        by: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
        budget: Budget | None = None,
    ) -> AsyncGenerator[PlannerEvent]:
        """Resume a run as `resume` does and yield its events as `stream` does."""
        start = partial(
            self.resume, resume_token, user_input, answers=answers, by=by, tool_context=tool_context, budget=budget
        )
        return self._stream(start)

    async def _stream(self, start: Callable[..., Awaitable[PlannerResult]]) -> AsyncGenerator[PlannerEvent]:
        events: asyncio.Queue[PlannerEvent | None] = asyncio.Queue()

        def receive(event: PlannerEvent) -> None:
            events.put_nowait(event)
            if self._on_event is not None:
                self._on_event(event)

        running = asyncio.ensure_future(start(on_event=receive))
        running.add_done_callback(lambda _: events.put_nowait(None))
        try:
            while (event := await events.get()) is not None:
                yield event
            await running
        finally:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)

    def _pauses_of(self, box: Toolbox) -> PlannerPauses:
        if self._pauses is not None:
            return self._pauses
        return PlannerPauses(box.store.state, ttl_s=self._pause_ttl_s)

    async def _conclude(self, run: Run, result: PlannerResult) -> PlannerResult:
        """Emit the last event of this part of the run."""
        if isinstance(result, PlannerPause):
            run.emit(RunPaused(run_id=run.conversation.run_id, result=result))
        else:
            run.emit(RunFinished(run_id=run.conversation.run_id, result=result))
        await self._flush_events()
        return result

    async def _flush_events(self) -> None:
        """Wait until the state store has the events so far; one that hangs is not waited for."""
        if self._events is not None:
            try:
                async with asyncio.timeout(_FLUSH_S):
                    await self._events.flush()
            except TimeoutError:
                _log.warning("the state store has not saved all events within %g s", _FLUSH_S)

    async def _loop(self, run: Run) -> PlannerResult:
        """Take turns with the model until it has answered, has to wait for people or must not go on."""
        conversation = run.conversation
        while True:
            if paused := await self._calls.settle(run):
                return await self._pause(run, paused)
            if conversation.mistakes >= self._repair_attempts:
                return _finish(run, "no_path", problem=conversation.problem)
            if exhausted := conversation.used_up(run.seconds):
                return _finish(run, "budget_exhausted", budget=exhausted)
            try:
                reply = await self._ask(run)
            except _TimeUsedUpError:
                return _finish(run, "budget_exhausted", budget="time")
            result = self._take_reply(run, reply)
            if result is not None:
                return result
            if conversation.waiting:
                await self._calls.make(run)

    async def _ask(self, run: Run) -> ModelReply:
        """Ask the model for its next message; a ToolError says why there is none."""
        conversation, left = run.conversation, run.seconds_left
        definitions: Sequence[ToolDefinition] = () if conversation.must_answer else self._calls.definitions(run)
        schema = self._answer.schema if self._answer is not None and conversation.must_answer else None
        if self._mode == "json":
            answer = None if self._answer is None else self._answer.schema
            schema = action_schema(definitions, answer)
            messages, tools = as_actions(conversation.messages, self._rules(action_rules(definitions, answer))), []
        else:
            messages, tools = self._with_rules(conversation.messages), [tool.to_openai() for tool in definitions]
        patience = self._llm_timeout_s if left is None else min(left, self._llm_timeout_s)
        try:
            return await ask_model(
                self._llm,
                messages,
                tools=tools,
                response_schema=schema,
                on_delta=None if run.on_event is None else partial(self._pass_on, run),
                timeout_s=patience,
            )
        except ToolError as error:
            if isinstance(error, ToolTimeoutError) and patience == left:
                raise _TimeUsedUpError from error
            error.conceal(run.box.redactor.message)
            raise

    def _pass_on(self, run: Run, delta: TextDelta | ToolCallDelta) -> None:
        if isinstance(delta, TextDelta) and self._mode == "native":
            run.emit(ModelText(run_id=run.conversation.run_id, text=delta.text))

    def _with_rules(self, messages: list[dict[str, Any]]) -> list[dict[str, Any]]:
        answer = "" if self._answer is None else json.dumps(self._answer.schema, ensure_ascii=False)
        fit = f"\nWhen you answer, write one JSON value and nothing else. It must fit this JSON Schema: {answer}"
        rules = self._rules(fit if answer else "")
        if not rules:
            return list(messages)
        return [{**messages[0], "content": f"{messages[0]['content']}{rules}"}, *messages[1:]]

    def _rules(self, rules: str) -> str:
        if self._hints.max_parallel is None:
            return rules
        return f"\nCall at most {self._hints.max_parallel} tools at once.{rules}"

    def _take_reply(self, run: Run, reply: ModelReply) -> PlannerFinish | None:
        """Add a reply to the conversation; return the result of the run if it ends it, or leave its calls waiting."""
        conversation, message = run.conversation, reply.message
        conversation.count(reply)
        run.emit(ModelReplied(run_id=conversation.run_id, steps=conversation.turns, usage=conversation.usage))
        cut = reply.finish_reason == "length"
        try:
            if self._mode == "json" and not message.get("tool_calls") and not cut:
                message = read_action(str(message.get("content") or ""))
        except ToolValidationError as error:
            conversation.add_reply(message)
            conversation.add_problem("; ".join(error.issues))
            return None
        wanted = conversation.add_reply(message)
        conversation.must_answer = False
        if not wanted:
            return self._take_answer(run, message.get("content"), reply.finish_reason)
        if exhausted := conversation.used_up(run.seconds):  # nobody would read what comes of these calls
            return _finish(run, "budget_exhausted", budget=exhausted)
        conversation.waiting = wanted
        return None

    def _take_answer(self, run: Run, reply: Any, finish_reason: str) -> PlannerFinish | None:
        """Return the result of a run with an answer; None where the model has to correct it."""
        conversation = run.conversation
        if finish_reason in _REFUSALS:
            return _finish(run, "no_path", answer=reply or None, problem=f"the model ended with {finish_reason}")
        if not reply:
            return _finish(run, "no_path", problem="the model said nothing and called nothing")
        if finish_reason == "length":
            conversation.add_problem(_CUT_OFF)
            return None
        try:
            answer = reply if self._answer is None else self._answer.read(str(reply))
        except ToolValidationError as error:
            conversation.add_problem("; ".join(error.issues))
            conversation.must_answer = True
            return None
        if self._mode == "json":
            run.emit(ModelText(run_id=conversation.run_id, text=str(reply)))
        return _finish(run, "answer_complete", answer=answer)

    async def _pause(self, run: Run, paused: Sequence[Paused]) -> PlannerPause:
        asked = [each.pending_id for each in paused]
        token = await self._pauses_of(run.box).keep({**run.snapshot(), "asked": asked})
        questions = tuple(as_question(each, run.refused.get(each.pending_id, "")) for each in paused)
        return PlannerPause(questions=questions, resume_token=token, run_id=run.conversation.run_id)


@asynccontextmanager
async def _claimed(run: Run) -> AsyncGenerator[None]:
    """Use the token of a run up, if it has one; release it where the run raises."""
    claim = run.claim
    try:
        yield
        if claim is not None:
            await claim.finish()
    except BaseException:  # most often the model's; answers of people must not be lost with it
        if claim is not None:
            await asyncio.shield(run.box.router.background.start(claim.release(run.snapshot())))
        raise


def _check_token(resume_token: str) -> None:
    if len(resume_token) < _SHORTEST_TOKEN:
        why = f"whoever guesses it goes on with the run; at least {_SHORTEST_TOKEN} characters are needed"
        raise ConfigError(f"resume_token is too short: {why}, such as those of secrets.token_urlsafe()")


class _TimeUsedUpError(Exception):
    """The model took as long as the budget of the run left."""


def _with_steps(budget: Budget, steps: int | None) -> Budget:
    return budget if budget.steps is not None else replace(budget, steps=steps)


def _user_of(tool_context: Mapping[str, Any]) -> str:
    given = tool_context.get("user_id")
    return str(PrincipalCache()[None if given is None else str(given)])


def _finish(
    run: Run, reason: FinishReason, *, answer: Any = None, problem: str = "", budget: BudgetKind | None = None
) -> PlannerFinish:
    conversation = run.conversation
    facts: dict[str, Any] = {
        "run_id": conversation.run_id,
        "user_id": conversation.user,
        "iterations": conversation.turns,
        "tool_calls": conversation.calls,
        "done": [{"tool_name": name, "status": status} for name, status in conversation.done],
        "usage": conversation.usage._asdict(),
        "seconds": round(run.seconds, 3),
    }
    if problem:
        facts["problem"] = problem
    if budget is not None:
        facts["budget"] = budget
    messages = close_tool_calls(conversation.messages, "This call was not made: the budget of the run was used up.")
    return PlannerFinish(reason=reason, payload={"answer": answer}, metadata=facts, messages=messages)
