"""A task of an agent: its state, what it waits for, and the records of what happens to it."""

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

    from toolpost.agents.conversation import Conversation
    from toolpost.agents.turns import PlanStep, TaskContext, Turn
    from toolpost.contracts.errors import PauseSignal
    from toolpost.contracts.principal import Principal
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.pending import PendingActions
    from toolpost.stores.agent_files import TaskLog

_log = logging.getLogger("toolpost.agents")
TaskState = Literal["running", "suspended", "completed", "failed", "cancelled"]


class WaitingStep(NamedTuple):
    """A step that waits: for the answer to a pending action, or without one for information."""

    step: PlanStep
    call_id: str
    pending_id: str = ""
    question: str = ""

    def to_dict(self) -> dict[str, Any]:
        """Return the step as the log keeps it."""
        return {
            "stepId": self.step.id,
            "toolName": self.step.tool_name,
            "callId": self.call_id,
            "pendingId": self.pending_id,
            "question": self.question,
        }


class Task:
    """A task: its `state`, its `result` once it completed, its `error` once it failed, what it is `waiting` for."""

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
        self.interrupted: Turn | None = None  # the turn that a process was killed in, with the steps that have no end
        self.conversation = conversation
        self.log = log
        self.inputs: asyncio.Queue[str] = asyncio.Queue()
        self.last_event: RunEvent | None = None
        self.work: asyncio.Task[None] | None = None
        self.began = time.monotonic()

    def __repr__(self) -> str:
        return f"<task {self.id} {self.state}>"

    @property
    def id(self) -> str:
        """The id of the task."""
        return self.context.task_id

    @property
    def result(self) -> Any:
        """The answer of a task that completed."""
        return self.context.final_result

    @property
    def is_active(self) -> bool:
        """Whether the task runs or is suspended."""
        return self.state in ("running", "suspended")

    @property
    def seconds(self) -> float:
        """Seconds that the task has taken, without those in which it was suspended."""
        return self.conversation.seconds + (time.monotonic() - self.began if self.state == "running" else 0.0)

    @property
    def needs_info(self) -> bool:
        """Whether the task waits for information, which `Agent.resume` gives it."""
        return any(not waiting.pending_id for waiting in self.waiting)

    async def wait(self, *, timeout_s: float | None = None) -> TaskState:
        """Wait until the task has ended and return its state; TimeoutError when that takes longer."""
        async with asyncio.timeout(timeout_s):
            while self.work is not None and not self.work.done():
                await asyncio.wait([self.work])
        return self.state


class TaskRecorder:
    """Emits what happens to tasks, and writes it to their logs."""

    def __init__(self, user: Principal, redactor: Redactor, emit: Callable[[RunEvent], None]) -> None:
        self._user = user
        self._redactor = redactor
        self._emit = emit

    def record(
        self, task: Task, code: EventCode, facts: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        """Emit an event that the last event of the task caused, and log it with the messages that came with it."""
        payload = {"task_id": task.id, **facts}
        if task.last_event is None:
            call = CallRef(task.id, "", "", self._user.tenant, self._user.user, "", self._redactor.plain)
            task.last_event = new_event(call, code, payload, cause=task.cause)
        else:
            task.last_event = task.last_event.derive(code, payload)
        self.log(task, code.name, {camel(name): fact for name, fact in facts.items()}, messages)
        self._emit(task.last_event)

    def log(self, task: Task, event: str, data: Mapping[str, Any], messages: Sequence[Mapping[str, Any]] = ()) -> None:
        """Write to the log of a task, and go on where it cannot be written."""
        if task.log is None:
            return
        try:
            task.log.append(event, data, messages)
        except StoreError as error:
            _log.warning("%s of task %s is not in its log: %s", event, task.id, error)


def pause_prompt(pause: PauseSignal) -> str:
    """Return what people are asked about a call that paused."""
    return "; ".join(question.prompt for question in (pause.question, *pause.others.values()))


async def wait_for_outcome(pending: PendingActions, pending_id: str, *, by: str, tool_name: str) -> Completed | Failed:
    """Return the outcome of a call that paused, once people have answered all its questions in whatever process."""
    while True:
        try:
            outcome = await pending.outcome(pending_id, by=by, wait_s=math.inf)
        except PendingNotFoundError:
            error = ToolExecutionError("the question about this call is gone", tool_name=tool_name, code="interrupted")
            return Failed("", "", tool_name, error)
        if not isinstance(outcome, Paused):
            return outcome
        pending_id = outcome.pending_id
