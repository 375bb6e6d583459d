"""Task of an agent: its state, its waiting steps, and its records."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from toolpost.builtin.argument_aliases import camel
from toolpost.contracts.errors import PendingNotFoundError, StoreError, ToolExecutionError
from toolpost.contracts.events import CallRef, EventCode, RunEvent, new_event
from toolpost.contracts.outcomes import Completed, Failed, Paused

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.agents.conversation import Conversation, PlannerCall
    from toolpost.agents.steps import PlanStep, TaskContext
    from toolpost.contracts.errors import PauseSignal
    from toolpost.contracts.principal import Principal
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.pending import PendingActions
    from toolpost.stores.agent_records.task_logs import TaskLog

_log = logging.getLogger("toolpost.agents")
TaskState = Literal["running", "suspended", "completed", "failed", "cancelled"]


class WaitingStep(NamedTuple):
    """A step that waits for the answer to a pending action, or without one for information."""

    step: PlanStep
    call_id: str
    pending_id: str = ""
    question: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the step as JSON data of the log."""
        return {
            "stepId": self.step.id,
            "toolName": self.step.tool_name,
            "callId": self.call_id,
            "pendingId": self.pending_id,
            "question": self.question,
        }


class Task:
    """A task: its `state`, its `result` once completed, its `error` once failed, its `waiting` steps."""

    def __init__(
        self,
        context: TaskContext,
        conversation: Conversation,
        *,
        description: str,
        log: TaskLog | None,
        cause: str = "",
    ) -> None:
        self.context = context
        self.description = description
        self.cause = cause
        self.state: TaskState = "running"
        self.error: str | None = None
        self.waiting: list[WaitingStep] = []
        self.interrupted: list[PlannerCall] = []  # calls without a result, of a process that was killed
        self.conversation = conversation
        self.log = log
        self.last_event: RunEvent | None = None
        self.work: asyncio.Task[None] | None = None  # none runs while the task is suspended
        self.ended = asyncio.Event()
        self.began = time.monotonic()

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state}>"

    @property
    def id(self) -> str:
        return self.context.task_id

    @property
    def result(self) -> Any:
        return self.context.final_result

    @property
    def is_active(self) -> bool:
        """Whether the task is running or suspended."""
        return self.state in ("running", "suspended")

    @property
    def seconds(self) -> float:
        """Duration of the task, without suspensions."""
        return self.conversation.seconds + (time.monotonic() - self.began if self.state == "running" else 0.0)

    @property
    def needs_info(self) -> bool:
        """Whether the task waits for information, given by `Agent.resume`."""
        return any(not waiting.pending_id for waiting in self.waiting)

    async def wait(self, *, timeout_s: float | None = None) -> TaskState:
        """Wait until the task has ended and return its state; raise TimeoutError after `timeout_s`."""
        async with asyncio.timeout(timeout_s):
            await self.ended.wait()
        return self.state


class TaskRecorder:
    """Emits the events of tasks and writes them to their logs."""

    def __init__(self, user: Principal, redactor: Redactor, emit: Callable[[RunEvent], None]) -> None:
        self._user = user
        self._redactor = redactor
        self._emit = emit

    def record(
        self, task: Task, code: EventCode, facts: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Emit an event caused by the task's last event, and log it with its messages."""
        payload = {"task_id": task.id, **facts}
        if task.last_event is None:
            call = CallRef(task.id, "", "", self._user.tenant, self._user.user, "", self._redactor.plain)
            task.last_event = new_event(call, code, payload, cause=task.cause)
        else:
            task.last_event = task.last_event.derive(code, payload)
        self.log(task, code.name, {camel(name): fact for name, fact in facts.items()}, messages)
        self._emit(task.last_event)

    def record_reply(self, task: Task, plan: list[PlanStep]) -> None:
        """Record the last message of a task, a reply of the model with this plan."""
        message, context = task.conversation.messages[-1], task.context
        context.iteration += 1
        context.plan = plan
        content = message.get("content")
        facts = {"text": content if isinstance(content, str) else "", "steps": [step.tool_name for step in plan]}
        self.record(task, EventCode.REASON_DONE, facts, [message])

    def add(self, task: Task, event: str, data: Mapping[str, Any], messages: Sequence[dict[str, Any]]) -> None:
        """Add messages to the conversation of a task and to its log."""
        task.conversation.messages += messages
        self.log(task, event, data, messages)

    def log(self, task: Task, event: str, data: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write to the log of a task; continue if it cannot be written."""
        if task.log is None:
            return
        try:
            task.log.append(event, data, messages)
        except StoreError as error:
            _log.warning("%s of task %s is not in its log: %s", event, task.id, error)


def pause_prompt(pause: PauseSignal) -> str:
    """Return the questions of a paused call as text."""
    return "; ".join(question.prompt for question in (pause.question, *pause.others.values()))


async def current_outcome(
    pending: PendingActions, pending_id: str, *, by: str, tool_name: str
) -> Completed | Failed | Paused:
    """Return the outcome of a paused call now, or its open question."""
    try:
        return await pending.outcome(pending_id, by=by, wait_s=0.0)
    except PendingNotFoundError:
        return _gone(tool_name)


async def wait_for_outcome(pending: PendingActions, pending_id: str, *, by: str, tool_name: str) -> Completed | Failed:
    """Return the outcome of a paused call, once all its questions are answered in any process."""
    while True:
        try:
            outcome = await pending.outcome(pending_id, by=by, wait_s=math.inf)
        except PendingNotFoundError:
            return _gone(tool_name)
        if not isinstance(outcome, Paused):
            return outcome
        pending_id = outcome.pending_id


def _gone(tool_name: str) -> Failed:
    error = ToolExecutionError("the question about this call no longer exists", tool_name=tool_name, code="interrupted")
    return Failed("", "", tool_name, error)
