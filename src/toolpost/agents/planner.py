"""A ReAct planner: a conversation with a model that calls tools, pauses and goes on."""

from __future__ import annotations

import asyncio
import json
import secrets
from dataclasses import asdict, dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, Self, cast

from toolpost.contracts.calls import writable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    ConfigError,
    PendingNotFoundError,
    ToolError,
    ToolExecutionError,
    ToolNotFoundError,
    ToolOutputError,
    ToolTimeoutError,
)
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.contracts.principal import PrincipalCache
from toolpost.contracts.questions import DECISIONS, Answer
from toolpost.runtime.concurrency import map_concurrent
from toolpost.runtime.model_messages import model_text
from toolpost.runtime.persistence import load_outcome, plain_members
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import drop_secrets
from toolpost.stores.state import PlannerPauses

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, QuestionKind
    from toolpost.contracts.sources import ChatModel
    from toolpost.contracts.storage import PlannerStateStore, StateStore
    from toolpost.toolbox.box import Toolbox


class PlannerCall(NamedTuple):
    """A tool call of the model; `key` is its idempotency key, `pending_id` the pending action that it waits for."""

    id: str
    name: str
    arguments: Any
    key: str
    pending_id: str = ""


@dataclass(slots=True, kw_only=True)
class Conversation:
    """State of a run, with all that another process needs to resume it."""

    user: str
    run_id: str
    key: str
    messages: list[dict[str, Any]]
    waiting: list[PlannerCall] = field(default_factory=list[PlannerCall])
    turns: int = 0
    calls: int = 0

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Restore a conversation from what `to_dict` returned."""
        members: dict[str, Any] = {**data, "waiting": [PlannerCall(*call) for call in data["waiting"]]}
        return cls(**members)

    def to_dict(self) -> dict[str, Any]:
        """Return the conversation as JSON data."""
        return asdict(self)

    def add_reply(self, reply: object) -> tuple[Any, list[PlannerCall]]:
        """Add the model's message; return its content and its tool calls."""
        message = _json_copy(reply)
        asked: Any = message.get("tool_calls") or []
        if not is_array(asked) or not all(is_object(call) for call in asked):
            raise ToolOutputError("the language model's tool_calls are not a list of objects")
        self.turns += 1
        self.messages.append({**message, "role": "assistant"})
        return message.get("content"), [self._tool_call(call) for call in asked]

    def _tool_call(self, call: dict[str, Any]) -> PlannerCall:
        self.calls += 1
        key = f"{self.key}_{self.calls}"  # models use one id for several calls
        given: Any = call.get("function")
        function: dict[str, Any] = given if is_object(given) else {}
        call["id"] = str(call.get("id") or key)
        return PlannerCall(call["id"], str(function.get("name")), function.get("arguments"), key)

    def add_outcome(self, call: PlannerCall, outcome: Outcome) -> None:
        """Add the result of a call for the model, or keep the call waiting if it paused."""
        if isinstance(outcome, Paused):
            self.waiting.append(call._replace(pending_id=outcome.pending_id))
        else:
            self.messages.append({"role": "tool", "tool_call_id": call.id, "content": model_text(outcome)})

    def settle_first(self, outcome: Outcome) -> None:
        """Replace the first waiting call by its outcome, which may be another pause."""
        call, *others = self.waiting
        self.waiting = []
        self.add_outcome(call, outcome)
        self.waiting += others


def opening_messages(query: str, instructions: str, llm_context: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Build the system and user messages that a run begins with."""
    known = json.dumps(drop_secrets(llm_context), ensure_ascii=False, default=str)
    system = f"{instructions}\n\nWhat is known:\n{known}" if llm_context else instructions
    return [{"role": "system", "content": system}, {"role": "user", "content": query}]


def _json_copy(reply: object) -> dict[str, Any]:
    """Return a JSON copy of a message; ToolOutputError, before any call is made, where it could not be stored."""
    try:
        message: Any = json.loads(json.dumps(reply, allow_nan=False))
    except (TypeError, ValueError, RecursionError) as error:
        hint = "; `complete` returns a dict, of a client's own object its model_dump(exclude_none=True)"
        raise ToolOutputError(f"the language model's message is not JSON: {error}{hint}") from error
    if not is_object(message):
        raise ToolOutputError(f"the language model's message is a {type(reply).__name__}, not an object")
    return message


INSTRUCTIONS = "Call tools where they help. When you can answer the request, answer it without calling a tool."
_POLL_S = 0.1
_MAX_POLLS = 3000
FinishReason = Literal["answer_complete", "no_path", "budget_exhausted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFinish:
    """Result of a run that ended: the model answered, had nothing to say, or used up its turns."""

    reason: FinishReason
    payload: Mapping[str, Any] = field(repr=False)
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerPause:
    """A run that waits for a person; `resume_token` and `payload`, which may say where to sign in, are secrets.

    `arguments`, with secrets masked and long values cut, and `target` say which call waits.
    `refused` says why the last answer to the question was not taken.
    """

    reason: str
    payload: Mapping[str, Any] = field(repr=False)
    resume_token: str = field(repr=False)
    kind: QuestionKind
    prompt: str
    tool_name: str
    pending_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: str = ""


@dataclass(slots=True)
class _Run:
    """A run in progress; `asked` is the pending action that it paused for, `refused` why answers were not taken."""

    talk: Conversation
    context: ToolContext
    asked: str = ""
    refused: dict[str, str] = field(default_factory=dict[str, str])


class ReactPlanner:
    """Let a model call the tools of an open Toolbox, the `catalog`, until it can answer.

    Pauses are stored in `state_store`, by default the Toolbox's own, for `pause_ttl_s`, by default as long as pending
    actions. `tools` are the names that the model may call; None is all.
    """

    def __init__(
        self,
        *,
        catalog: Toolbox,
        llm: ChatModel,
        max_iters: int = 8,
        tools: Sequence[str] | None = None,
        state_store: StateStore | PlannerStateStore | None = None,
        pause_ttl_s: float | None = None,
        llm_timeout_s: float = 120.0,
        instructions: str = INSTRUCTIONS,
    ) -> None:
        if not hasattr(catalog, "pending"):
            raise ConfigError("catalog is an open Toolbox: `async with Toolbox(tools=[...]) as box`, then catalog=box")
        if not callable(getattr(llm, "complete", None)):
            raise ConfigError(f"llm is a ChatModel, an object with `async complete(messages, *, tools)`, not {llm!r}")
        if max_iters < 1:
            raise ConfigError(f"max_iters must be at least 1, not {max_iters}")
        self._box = catalog
        self._llm = llm
        self._max_iters = max_iters
        self._tools = tools
        self._llm_timeout_s = llm_timeout_s
        self._instructions = instructions
        store = state_store or getattr(catalog.store, "state", None)
        self._pauses = PlannerPauses(store, ttl_s=pause_ttl_s or catalog.settings.limits.pending_ttl)

    async def run(
        self, query: str, *, tool_context: Mapping[str, Any] | None = None, llm_context: Mapping[str, Any] | None = None
    ) -> PlannerFinish | PlannerPause:
        """Answer a request, for the `user_id` and under the `trace_id` of `tool_context`, which only tools see."""
        for name in self._tools or ():
            if not self._box.sources.may_have(name):  # else its source is down, and may come
                self._box.registry.find(name)  # an unknown name is an error before a model is asked
        given = dict(tool_context or {})
        talk = Conversation(
            user=_user_of(given),
            run_id=writable(given.get("trace_id") or self._box.router.new_id("run")),
            key=f"plan_{secrets.token_hex(12)}",
            messages=opening_messages(query, self._instructions, llm_context or {}),
        )
        return await self._loop(self._new_run(talk, given, llm_context))

    async def resume(
        self,
        resume_token: str,
        user_input: Any = None,
        *,
        by: str | None = None,
        tool_context: Mapping[str, Any] | None = None,
    ) -> PlannerFinish | PlannerPause:
        """Resume a run: the waiting call runs again with the answer.

        Members of `tool_context` replace those of the first run. `user_input` is the value for a tool that asked,
        or `approve` or `deny`, or an `Answer`. `by` is the person who answers, as `tenant:user`: the run's own user
        when not said, which `four_eyes` does not take. KeyError when the token is unknown, used, expired or somebody
        else's. If this raises or is cancelled, the same token resumes from there.
        """
        given = dict(tool_context or {})
        user = None if given.get("user_id") is None else _user_of(given)
        kept = await self._pauses.take(resume_token, user=user)
        talk = Conversation.from_dict(kept["conversation"])
        run = self._new_run(talk, {**kept["tool_context"], **given}, kept["llm_context"])
        run.asked = kept["asked"]
        try:
            await self._answer(run, user_input, by=by or talk.user)
            return await self._loop(run)
        except BaseException:  # most often the model's; answers of people must not be lost with it
            keeping = self._pauses.keep_again(resume_token, _snapshot(run))
            await asyncio.shield(self._box.router.background.start(keeping))
            raise

    def _new_run(self, talk: Conversation, tool_context: dict[str, Any], llm_context: Mapping[str, Any] | None) -> _Run:
        return _Run(talk, ToolContext(trace_id=talk.run_id, tool_context=tool_context, llm_context=llm_context))

    async def _loop(self, run: _Run) -> PlannerFinish | PlannerPause:
        talk = run.talk
        while True:
            while talk.waiting:
                outcome = await self._current_outcome(run, talk.waiting[0])
                talk.settle_first(outcome)
                if isinstance(outcome, Paused):
                    return await self._pause(run, outcome)
            said, wanted = talk.add_reply(await self._reply(talk.messages))
            if not wanted:
                return _finish(talk, "answer_complete" if said else "no_path", said or None)
            if talk.turns >= self._max_iters:  # nobody would read what comes of these calls
                return _finish(talk, "budget_exhausted")
            most = self._box.settings.limits.absolute_max_parallel
            talk.waiting = wanted  # after a crash here, their outcomes are found by their idempotency keys
            outcomes = await map_concurrent(wanted, partial(self._call, run), max_concurrency=most)
            talk.waiting = []
            for call, outcome in zip(wanted, outcomes, strict=True):
                talk.add_outcome(call, outcome)

    async def _reply(self, messages: Sequence[Mapping[str, Any]]) -> object:
        """Ask the model for its next message; ToolError when it fails or takes longer than `llm_timeout_s`."""
        registry = self._box.registry
        names = None if self._tools is None else [name for name in self._tools if registry.has(name)]
        tools = [tool.to_openai() for tool in registry.to_llm_tools(names)]
        limit = asyncio.timeout(self._llm_timeout_s)
        try:
            async with limit:
                return await self._llm.complete(list(messages), tools=tools)
        except ToolError:
            raise
        except Exception as raised:
            error: ToolError = ToolExecutionError(f"the language model failed: {type(raised).__name__}: {raised}")
            if limit.expired():
                error = ToolTimeoutError(f"the language model did not answer within {self._llm_timeout_s:g} s")
            error.conceal(self._box.redactor.message)
            raise error from raised

    async def _call(self, run: _Run, call: PlannerCall) -> Outcome:
        talk = run.talk
        if not self._is_offered(call.name):
            return Failed("", talk.run_id, call.name, ToolNotFoundError(call.name))
        return await self._box.call(
            call.name,
            call.arguments,
            user=talk.user,
            run_id=talk.run_id,
            idempotency_key=call.key,
            context=run.context,
        )

    def _is_offered(self, name: str) -> bool:
        registry = self._box.registry
        if self._tools is None or name in self._tools:  # where its source is down, the call says so
            return True
        return registry.has(name) and registry.get(name) in map(registry.get, self._tools)

    async def _current_outcome(self, run: _Run, call: PlannerCall) -> Outcome:
        """Return the outcome of a waiting call, whose question others may have answered; wait while it runs.

        A question that this Toolbox does not know was lost with its process: then the same call is made again.
        """
        for _ in range(_MAX_POLLS):
            try:
                asked = await self._box.pending.get(call.pending_id, by=run.talk.user)
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
        return Failed("", run.talk.run_id, call.name, ToolTimeoutError("the call was let go on, and is not done yet"))

    async def _answer(self, run: _Run, user_input: Any, *, by: str) -> None:
        """Answer the question that the run paused for, which runs its call; one that others settled stays as it is."""
        waiting = next(iter(run.talk.waiting), None)
        if waiting is None or waiting.pending_id != run.asked:
            return  # answered before; what waits now was not asked yet
        standing = await self._current_outcome(run, waiting)
        if not isinstance(standing, Paused) or standing.pending_id != waiting.pending_id:
            run.talk.settle_first(standing)
            return
        said = _parse_answer(standing.question.kind, user_input)
        facts: dict[str, Any] = {"decision": said.decision, "reason": said.reason, "arguments": said.arguments}
        facts.update(by=by, context=run.context)
        try:
            run.talk.settle_first(await self._box.pending.answer(standing.pending_id, said.value, **facts))
        except ToolError as error:
            run.refused[standing.pending_id] = str(error)
            if error.error_code == "question_expired":
                await self._box.recovery.sweep()  # the end of it is then known

    async def _pause(self, run: _Run, paused: Paused) -> PlannerPause:
        token = await self._pauses.keep({**_snapshot(run), "asked": paused.pending_id})
        question = paused.question
        return PlannerPause(
            reason=question.reason,
            payload=dict(question.payload),
            resume_token=token,
            kind=question.kind,
            prompt=question.prompt,
            tool_name=paused.tool_name,
            pending_id=paused.pending_id,
            arguments=question.arguments,
            target=question.target,
            refused=run.refused.get(paused.pending_id, ""),
        )


def _user_of(tool_context: Mapping[str, Any]) -> str:
    given = tool_context.get("user_id")
    return str(PrincipalCache()[None if given is None else str(given)])


def _snapshot(run: _Run) -> dict[str, Any]:
    """Return all that is needed to resume a run, without secrets."""
    contexts = {
        "tool_context": plain_members(run.context.tool_context),
        "llm_context": plain_members(run.context.llm_context),
    }
    return {"user": run.talk.user, "asked": run.asked, "conversation": run.talk.to_dict(), **contexts}


def _finish(talk: Conversation, reason: FinishReason, answer: Any = None) -> PlannerFinish:
    facts = {"run_id": talk.run_id, "user_id": talk.user, "iterations": talk.turns, "tool_calls": talk.calls}
    return PlannerFinish(reason=reason, payload={"answer": answer}, metadata=facts)


def _parse_answer(kind: QuestionKind, user_input: Any) -> Answer:
    """Return a person's input as an answer: a decision where the question wants no value."""
    if isinstance(user_input, Answer):
        return user_input
    if "answer" in DECISIONS[kind]:
        return Answer(decision="answer", value=user_input)
    return Answer(decision=cast("Decision", str(user_input)))
