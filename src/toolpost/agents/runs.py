"""A run of a planner in this process: the calls that it makes, and the questions that they wait for."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any, cast

from toolpost.agents.catalogs import ARTIFACT_TOOLS, has_effects
from toolpost.agents.conversation import TOO_MANY_CALLS, Conversation, PlannerCall, result_text, too_many_calls
from toolpost.agents.results import CallEnded, CallProgress, CallStarted, PlannerQuestion
from toolpost.contracts.errors import (
    PendingNotFoundError,
    ToolError,
    ToolNotFoundError,
    ToolTimeoutError,
    nearest,
)
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.contracts.questions import DECISIONS, Answer
from toolpost.policy.approvals import arguments_summary
from toolpost.runtime.concurrency import map_concurrent
from toolpost.runtime.persistence import load_outcome, plain_members
from toolpost.runtime.tool_runtime import read_arguments
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping, Sequence

    from toolpost.agents.catalogs import AgentCatalog
    from toolpost.agents.results import OnEvent, PlannerEvent
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.events import RunEvent
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, QuestionKind
    from toolpost.contracts.spec import ToolDefinition
    from toolpost.stores.pauses import ClaimedPause
    from toolpost.toolbox.box import Toolbox

_log = logging.getLogger("toolpost.agents")
_POLL_S = 0.1
_MAX_POLLS = 3000


@dataclass(slots=True, kw_only=True)
class Run:
    """A run in progress, in one process.

    `asked` are the questions that people were shown, `refused` says why answers were not taken. With a `claim`, steps
    are saved; `saved` is the number of messages that are.
    """

    box: Toolbox
    conversation: Conversation
    context: ToolContext
    on_event: OnEvent | None
    claim: ClaimedPause | None = None
    asked: list[str] = field(default_factory=list[str])
    refused: dict[str, str] = field(default_factory=dict[str, str])
    saved: int = 0
    began: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Seconds that the run has taken, in all processes."""
        return self.conversation.seconds + time.monotonic() - self.began

    @property
    def seconds_left(self) -> float | None:
        """Seconds that the budget leaves; None without such a budget."""
        limit = self.conversation.budget.time_s
        return None if limit is None else max(0.0, limit - self.seconds)

    def emit(self, event: PlannerEvent) -> None:
        """Pass an event to the caller, whose errors do not disturb the run."""
        if self.on_event is not None:
            try:
                self.on_event(event)
            except Exception:  # noqa: BLE001 - foreign code
                _log.exception("on_event failed on %s", event.type)

    def snapshot(self) -> dict[str, Any]:
        """Return all that is needed to resume the run, without secrets."""
        contexts = {
            "tool_context": plain_members(self.context.tool_context),
            "llm_context": plain_members(self.context.llm_context),
        }
        conversation = replace(self.conversation, seconds=self.seconds)
        return {"user": conversation.user, "asked": self.asked, "conversation": conversation.to_dict(), **contexts}

    async def save_step(self) -> None:
        """Store what has changed since the last step, before its calls take effect."""
        if self.claim is not None:
            conversation = replace(self.conversation, seconds=self.seconds)
            await self.claim.save(conversation.to_dict(since=self.saved))
            self.saved = len(conversation.messages)


class RunCalls:
    """Make the calls of runs and answer their questions; `names` are the tools that a model may call, None is all.

    One reply may make `most` calls.
    """

    def __init__(self, catalog: AgentCatalog, names: Sequence[str] | None, *, most: int) -> None:
        self._catalog = catalog
        self._names = names
        self._most = most

    def definitions(self, run: Run) -> Sequence[ToolDefinition]:
        """Return the tools for the model's next reply."""
        if self._catalog.view is not None:
            return self._catalog.view.definitions()
        registry = run.box.registry
        names = self._offered(run)
        return registry.to_llm_tools(None if names is None else [name for name in names if registry.has(name)])

    def _offered(self, run: Run) -> Sequence[str] | None:
        """Return the names that the model may call; None is all. Tools that read artifacts wait until there are any."""
        if self._names is not None:
            return self._names
        if not self._catalog.is_own or run.conversation.has_artifacts:
            return None
        wanted = self._catalog.settings.builtins
        unasked = ARTIFACT_TOOLS if wanted == "none" else ARTIFACT_TOOLS.difference(wanted)
        return [spec.name for spec in run.box.registry.specs() if spec.name not in unasked]

    async def make(self, run: Run) -> None:
        """Make the calls of a reply, all at once; those that pause stay waiting. Of too many, none is made."""
        conversation, wanted = run.conversation, run.conversation.waiting
        if refusal := too_many_calls(len(wanted), self._most):
            outcomes: Sequence[Outcome] = [_refused(conversation, call, refusal) for call in wanted]
        else:
            await run.save_step()  # from here on their outcomes are found by their idempotency keys
            with self._relayed_progress(run, wanted):
                outcomes = await self._make_all(run, wanted)
        conversation.waiting = []
        for call, outcome in zip(wanted, outcomes, strict=True):
            if isinstance(outcome, Paused):
                conversation.waiting.append(call._replace(pending_id=outcome.pending_id))
            else:
                conversation.add_outcome(call, outcome)
        conversation.judge(outcomes)

    @contextmanager
    def _relayed_progress(self, run: Run, calls: Sequence[PlannerCall]) -> Generator[None]:
        """Pass what the calls of a run report on to the caller while they are made."""
        if run.on_event is None:
            yield
            return
        registry, keys = run.box.registry, dict[str, str]()
        for call in map(self._unwrapped, calls):
            name = registry.find(call.name).spec.name if registry.has(call.name) else call.name
            keys[name] = "" if name in keys else call.key  # two calls of one tool cannot be told apart
        remove = run.box.router.emitter.add_sink(_ProgressRelay(run, keys))
        try:
            yield
        finally:
            remove()

    async def _make_all(self, run: Run, calls: Sequence[PlannerCall]) -> Sequence[Outcome]:
        if len(calls) == 1:  # most often, and a task costs more than the loop around the call
            return [await self._make_call(run, calls[0])]
        return await map_concurrent(calls, partial(self._make_call, run), max_concurrency=len(calls))

    async def _make_call(self, run: Run, call: PlannerCall) -> Outcome:
        if run.on_event is None:
            return await self._call(run, call)
        run.emit(_started(run, self._unwrapped(call)))
        outcome = await self._call(run, call)
        run.emit(_ended(run, call, outcome))
        return outcome

    async def _call(self, run: Run, call: PlannerCall) -> Outcome:
        conversation, view, call = run.conversation, self._catalog.view, self._unwrapped(call)
        if view is None and not self._is_offered(run, call.name):
            near = nearest(call.name, [tool.name for tool in self.definitions(run)])
            return Failed("", conversation.run_id, call.name, ToolNotFoundError(call.name, suggestion=near))
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
            error = ToolTimeoutError("the time of the run is over; the call may have taken effect", tool_name=call.name)
            return Failed("", conversation.run_id, call.name, error)

    def _unwrapped(self, call: PlannerCall) -> PlannerCall:
        """Return the call that a model means, which may stand within a call of a search view."""
        if self._catalog.view is None:
            return call
        name, arguments = self._catalog.view.unwrap(call.name, call.arguments)
        return call._replace(name=name, arguments=arguments)

    def _is_offered(self, run: Run, name: str) -> bool:
        registry, names = run.box.registry, self._offered(run)
        if names is None or name in names:  # where its source is down, the call says so
            return True
        if not registry.has(name):
            return self._names is None  # so that the call says that there is no such tool
        return registry.find(name).spec.name in names or registry.get(name) in map(registry.get, names)

    async def settle(self, run: Run) -> list[Paused]:
        """Add the results of calls that wait no more to the conversation; return the questions of the others."""
        conversation, still, asked = run.conversation, list[PlannerCall](), list[Paused]()
        outcomes = [await self._current_outcome(run, call) for call in conversation.waiting]
        for call, outcome in zip(
            conversation.waiting, outcomes, strict=True
        ):  # nothing is awaited: all of them, or none
            if isinstance(outcome, Paused):
                still.append(call._replace(pending_id=outcome.pending_id))
                asked.append(outcome)
            else:
                conversation.add_outcome(call, outcome)
                run.emit(_ended(run, call, outcome))
        conversation.waiting = still
        return asked

    async def _current_outcome(self, run: Run, call: PlannerCall) -> Outcome:
        """Return the outcome of a waiting call, whose question others may have answered; wait while it runs.

        A question that this Toolbox does not know was lost with its process: then the same call is made again.
        """
        for _ in range(_MAX_POLLS):
            try:
                asked = await run.box.pending.get(call.pending_id, by=run.conversation.user)
            except PendingNotFoundError:
                return await self._call(run, call)
            if asked.status == "open":
                return Paused(asked.call_id, asked.run_id, asked.tool_name, asked.id, asked.question)
            if asked.outcome is None:
                await asyncio.sleep(_POLL_S)
            elif isinstance(outcome := load_outcome(asked.outcome), Paused):
                call = call._replace(pending_id=outcome.pending_id)
            else:
                return outcome
        return Failed(
            "", run.conversation.run_id, call.name, ToolTimeoutError("the call was let go on, and is not done yet")
        )

    async def answer(self, run: Run, answers: Mapping[str, Any], *, by: str) -> None:
        """Answer the questions that people were shown, which runs their calls; others stay as they are."""
        for pending_id in answers:
            if pending_id not in run.asked:
                raise PendingNotFoundError(pending_id)
        waiting = [call for call in run.conversation.waiting if call.pending_id in answers]
        await map_concurrent(
            waiting,
            lambda call: self._answer_question(run, call, answers[call.pending_id], by=by),
            max_concurrency=max(1, len(waiting)),
        )

    async def _answer_question(self, run: Run, call: PlannerCall, user_input: Any, *, by: str) -> None:
        """Answer a question unless it is settled; what came of it is found when the waiting calls are settled."""
        standing = await self._current_outcome(run, call)
        if not isinstance(standing, Paused) or standing.pending_id != call.pending_id:
            return
        parsed = _parse_answer(standing.question.kind, user_input)
        facts: dict[str, Any] = {"decision": parsed.decision, "reason": parsed.reason, "arguments": parsed.arguments}
        facts.update(by=by, context=run.context)
        try:
            await run.box.pending.answer(standing.pending_id, parsed.value, **facts)
        except ToolError as error:
            run.refused[standing.pending_id] = str(error)
            if error.error_code == "question_expired":
                await run.box.recovery.sweep()  # the end of it is then known


def _refused(conversation: Conversation, call: PlannerCall, message: str) -> Failed:
    return Failed("", conversation.run_id, call.name, ToolError(message, tool_name=call.name, code=TOO_MANY_CALLS))


class _ProgressRelay:
    """Event sink that emits the progress of a run's calls as events of the planner."""

    def __init__(self, run: Run, keys: Mapping[str, str]) -> None:
        self._run = run
        self._keys = keys
        self._loop = asyncio.get_running_loop()

    def emit(self, event: RunEvent) -> None:
        if event.code is not EventCode.SUBAGENT_ACTION or event.call.run_id != self._run.conversation.run_id:
            return
        call, facts = event.call, event.payload
        progress = CallProgress(
            run_id=call.run_id,
            call_id=self._keys.get(call.tool_name, ""),
            tool_name=call.tool_name,
            text=str(facts.get("text", "")),
            fraction=facts.get("fraction"),
            value=facts.get("value"),
        )
        self._loop.call_soon_threadsafe(self._run.emit, progress)  # plain functions report from their thread


def _started(run: Run, call: PlannerCall) -> CallStarted:
    registry = run.box.registry
    arguments: Any = read_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
    entry = registry.find(call.name) if registry.has(call.name) else None
    shown: Mapping[str, Any] = {}
    if entry is not None and is_object(arguments):
        with suppress(ToolError):  # of a schema that cannot be used
            shown = arguments_summary(arguments, run.box.redactor, entry.secret_paths[0])
    name = call.name if entry is None else entry.spec.name
    return CallStarted(run_id=run.conversation.run_id, call_id=call.key, tool_name=name, arguments=shown)


def _ended(run: Run, call: PlannerCall, outcome: Outcome) -> CallEnded:
    return CallEnded(
        run_id=run.conversation.run_id,
        call_id=call.key,
        tool_name=outcome.tool_name,
        status=outcome.status,
        text=result_text(outcome),
        duration_ms=outcome.duration_ms,
    )


def as_question(paused: Paused, refused: str) -> PlannerQuestion:
    """Return what the application is told of a question; `refused` says why its last answer was not taken."""
    question = paused.question
    return PlannerQuestion(
        pending_id=paused.pending_id,
        kind=question.kind,
        prompt=question.prompt,
        tool_name=paused.tool_name,
        reason=question.reason,
        payload=dict(question.payload),
        arguments=question.arguments,
        target=question.target,
        refused=refused,
    )


def _parse_answer(kind: QuestionKind, user_input: Any) -> Answer:
    """Return a person's input as an answer: a decision where the question wants no value."""
    if isinstance(user_input, Answer):
        return user_input
    if "answer" in DECISIONS[kind]:
        return Answer(decision="answer", value=user_input)
    return Answer(decision=cast("Decision", str(user_input)))
