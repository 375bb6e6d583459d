"""ReAct planner: lets a model call tools until it can answer, pauses for people, and resumes."""

from __future__ import annotations

import asyncio
import json
import logging
import secrets
import time
from collections.abc import Mapping
from contextlib import (
    AbstractAsyncContextManager,
    AbstractContextManager,
    AsyncExitStack,
    asynccontextmanager,
    nullcontext,
    suppress,
)
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, Self, cast

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.agents import results
from toolpost.agents.answers import AnswerSchema, action_rules, action_schema, as_actions, read_action
from toolpost.agents.catalogs import AgentCatalog, Catalog, OfferedTools, has_effects
from toolpost.agents.conversation import (
    TOO_MANY_CALLS,
    Budget,
    Conversation,
    PlannerCall,
    PlanningHints,
    check_at_least_one,
    close_tool_calls,
    opening_messages,
    result_text,
    run_loop,
    too_many_calls,
)
from toolpost.agents.models.names import open_model
from toolpost.agents.models.replies import request_reply
from toolpost.catalog.registry import refuse_text
from toolpost.contracts import errors
from toolpost.contracts.chat import ChatModel, ModelReply, TextDelta, ToolCallDelta
from toolpost.contracts.context import ToolContext
from toolpost.contracts.events import RunEvent
from toolpost.contracts.ids import writable
from toolpost.contracts.nearest_names import nearest
from toolpost.contracts.outcomes import Failed, OpenQuestion, Outcome, Paused
from toolpost.contracts.principal import PrincipalCache
from toolpost.contracts.questions import DECISIONS, Answer, Decision, QuestionKind
from toolpost.policy.call_summary import arguments_summary
from toolpost.runtime.arguments import read_arguments
from toolpost.runtime.concurrency import map_concurrent
from toolpost.runtime.persistence import load_outcome, plain_members
from toolpost.schema.json_values import is_object
from toolpost.stores.pauses import ClaimedPause, PlannerPauses
from toolpost.stores.state_events import StateEvents
from toolpost.wire.tracing import find_tracer

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
    from types import TracebackType

    from opentelemetry.trace import Tracer

    from toolpost.agents.conversation import BudgetKind
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.spec import ToolDefinition
    from toolpost.contracts.storage import PlannerStateStore, StateStore
    from toolpost.toolbox.box import Toolbox


INSTRUCTIONS = "Call tools where they help. When you can answer the request, answer it without calling a tool."
_log = logging.getLogger("toolpost.agents")
_FLUSH_S = 10.0
_SHORTEST_TOKEN = 20
_CUT_OFF = "it was cut off at its greatest length; write less"
_REFUSALS = frozenset({"refusal", "content_filter"})
_DECIDED: frozenset[QuestionKind] = frozenset({"approval", "unknown"})  # answered by a decision, not by a value
_RESUMED_S = 300.0  # for a call that another process resumes


class ReactPlanner:
    """Let a model call the tools of a `catalog` until it can answer.

    The catalog is an open Toolbox or a search view of it, a ToolRegistry, or a list of tools. For the last two, the
    planner opens a Toolbox with `settings` at the first run or by `async with`, and closes it in `close` or when the
    event loop ends. `llm` is a ChatModel or the name of a model. `tools` are the names that the model may call; None is
    all.

    Pauses and the events of runs are stored in `state_store`. The default stores pauses in the Toolbox. They expire
    after `pause_ttl_s`, by default that of pending actions. `budget` limits each run; the default of its `steps` is
    `max_iters`. One reply may make `absolute_max_parallel` calls, or fewer by `planning_hints`; of more calls, none is
    made. After `repair_attempts` consecutive unusable replies, the run ends. With `mode="json"`, a model without
    function calling writes JSON. `answer_schema` is a JSON Schema or a type that the answer must match. `on_event` is
    called with every event of every run and must not block. One planner serves any number of concurrent runs.
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
        on_event: results.OnEvent | None = None,
    ) -> None:
        refuse_text(tools=tools)
        limited = {"max_iters": max_iters, "absolute_max_parallel": absolute_max_parallel}
        for name, limit in {**limited, "repair_attempts": repair_attempts}.items():
            check_at_least_one(name, limit)
        if mode not in {"native", "json"}:
            raise errors.ConfigError(f"mode is 'native' or 'json', not {mode!r}")
        self._events = StateEvents(cast("StateStore", state_store)) if hasattr(state_store, "save_event") else None
        self._catalog = AgentCatalog(catalog, settings=settings, sink=self._events)
        if self._catalog.view is not None and tools is not None:
            raise errors.ConfigError(
                "the tools of a search view are chosen where it is made: box.search_view(patterns=[...])"
            )
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
        self._offered = OfferedTools(self._catalog, tools)
        self._calls = RunCalls(self._offered, most=min(most, self._hints.max_parallel or most))
        self._mode = mode
        self._answer = None if answer_schema is None else AnswerSchema(answer_schema)
        self._repair_attempts = repair_attempts
        self._llm_timeout_s = llm_timeout_s
        self._instructions = instructions
        self._on_event = on_event

    async def __aenter__(self) -> Self:
        await self._catalog.open()
        if self._is_named and isinstance(self._llm, AbstractAsyncContextManager):
            await self._exit.enter_async_context(self._llm)  # keeps connections open between requests
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the Toolbox and the model that the planner opened; given ones stay open."""
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
        on_event: results.OnEvent | None = None,
    ) -> results.PlannerResult:
        """Answer a request for the `user_id` and under the `trace_id` of `tool_context`, which only tools see.

        `llm_context` is shown to the model, without members that have secret-like names. `messages` are those of an
        earlier PlannerFinish and continue its conversation. `budget` replaces the planner's for this run.

        With a `resume_token`, a secret of the caller, every step is stored before its calls are made. If this method
        raises or is cancelled, or its process dies, `resume` continues from there. Raise KeyError if the token was used
        before.
        """
        _check_kind("query", query, str, "the text of a request")
        _check_context(tool_context)
        box = await self._catalog.open()
        for name in self._tools or ():
            if not box.sources.index.may_have(name):  # otherwise its source is down and may return
                box.registry.find(name)  # raises for an unknown name, before the first prompt
        members = dict(tool_context or {})
        conversation = Conversation(
            user=_user_of(members),
            run_id=writable(given) if (given := members.get("trace_id")) else box.router.new_id("run"),
            key=f"plan_{secrets.token_hex(12)}",
            messages=opening_messages(query, self._instructions, llm_context or {}, messages),
            budget=self._budget if budget is None else _with_steps(budget, self._budget.steps),
        )
        context = ToolContext(trace_id=conversation.run_id, tool_context=members, llm_context=llm_context)
        run = Run(box=box, conversation=conversation, context=context, on_event=on_event or self._on_event)
        self._catalog.follow_run(conversation.run_id)
        if resume_token is not None:
            if len(resume_token) < _SHORTEST_TOKEN:
                why = f"anyone who guesses it can resume the run; at least {_SHORTEST_TOKEN} characters are needed"
                raise errors.ConfigError(f"resume_token is too short: {why}, such as those of secrets.token_urlsafe()")
            run.claim, run.saved = (
                await self._pauses_of(box).begin(resume_token, run.snapshot()),
                len(conversation.messages),
            )
        async with _use_claim(run):
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
        on_event: results.OnEvent | None = None,
    ) -> results.PlannerResult:
        """Resume a run: the calls with answered questions run again with their answers.

        The token is that of a pause, or the one that the run began with. `user_input` answers the first question of the
        pause: a value for a question of a tool, `approve` or `deny`, or an `Answer`. `answers` contains answers by
        pending ID, for any of the questions; open questions return in the next pause. `by` is the person who answers,
        as `tenant:user`. The default is the user of the run, which `four_eyes` does not accept. Members of
        `tool_context` replace those of the first run, and `budget` replaces the run's; earlier usage counts.

        Raise KeyError if the token is unknown, used, expired or another user's, or if it is being used now. If this
        method raises or is cancelled, or its process dies, the same token resumes from there.
        """
        if answers is not None and user_input is not None:
            raise errors.ConfigError("give user_input for the first question, or answers by pending id, not both")
        _check_kind("resume_token", resume_token, str, "the token of a pause, or of the run")
        _check_context(tool_context)
        box = await self._catalog.open()
        members = dict(tool_context or {})
        user = None if members.get("user_id") is None else _user_of(members)
        claim = await self._pauses_of(box).claim(resume_token, user=user)
        payload = claim.payload
        conversation = Conversation.restore(payload["conversation"], claim.steps)
        if budget is not None:
            conversation.budget = _with_steps(budget, conversation.budget.steps)
        context = ToolContext(
            trace_id=conversation.run_id,
            tool_context={**payload["tool_context"], **members},
            llm_context=payload["llm_context"],
        )
        run = Run(box=box, conversation=conversation, context=context, on_event=on_event or self._on_event, claim=claim)
        run.pending_ids, run.saved = payload["asked"], len(conversation.messages)
        self._catalog.follow_run(conversation.run_id)
        async with _use_claim(run):
            if claim.recovered:
                await box.recovery.sweep()  # settles the calls of the dead process
            decisions = dict.fromkeys(run.pending_ids[:1], user_input) if answers is None else answers
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
    ) -> AsyncGenerator[results.PlannerEvent]:
        """Run a request and yield its events; the last contains the result. An error is raised at the end.

        Closing the generator cancels the run.
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
    ) -> AsyncGenerator[results.PlannerEvent]:
        """Resume a run as `resume` does and yield its events as `stream` does."""
        start = partial(
            self.resume, resume_token, user_input, answers=answers, by=by, tool_context=tool_context, budget=budget
        )
        return self._stream(start)

    async def _stream(
        self, start: Callable[..., Awaitable[results.PlannerResult]]
    ) -> AsyncGenerator[results.PlannerEvent]:
        events: asyncio.Queue[results.PlannerEvent | None] = asyncio.Queue()

        def receive(event: results.PlannerEvent) -> None:
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

    async def _conclude(self, run: Run, result: results.PlannerResult) -> results.PlannerResult:
        """Emit the last event of this part of the run."""
        if isinstance(result, results.PlannerPause):
            run.emit(results.RunPaused(run_id=run.conversation.run_id, result=result))
        else:
            run.emit(results.RunFinished(run_id=run.conversation.run_id, result=result))
        await self._flush_events()
        return result

    async def _flush_events(self) -> None:
        """Wait until the state store has saved the events, up to a timeout."""
        if self._events is not None:
            try:
                async with asyncio.timeout(_FLUSH_S):
                    await self._events.flush()
            except TimeoutError:
                _log.warning("the state store has not saved all events within %g s", _FLUSH_S)

    async def _loop(self, run: Run) -> results.PlannerResult:
        try:
            return await run_loop(
                run.conversation,
                prepare=partial(self._prepare, run),
                request=partial(self._request_reply, run),
                answer=partial(self._take_answer, run),
                act=partial(self._take_calls, run),
            )
        except _TimeUsedUpError:
            return _finish(run, "budget_exhausted", budget="time")

    async def _prepare(self, run: Run) -> results.PlannerResult | None:
        """Settle the waiting calls; return the pause or the finish of a run that cannot continue."""
        conversation = run.conversation
        if paused := await self._calls.settle(run):
            return await self._pause(run, paused)
        if conversation.mistakes >= self._repair_attempts:
            return _finish(run, "no_path", problem=conversation.problem)
        if exhausted := conversation.used_up(run.seconds):
            return _finish(run, "budget_exhausted", budget=exhausted)
        return None

    async def _request_reply(self, run: Run) -> ModelReply:
        """Request the model's next message; raise a ToolError if there is none."""
        conversation, left = run.conversation, run.seconds_left
        definitions: Sequence[ToolDefinition] = ()
        if not conversation.must_answer:
            definitions = self._offered.definitions(run.box, has_artifacts=conversation.has_artifacts)
        schema = self._answer.schema if self._answer is not None and conversation.must_answer else None
        if self._mode == "json":
            answer = None if self._answer is None else self._answer.schema
            schema = action_schema(definitions, answer)
            messages, tools = as_actions(conversation.messages, self._rules(action_rules(definitions, answer))), []
        else:
            messages, tools = self._with_rules(conversation.messages), [tool.to_openai() for tool in definitions]
        timeout_s = self._llm_timeout_s if left is None else min(left, self._llm_timeout_s)
        try:
            reply = await request_reply(
                self._llm,
                messages,
                tools=tools,
                response_schema=schema,
                on_delta=None if run.on_event is None else partial(self._pass_on, run),
                timeout_s=timeout_s,
                find_tracer=lambda: run.tracer,
            )
        except errors.ToolError as error:
            if isinstance(error, errors.ToolTimeoutError) and timeout_s == left:
                raise _TimeUsedUpError from error
            error.conceal(run.box.redactor.message)
            raise
        return self._read_action(run, reply) if self._mode == "json" else reply

    def _read_action(self, run: Run, reply: ModelReply) -> ModelReply:
        """Parse a reply in JSON mode; set `run.unreadable` if it has neither calls nor an answer."""
        run.unreadable = ""
        if reply.message.get("tool_calls") or reply.finish_reason == "length":
            return reply
        try:
            return reply._replace(message=read_action(str(reply.message.get("content") or "")))
        except errors.ToolValidationError as error:
            run.unreadable = "; ".join(error.issues)
            return reply

    def _pass_on(self, run: Run, delta: TextDelta | ToolCallDelta) -> None:
        if isinstance(delta, TextDelta) and self._mode == "native":
            run.emit(results.ModelText(run_id=run.conversation.run_id, text=delta.text))

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
        return f"\nCall at most {self._hints.max_parallel} tools in one reply.{rules}"

    async def _take_calls(self, run: Run, calls: list[PlannerCall]) -> results.PlannerFinish | None:
        """Make the calls of a reply, unless the budget is used up: their results would not be read."""
        conversation = run.conversation
        run.emit_replied()
        conversation.must_answer = False
        if exhausted := conversation.used_up(run.seconds):
            return _finish(run, "budget_exhausted", budget=exhausted)
        conversation.waiting = calls
        await self._calls.make(run)
        return None

    async def _take_answer(self, run: Run, reply: ModelReply) -> results.PlannerFinish | None:
        """Return the result of a run with an answer; None if the model has to correct it."""
        conversation, text = run.conversation, reply.message.get("content")
        run.emit_replied()
        if run.unreadable:
            conversation.add_problem(run.unreadable)
            return None
        conversation.must_answer = False
        if reply.finish_reason in _REFUSALS:
            return _finish(run, "no_path", answer=text or None, problem=f"the model ended with {reply.finish_reason}")
        if not text:
            return _finish(run, "no_path", problem="the model said nothing and called nothing")
        if reply.finish_reason == "length":
            conversation.add_problem(_CUT_OFF)
            return None
        try:
            answer = text if self._answer is None else self._answer.read(str(text))
        except errors.ToolValidationError as error:
            conversation.add_problem("; ".join(error.issues))
            conversation.must_answer = True
            return None
        if self._mode == "json":
            run.emit(results.ModelText(run_id=conversation.run_id, text=str(text)))
        return _finish(run, "answer_complete", answer=answer)

    async def _pause(self, run: Run, paused: Sequence[Paused]) -> results.PlannerPause:
        asked = [one for each in paused for one in each.questions]
        pending_ids = [one.pending_id for one in asked]
        token = await self._pauses_of(run.box).keep({**run.snapshot(), "asked": pending_ids})
        questions = tuple(as_question(one, run.refused.get(one.pending_id, "")) for one in asked)
        return results.PlannerPause(questions=questions, resume_token=token, run_id=run.conversation.run_id)


@asynccontextmanager
async def _use_claim(run: Run) -> AsyncGenerator[None]:
    """Consume the token of a run, if it has one; release it if the run raises."""
    claim = run.claim
    try:
        yield
        if claim is not None:
            await claim.finish()
    except BaseException:  # often the model's error; answers of people must not be lost
        if claim is not None:
            await asyncio.shield(run.box.router.background.start(claim.release(run.snapshot())))
        raise


def _check_kind(name: str, value: object, kind: type, meaning: str) -> None:
    """Raise TypeError for an argument of another type, which would fail later with an unclear message."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {meaning}, not {type(value).__name__}")


def _check_context(tool_context: object) -> None:
    if tool_context is not None:
        _check_kind("tool_context", tool_context, Mapping, "a mapping, such as {'user_id': 'acme:ann'}")


class _TimeUsedUpError(Exception):
    """The model used the remaining time of the run's budget."""


def _with_steps(budget: Budget, steps: int | None) -> Budget:
    _check_kind("budget", budget, Budget, "a Budget, such as Budget(steps=8)")
    return budget if budget.steps is not None else replace(budget, steps=steps)


def _user_of(tool_context: Mapping[str, Any]) -> str:
    user_id = tool_context.get("user_id")
    return str(PrincipalCache()[None if user_id is None else str(user_id)])


def _finish(
    run: Run, reason: results.FinishReason, *, answer: Any = None, problem: str = "", budget: BudgetKind | None = None
) -> results.PlannerFinish:
    conversation = run.conversation
    facts: dict[str, Any] = {
        "run_id": conversation.run_id,
        "user_id": conversation.user,
        "iterations": conversation.turns,
        "tool_calls": len(conversation.done),
        "done": [{"tool_name": name, "status": status} for name, status in conversation.done],
        "usage": conversation.usage._asdict(),
        "seconds": round(run.seconds, 3),
    }
    if problem:
        facts["problem"] = problem
    if budget is not None:
        facts["budget"] = budget
    messages = close_tool_calls(conversation.messages, "This call was not made: the budget of the run was used up.")
    return results.PlannerFinish(reason=reason, payload={"answer": answer}, metadata=facts, messages=messages)


class Run(Struct, kw_only=True):
    """A run in progress, in one process.

    `pending_ids` are those of the questions in the last pause. `refused` contains the reasons why answers were
    rejected. With a `claim`, steps are saved; `saved` is the number of saved messages.
    """

    box: Toolbox
    conversation: Conversation
    context: ToolContext
    on_event: results.OnEvent | None
    claim: ClaimedPause | None = None
    pending_ids: list[str] = field(default_factory=list[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    saved: int = 0
    unreadable: str = ""
    tracer: Tracer | None = field(default_factory=find_tracer)
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Duration of the run, in all processes."""
        return self.conversation.seconds + time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        """Remaining seconds of the budget; None without such a budget."""
        limit = self.conversation.budget.time_s
        return None if limit is None else max(0.0, limit - self.seconds)

    def emit(self, event: results.PlannerEvent) -> None:
        """Pass an event to the caller; its errors do not affect the run."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:  # noqa: BLE001 - foreign code
                _log.exception("on_event failed on %s", event.type)

    def emit_replied(self) -> None:
        conversation = self.conversation
        if self.on_event is not None:
            usage = conversation.usage
            self.emit(results.ModelReplied(run_id=conversation.run_id, steps=conversation.turns, usage=usage))

    def snapshot(self) -> dict[str, Any]:
        """Return everything needed to resume the run, without secrets."""
        contexts = {
            "tool_context": plain_members(self.context.tool_context),
            "llm_context": plain_members(self.context.llm_context),
        }
        conversation = replace(self.conversation, seconds=self.seconds)
        return {
            "user": conversation.user,
            "asked": self.pending_ids,
            "conversation": conversation.to_dict(),
            **contexts,
        }

    async def save_step(self) -> None:
        """Store the changes since the last step, before its calls take effect."""
        if self.claim is not None:
            conversation = replace(self.conversation, seconds=self.seconds)
            await self.claim.save(conversation.to_dict(since=self.saved))
            self.saved = len(conversation.messages)


class RunCalls:
    """Makes the calls of runs and answers their questions. One reply may make `most` calls."""

    def __init__(self, offered: OfferedTools, *, most: int) -> None:
        self._offered = offered
        self._most = most

    async def make(self, run: Run) -> None:
        """Make the calls of a reply concurrently; paused calls stay waiting. Of too many, none is made."""
        conversation, calls = run.conversation, run.conversation.waiting
        if refusal := too_many_calls(len(calls), self._most):
            outcomes: Sequence[Outcome] = [
                Failed("", conversation.run_id, name, errors.ToolError(refusal, tool_name=name, code=TOO_MANY_CALLS))
                for name in (call.name for call in calls)
            ]
        else:
            await run.save_step()  # from here on, idempotency keys find their outcomes
            with self._relay_progress(run, calls):
                outcomes = await self._make_all(run, calls)
        conversation.waiting = []
        for call, outcome in zip(calls, outcomes, strict=True):
            if isinstance(outcome, Paused):
                conversation.waiting.append(call._replace(pending_id=outcome.pending_id))
            else:
                conversation.add_outcome(call, outcome)
        conversation.judge(outcomes)

    def _relay_progress(self, run: Run, calls: Sequence[PlannerCall]) -> AbstractContextManager[None]:
        """Forward the progress of calls to the caller while they run."""
        if run.on_event is None:
            return nullcontext()
        registry, keys = run.box.registry, dict[str, str]()
        for call in (self._unwrap(run, one) for one in calls):
            name = registry.find(call.name).spec.name if registry.has(call.name) else call.name
            keys[name] = "" if name in keys else call.key  # events do not distinguish two calls of one tool
        loop = asyncio.get_running_loop()

        def receive(event: RunEvent) -> None:
            call, facts = event.call, event.payload
            progress = results.CallProgress(
                run_id=call.run_id,
                call_id=keys.get(call.tool_name, ""),
                tool_name=call.tool_name,
                text=str(facts.get("text", "")),
                fraction=facts.get("fraction"),
                value=facts.get("value"),
            )
            loop.call_soon_threadsafe(run.emit, progress)  # plain functions report from a worker thread

        return run.box.router.emitter.relay_progress(receive, run_id=run.conversation.run_id)

    async def _make_all(self, run: Run, calls: Sequence[PlannerCall]) -> Sequence[Outcome]:
        if len(calls) == 1:  # the usual case; a task would cost more than the call's overhead
            return [await self._make_call(run, calls[0])]
        return await map_concurrent(calls, partial(self._make_call, run), max_concurrency=len(calls))

    async def _make_call(self, run: Run, call: PlannerCall) -> Outcome:
        if run.on_event is None:
            return await self._call(run, call)
        run.emit(_describe_start(run, self._unwrap(run, call)))
        outcome = await self._call(run, call)
        run.emit(_describe_end(run, call, outcome))
        return outcome

    async def _call(self, run: Run, call: PlannerCall) -> Outcome:
        conversation, call = run.conversation, self._unwrap(run, call)
        view, has_artifacts = self._offered.view_for(run.box, call.name), conversation.has_artifacts
        if view is None and not self._offered.includes(run.box, call.name, has_artifacts=has_artifacts):
            names = [tool.name for tool in self._offered.definitions(run.box, has_artifacts=has_artifacts)]
            near = nearest(call.name, names)
            return Failed("", conversation.run_id, call.name, errors.ToolNotFoundError(call.name, suggestion=near))
        calling = (run.box if view is None else view).call(
            call.name,
            call.arguments,
            user=conversation.user,
            run_id=conversation.run_id,
            idempotency_key=call.key if has_effects(run.box.registry, call.name) else None,
            context=run.context,
        )
        left = run.seconds_left
        if left is None:
            return await calling
        try:
            async with asyncio.timeout(left):
                return await calling
        except TimeoutError:
            error = errors.ToolTimeoutError(
                "the time of the run is over; the call may have taken effect", tool_name=call.name
            )
            return Failed("", conversation.run_id, call.name, error)

    def _unwrap(self, run: Run, call: PlannerCall) -> PlannerCall:
        """Return the call that a model means, which may be inside a call of a search view."""
        view = self._offered.view_for(run.box, call.name)
        if view is None:
            return call
        name, arguments = view.unwrap(call.name, call.arguments)
        return call._replace(name=name, arguments=arguments)

    async def settle(self, run: Run) -> list[Paused]:
        """Add the results of settled calls to the conversation; return the questions of the others."""
        conversation, still, pauses = run.conversation, list[PlannerCall](), list[Paused]()
        outcomes = [await self._current_outcome(run, call) for call in conversation.waiting]
        # No await from here on: all results are added, or none.
        for call, outcome in zip(conversation.waiting, outcomes, strict=True):
            if isinstance(outcome, Paused):
                still.append(call._replace(pending_id=outcome.pending_id))
                pauses.append(outcome)
            else:
                conversation.add_outcome(call, outcome)
                run.emit(_describe_end(run, call, outcome))
        conversation.waiting = still
        return pauses

    async def _current_outcome(self, run: Run, call: PlannerCall) -> Outcome:
        """Return the outcome of a waiting call, possibly answered elsewhere; wait while it runs.

        A question that this Toolbox does not know was lost with its process: then the same call is made again.
        """
        deadline, state = time.monotonic() + _RESUMED_S, None
        while (left_s := deadline - time.monotonic()) > 0:
            try:
                pending = await run.box.pending.get(call.pending_id, by=run.conversation.user)
            except errors.PendingNotFoundError:
                return await self._call(run, call)
            if pending.status == "open":
                return await run.box.pending.outcome(pending.id, by=run.conversation.user, wait_s=0)
            if pending.outcome is None:
                state = await run.box.store.pending.wait([pending.id], state, timeout_s=left_s)
            elif isinstance(outcome := load_outcome(pending.outcome), Paused):
                call = call._replace(pending_id=outcome.pending_id)
            else:
                return outcome
        return Failed(
            "",
            run.conversation.run_id,
            call.name,
            errors.ToolTimeoutError("the call was resumed and has not ended yet"),
        )

    async def answer(self, run: Run, answers: Mapping[str, Any], *, by: str) -> None:
        """Answer questions of the last pause, which runs their calls; other questions stay open."""
        for pending_id in answers:
            if pending_id not in run.pending_ids:
                raise errors.PendingNotFoundError(pending_id)
        await map_concurrent(
            list(answers.items()),
            lambda answer: self._answer_question(run, *answer, by=by),
            max_concurrency=max(1, len(answers)),
        )

    async def _answer_question(self, run: Run, pending_id: str, user_input: Any, *, by: str) -> None:
        """Answer a question unless it is settled; `settle` finds its outcome."""
        try:
            standing = await run.box.pending.get(pending_id, by=run.conversation.user)
        except errors.PendingNotFoundError:  # the question was lost with its process
            return
        if standing.status != "open":
            return
        parsed = _parse_answer(standing.question.kind, user_input)
        facts: dict[str, Any] = {"decision": parsed.decision, "reason": parsed.reason, "changes": parsed.changes}
        facts.update(by=by, context=run.context)
        try:
            await run.box.pending.answer(pending_id, parsed.value, **facts)
        except errors.ToolError as error:
            run.refused[pending_id] = str(error)
            if error.error_code == "question_expired":
                await run.box.recovery.sweep()  # settles the expired question


def _describe_start(run: Run, call: PlannerCall) -> results.CallStarted:
    registry = run.box.registry
    arguments: Any = read_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
    entry = registry.find(call.name) if registry.has(call.name) else None
    shown: Mapping[str, Any] = {}
    if entry is not None and is_object(arguments):
        with suppress(errors.ToolError):  # an unusable schema
            shown = arguments_summary(arguments, run.box.redactor, entry.secret_paths[0])
    name = call.name if entry is None else entry.spec.name
    return results.CallStarted(run_id=run.conversation.run_id, call_id=call.key, tool_name=name, arguments=shown)


def _describe_end(run: Run, call: PlannerCall, outcome: Outcome) -> results.CallEnded:
    return results.CallEnded(
        run_id=run.conversation.run_id,
        call_id=call.key,
        tool_name=outcome.tool_name,
        status=outcome.status,
        text=result_text(outcome),
        duration_ms=outcome.duration_ms,
    )


def as_question(asked: OpenQuestion, refused: str) -> results.PlannerQuestion:
    """Return a question for the application; `refused` is the reason why its last answer was rejected."""
    question = asked.question
    payload = dict(question.payload)
    if question.kind in _DECIDED:
        answers = [one for one in sorted(DECISIONS[question.kind]) if one != "approve" or not question.needs_operator]
        arguments, target = dict(question.arguments), dict(question.target)
        payload |= {"prompt": question.prompt, "arguments": arguments, "target": target, "answers": answers}
    return results.PlannerQuestion(
        pending_id=asked.pending_id,
        kind=question.kind,
        prompt=question.prompt,
        tool_name=asked.tool_name,
        reason=question.reason,
        payload=payload,
        arguments=question.arguments,
        target=question.target,
        refused=refused,
    )


def _parse_answer(kind: QuestionKind, user_input: Any) -> Answer:
    """Parse a person's input to an answer; a decision if the question takes no value."""
    if isinstance(user_input, Answer):
        return user_input
    if "answer" in DECISIONS[kind]:
        return Answer(decision="answer", value=user_input)
    return Answer(decision=cast("Decision", str(user_input)))
