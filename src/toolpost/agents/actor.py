"""Run the steps of a plan through a ToolExecutor and record their results."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.runtime.executor import ToolExecutor

ActionType = Literal["tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One tool call of a plan."""

    id: str
    tool_name: str
    params: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    description: str = ""
    action_type: ActionType = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """Result of one step."""

    step_id: str
    tool_name: str
    params: dict[str, Any] = field(repr=False)
    success: bool
    result: Any = field(default=None, repr=False)
    error: str | None = None
    duration_ms: float | None = None
    action_type: ActionType = "tool_call"


@dataclass(slots=True, kw_only=True)
class TaskContext:
    """State of one task: the actions done, and the ids of the finished steps."""

    task_id: str
    actions_done: list[ActionResult] = field(default_factory=list[ActionResult])
    steps_done: set[str] = field(default_factory=set[str])

    def mark_step_done(self, step_id: str) -> None:
        """Add a step to the finished ones."""
        self.steps_done.add(step_id)


class Actor:
    """Run steps through an executor."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def run_step(self, step: PlanStep, task: TaskContext, context: ToolContext) -> ActionResult:
        """Run one step, record its result, then emit its completion event; a failed step stays unfinished."""
        result = await self._executor.execute(step.tool_name, step.params, context)
        action = ActionResult(
            step_id=step.id,
            tool_name=step.tool_name,
            params=step.params,
            success=result.success,
            result=result.result,
            error=result.error,
            duration_ms=result.duration_ms,
        )
        task.actions_done.append(action)
        if action.success:
            task.mark_step_done(step.id)
        self._executor.emit_completion(step.tool_name, result, context)
        return action
