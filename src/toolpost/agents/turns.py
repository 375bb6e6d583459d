"""Turns with a model: ask it with the tools of a registry, read the calls of its reply as steps, and run the steps."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from msgspec import Struct, field

from toolpost.agents.conversation import Conversation, PlannerCall, advice
from toolpost.agents.models.replies import ask_model
from toolpost.contracts.errors import ToolError
from toolpost.contracts.records import represent
from toolpost.runtime.tool_runtime import read_arguments
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.chat import ChatModel
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.executor import ToolExecutor


CONTEXT_TOKENS = 100_000
CHARS_A_TOKEN = 4
_SHARE = 0.6  # of the context; the rest is for tools, the reply, and what is counted wrong
_CUT = "\n[… cut: this conversation is too long]"
ActionType = Literal["tool_call"]
Verdict = Literal["complete", "continue", "replan"]


class Turn(NamedTuple):
    """A reply of the model: its text, and its tool calls as steps; `call_ids` has the model's id of each step."""

    text: str
    steps: list[PlanStep]
    call_ids: Mapping[str, str]

    def results(self, text: str) -> list[dict[str, Any]]:
        """Return messages with one result for every call."""
        return [{"role": "tool", "tool_call_id": call_id, "content": text} for call_id in self.call_ids.values()]


class ModelTurns:
    """Asks one model with the tools of one registry. Prompts are trimmed to 60 % of `context_tokens`."""

    def __init__(
        self,
        model: ChatModel,
        registry: ToolRegistry,
        redactor: Redactor,
        *,
        context_tokens: int = CONTEXT_TOKENS,
        timeout_s: float = 120.0,
    ) -> None:
        self.most_chars = int(context_tokens * CHARS_A_TOKEN * _SHARE)
        self._model = model
        self._registry = registry
        self.redactor = redactor
        self._timeout_s = timeout_s

    async def ask(self, conversation: Conversation) -> Turn:
        """Ask for the next message and add it to the conversation; ToolError, redacted, when there is none."""
        tools = [tool.to_openai() for tool in self._registry.to_llm_tools()]
        reply = await self.say(conversation.messages, tools=tools)
        conversation.count(reply)
        return self.turn(conversation.add_reply(reply.message), _text(reply.message))

    def turn(self, calls: Sequence[PlannerCall], text: str = "") -> Turn:
        """Return calls of the model as steps."""
        return Turn(text, [self._step(call) for call in calls], {call.key: call.id for call in calls})

    async def say(
        self,
        messages: Sequence[Mapping[str, Any]],
        *,
        tools: Sequence[Mapping[str, Any]] = (),
        response_schema: Mapping[str, Any] | None = None,
    ) -> Any:
        """Ask the model and return its reply."""
        try:
            return await ask_model(
                self._model,
                trim_messages(messages, self.most_chars),
                tools=tools,
                response_schema=response_schema,
                timeout_s=self._timeout_s,
            )
        except ToolError as error:
            error.conceal(self.redactor.message)
            raise

    def result_message(self, call_id: str, action: ActionResult) -> dict[str, Any]:
        """Return the message with the result of a step, and with advice where it failed."""
        text = action.text if action.success else f"{action.text}\n{advice(action.error_code)}"
        return {"role": "tool", "tool_call_id": call_id, "content": self.redactor.text(text)}

    def _step(self, call: PlannerCall) -> PlanStep:
        registry = self._registry
        name = registry.find(call.name).spec.name if registry.has(call.name) else call.name
        params: Any = read_arguments(call.arguments) if isinstance(call.arguments, str) else call.arguments
        readable = params if is_object(params) else str(call.arguments or "")  # the call then says what is wrong
        return PlanStep(id=call.key, tool_name=name, params=readable)


def _text(message: Mapping[str, Any]) -> str:
    content: Any = message.get("content")
    return content if isinstance(content, str) else ""


def trim_messages(messages: Sequence[Mapping[str, Any]], most_chars: int) -> list[dict[str, Any]]:
    """Return a conversation without its oldest turns, so that it has at most so many characters.

    System messages at its beginning stay. A turn is dropped whole: a provider refuses a tool result without its call.
    """
    whole = [{name: value for name, value in message.items() if name != "metadata"} for message in messages]
    head = next((at for at, message in enumerate(whole) if message["role"] != "system"), len(whole))
    room = most_chars - sum(map(_size, whole[:head]))
    latest: list[list[dict[str, Any]]] = []
    for turn in reversed(_turns(whole[head:])):
        room -= sum(map(_size, turn))
        if room < 0 and latest:
            break
        latest.append(turn)
    turns = [message for turn in reversed(latest) for message in turn]
    return [*whole[:head], *(_shorten(message, most_chars) for message in turns)]


def message_chars(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return how many characters a conversation has."""
    return sum(map(_size, messages))


def _turns(messages: Sequence[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    turns: list[list[dict[str, Any]]] = []
    for message in messages:
        if message["role"] == "tool" and turns:
            turns[-1].append(message)
        else:
            turns.append([message])
    return turns


def _size(message: Mapping[str, Any]) -> int:
    calls: Any = message.get("tool_calls")
    return len(str(message.get("content") or "")) + (len(json.dumps(calls, ensure_ascii=False)) if calls else 0)


def _shorten(message: dict[str, Any], most_chars: int) -> dict[str, Any]:
    content: Any = message.get("content")
    if not isinstance(content, str) or len(content) <= most_chars:
        return message
    return {**message, "content": content[:most_chars] + _CUT}


class PlanStep(Struct, frozen=True, kw_only=True):
    """One tool call of a plan; `params` that a model wrote may be JSON text."""

    id: str
    tool_name: str
    params: dict[str, Any] | str = field(default_factory=dict[str, Any])
    description: str = ""
    action_type: ActionType = "tool_call"

    def __repr__(self) -> str:
        return represent(self, without=("params",))


class ActionResult(Struct, frozen=True, kw_only=True):
    """Result of one step; `text` is what a model reads of it."""

    step_id: str
    tool_name: str
    params: dict[str, Any] | str
    success: bool
    result: Any = None
    error: str | None = None
    error_code: str = ""
    text: str = ""
    duration_ms: float | None = None
    action_type: ActionType = "tool_call"

    def __repr__(self) -> str:
        return represent(self, without=("params", "result", "text"))


class Reflection(Struct, frozen=True, kw_only=True):
    """What follows from a step that failed."""

    verdict: Verdict
    assessment: str
    lessons: list[str] = field(default_factory=list[str])
    next_focus: str | None = None


class TaskContext(Struct, kw_only=True):
    """State of one task: the actions done, the ids of the finished steps, and what was learned on the way.

    `plan` has the steps of the model's last reply, `iteration` counts its replies, `final_result` is the answer.
    """

    task_id: str
    input_text: str = ""
    plan: list[PlanStep] = field(default_factory=list[PlanStep])
    actions_done: list[ActionResult] = field(default_factory=list[ActionResult])
    steps_done: set[str] = field(default_factory=set[str])
    reflections: list[Reflection] = field(default_factory=list[Reflection])
    iteration: int = 0
    final_result: Any = None

    def __repr__(self) -> str:
        return represent(self, without=("input_text", "final_result"))

    def mark_step_done(self, step_id: str) -> None:
        """Add a step to the finished ones."""
        self.steps_done.add(step_id)


class Actor:
    """Run steps through an executor."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def run_step(
        self, step: PlanStep, task: TaskContext, context: ToolContext, *, idempotency_key: str | None = None
    ) -> ActionResult:
        """Run one step and record its result; PauseSignal when a person has to answer first."""
        result = await self._executor.execute(step.tool_name, step.params, context, idempotency_key=idempotency_key)
        return self.record(step, task, context, result)

    def record(
        self, step: PlanStep, task: TaskContext, context: ToolContext, result: ToolResult, *, resumed: bool = False
    ) -> ActionResult:
        """Record the result of a step, then emit its completion event; a failed step stays unfinished.

        `resumed` says that the call ended after a pause.
        """
        action = ActionResult(
            step_id=step.id,
            tool_name=step.tool_name,
            params=step.params,
            success=result.success,
            result=result.result,
            error=result.error,
            error_code=str((result.error_info or {}).get("error_code", "")),
            text=_result_text(result),
            duration_ms=result.duration_ms,
        )
        task.actions_done.append(action)
        if action.success:
            task.mark_step_done(step.id)
        self._executor.emit_completion(step.tool_name, result, context, resumed=resumed)
        return action


def _result_text(result: ToolResult) -> str:
    if result.content_text is not None:
        return result.content_text
    return result.result if isinstance(result.result, str) else json.dumps(result.result, ensure_ascii=False)
