"""Run the steps of a plan through a ToolExecutor and record their results."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.runtime.executor import ToolExecutor

ActionType = Literal["tool_call"]
Verdict = Literal["complete", "continue", "replan"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One tool call of a plan; `params` that a model wrote may be JSON text."""

    id: str
    tool_name: str
    params: dict[str, Any] | str = field(default_factory=dict[str, Any], repr=False)
    description: str = ""
    action_type: ActionType = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Result of one step; `text` is what a model reads of it."""

    step_id: str
    tool_name: str
    params: dict[str, Any] | str = field(repr=False)
    success: bool
    result: Any = field(default=None, repr=False)
    error: str | None = None
    error_code: str = ""
    text: str = field(default="", repr=False)
    duration_ms: float | None = None
    action_type: ActionType = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reflection:
    """What follows from a step that failed."""

    verdict: Verdict
    assessment: str
    lessons: list[str] = field(default_factory=list[str])
    next_focus: str | None = None


@dataclass(slots=True, kw_only=True)
class TaskContext:
    """State of one task: the actions done, the ids of the finished steps, and what was learned on the way.

    `plan` has the steps of the model's last reply, `iteration` counts its replies, `final_result` is the answer.
    """

    task_id: str
    input_text: str = field(default="", repr=False)
    plan: list[PlanStep] = field(default_factory=list[PlanStep])
    actions_done: list[ActionResult] = field(default_factory=list[ActionResult])
    steps_done: set[str] = field(default_factory=set[str])
    reflections: list[Reflection] = field(default_factory=list[Reflection])
    iteration: int = 0
    final_result: Any = field(default=None, repr=False)

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
            text=_text(result),
            duration_ms=result.duration_ms,
        )
        task.actions_done.append(action)
        if action.success:
            task.mark_step_done(step.id)
        self._executor.emit_completion(step.tool_name, result, context, resumed=resumed)
        return action


def _text(result: ToolResult) -> str:
    if result.content_text is not None:
        return result.content_text
    return result.result if isinstance(result.result, str) else json.dumps(result.result, ensure_ascii=False)
