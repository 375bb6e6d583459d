"""The actor: carries out the steps of a plan, and knows nothing of how a tool is called."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.runtime.executor import ToolExecutor

ActionType = Literal["tool_call"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanStep:
    """One thing that a plan wants done."""

    id: str
    tool_name: str
    params: dict[str, Any] = field(default_factory=dict[str, Any], repr=False)
    description: str = ""
    action_type: ActionType = "tool_call"


@dataclass(frozen=True, slots=True, kw_only=True)
class ActionResult:
    """What came of a step."""

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
    """The state of one task: what was done, and which steps of its plan that finished."""

    task_id: str
    actions_done: list[ActionResult] = field(default_factory=list[ActionResult])
    steps_done: set[str] = field(default_factory=set[str])

    def mark_step_done(self, step_id: str) -> None:
        """A step needs no more work."""
        self.steps_done.add(step_id)


class Actor:
    """Runs steps through an executor; whoever hears of a step's end finds it in the task already."""

    def __init__(self, executor: ToolExecutor) -> None:
        self._executor = executor

    async def run_step(self, step: PlanStep, task: TaskContext, context: ToolContext) -> ActionResult:
        """Do one step, record it, and only then tell that it is done; a failed step stays open."""
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
