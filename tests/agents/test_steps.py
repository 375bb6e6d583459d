"""Steps of a plan, done through the executor alone."""

from typing import Any

import pytest

from toolpost import EventBus, EventCode, Settings, Toolbox, ToolContext, tool
from toolpost.agents.steps import Actor, PlanStep, TaskContext


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    return a + b


def heard_with_state(bus: EventBus, task: TaskContext) -> list[tuple[int, int, bool]]:
    """What a subscriber finds in the task at each event: its code, the actions done, whether step 1 is done."""
    heard: list[tuple[int, int, bool]] = []

    def hear(event: Any) -> None:
        heard.append((event.code.value, len(task.actions_done), "1" in task.steps_done))

    bus.subscribe(None, hear)
    return heard


STEP = PlanStep(id="1", tool_name="add", params={"a": 1, "b": 2})


@pytest.mark.req("PEXE-01", "PEXE-06", "MISC-16")
async def test_a_step_of_a_plan_calls_its_tool_and_is_recorded() -> None:
    task = TaskContext(task_id="t")
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        action = await Actor(box.executor(EventBus())).run_step(STEP, task, ToolContext("t"))
    assert (STEP.action_type, action.action_type) == ("tool_call", "tool_call")
    assert (action.success, action.result) == (True, 3)
    assert (task.actions_done, task.steps_done) == ([action], {"1"})


@pytest.mark.req("MISC-15", "MISC-17")
async def test_a_step_is_recorded_before_anyone_hears_of_its_end() -> None:
    bus, task = EventBus(), TaskContext(task_id="t")
    heard = heard_with_state(bus, task)
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        await Actor(box.executor(bus)).run_step(STEP, task, ToolContext("t"))
    assert heard == [(400, 0, False), (405, 0, False), (410, 1, True)]


@pytest.mark.req("PEXE-06")
async def test_a_step_that_fails_is_recorded_and_stays_open() -> None:
    bus, task = EventBus(keep_history=True), TaskContext(task_id="t")
    async with Toolbox(tools=[add], settings=Settings(data_dir=None)) as box:
        step = PlanStep(id="1", tool_name="ad", params={})
        action = await Actor(box.executor(bus)).run_step(step, task, ToolContext("t"))
        (run,) = await box.runs(user="local:agent")
    assert not action.success
    assert action.error == 'Tool "ad" not found. Did you mean "add"?'
    assert task.actions_done == [action]
    assert task.steps_done == set()
    assert bus.history[-1].code is EventCode.TOOL_CALL_FAILED
    assert run.status == "failed"
