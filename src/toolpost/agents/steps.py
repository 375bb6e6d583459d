"""Steps of a task: tool calls, their results, and the state of the task."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Literal

from msgspec import Struct, field

from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import ToolResult
    from toolpost.runtime.executor import ToolExecutor

ActionType = Literal["tool_call"]
NextMove = Literal["complete", "continue", "replan"]


class PlanStep(Struct, frozen=True, kw_only=True):
    """One tool call of a plan; `params` from a model may be a JSON string."""

    id: str
    tool_name: str
    params: dict[str, Any] | str = field(default_factory=dict[str, Any])
    description: str = ""
    action_type: ActionType = "tool_call"

    def __repr__(self) -> str:
        return represent(self, without=("params",))


class ActionResult(Struct, frozen=True, kw_only=True):
    """Result of one step; `text` is the result for a model."""

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
    """The next move after a failed step."""

    verdict: NextMove
    assessment: str
    lessons: list[str] = field(default_factory=list[str])
    next_focus: str | None = None


class TaskContext(Struct, kw_only=True):
    """State of one task: its actions, the IDs of finished steps, and reflections.

    `plan` contains the steps of the model's last reply, `iteration` counts its replies, `final_result` is the answer.
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
        self.steps_done.add(step_id)


class Actor:
    """Runs steps through an executor."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def run_step(
        self, step: PlanStep, task: TaskContext, context: ToolContext, *, idempotency_key: str | None = None
    ) -> ActionResult:
        """Run one step and record its result; raise PauseSignal if a person has to answer first."""
        result = await self._executor.execute(step.tool_name, step.params, context, idempotency_key=idempotency_key)
        return self.record(step, task, context, result)

    def record(
        self, step: PlanStep, task: TaskContext, context: ToolContext, result: ToolResult, *, resumed: bool = False
    ) -> ActionResult:
        """Record the result of a step, then emit its completion event; a failed step stays unfinished.

        `resumed` means that the call ended after a pause.
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
