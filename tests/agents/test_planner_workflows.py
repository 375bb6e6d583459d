"""A model calls a workflow; a pause inside it is a pause of the run."""

import pytest

from toolpost import PlannerFinish, PlannerPause, ReactPlanner, Settings, Tool, ToolContext, tool
from toolpost.sources import Workflow, WorkflowFunction
from toolpost.testing import ScriptedModel, tool_calls

FLOW = """
name: clean
description: Delete something and tell of it.
inputs: {properties: {name: {type: string}}, required: [name]}
steps:
  delete: {tool: delete, arguments: {name: "${{ inputs.name }}"}}
message: "${{ steps.delete }}, and that is that."
"""


@pytest.mark.parametrize("answer", ["approve", "deny"])
async def test_a_pause_inside_a_workflow_is_answered_as_that_of_its_call(answer: str) -> None:
    gone: list[str] = []

    @tool(side_effects="write", destructive=True)
    async def delete(name: str) -> str:
        """Delete something."""
        gone.append(name)
        return f"{name} is gone"

    model = ScriptedModel(tool_calls(("clean", {"name": "old"})), "Done.")
    catalog: list[Tool] = [WorkflowFunction(Workflow.parse(FLOW)), delete]
    async with ReactPlanner(catalog=catalog, llm=model, settings=Settings(data_dir=None)) as planner:
        paused = await planner.run("Clean up.")
        assert isinstance(paused, PlannerPause)
        assert (paused.kind, dict(paused.arguments)) == ("approval", {"name": "old"})
        finish = await planner.resume(paused.resume_token, answer)

    assert isinstance(finish, PlannerFinish)
    told = str(model.requests[-1][-1]["content"])
    if answer == "approve":
        assert (gone, told) == (["old"], "old is gone, and that is that.")
    else:
        assert gone == []
        assert "step 'delete'" in told


PAIR = """
name: pair
description: Delete two things.
steps:
  first: {tool: delete, arguments: {name: a}}
  second: {tool: delete, arguments: {name: b}}
message: "${{ steps.first }}, ${{ steps.second }}"
"""


def pair_planner(gone: list[str]) -> tuple[ScriptedModel, ReactPlanner]:
    @tool(side_effects="write", destructive=True)
    async def delete(name: str) -> str:
        """Delete something."""
        gone.append(name)
        return f"{name} is gone"

    model = ScriptedModel(tool_calls(("pair", {})), "Done.")
    catalog: list[Tool] = [WorkflowFunction(Workflow.parse(PAIR)), delete]
    return model, ReactPlanner(catalog=catalog, llm=model, settings=Settings(data_dir=None))


async def test_a_workflow_that_waits_for_several_answers_is_asked_about_with_all_of_them() -> None:
    gone: list[str] = []
    model, planner = pair_planner(gone)
    async with planner:
        paused = await planner.run("Clean up.")
        assert isinstance(paused, PlannerPause)
        first, second = paused.questions
        rest = await planner.resume(paused.resume_token, answers={second.pending_id: "approve"})
        assert isinstance(rest, PlannerPause)
        finish = await planner.resume(rest.resume_token, "approve")

    assert [(one.tool_name, dict(one.arguments)) for one in (first, second)] == [
        ("delete", {"name": "a"}),
        ("delete", {"name": "b"}),
    ]
    assert [one.pending_id for one in rest.questions] == [first.pending_id]
    assert isinstance(finish, PlannerFinish)
    assert gone == ["b", "a"]
    assert model.requests[-1][-1]["content"] == "a is gone, b is gone"


async def test_all_questions_of_a_workflow_can_be_answered_at_once() -> None:
    gone: list[str] = []
    model, planner = pair_planner(gone)
    async with planner:
        paused = await planner.run("Clean up.")
        assert isinstance(paused, PlannerPause)
        finish = await planner.resume(
            paused.resume_token, answers={one.pending_id: "approve" for one in paused.questions}
        )

    assert isinstance(finish, PlannerFinish)
    assert sorted(gone) == ["a", "b"]
    assert model.requests[-1][-1]["content"] == "a is gone, b is gone"


async def test_a_call_inside_a_workflow_that_asks_twice_is_asked_about_twice() -> None:
    @tool(side_effects="write", destructive=True)
    async def delete(name: str, ctx: ToolContext) -> str:
        """Delete something."""
        return f"{name} is gone, by {await ctx.pause('code', prompt='What is the code?')}"

    model = ScriptedModel(tool_calls(("clean", {"name": "old"})), "Done.")
    catalog: list[Tool] = [WorkflowFunction(Workflow.parse(FLOW)), delete]
    async with ReactPlanner(catalog=catalog, llm=model, settings=Settings(data_dir=None)) as planner:
        leave = await planner.run("Clean up.")
        assert isinstance(leave, PlannerPause)
        code = await planner.resume(leave.resume_token, "approve")
        assert isinstance(code, PlannerPause)
        finish = await planner.resume(code.resume_token, "42")

    assert [(one.kind, one.prompt) for one in code.questions] == [("input", "What is the code?")]
    assert isinstance(finish, PlannerFinish)
    assert model.requests[-1][-1]["content"] == "old is gone, by 42, and that is that."


async def test_a_no_to_one_question_of_a_workflow_ends_its_pause() -> None:
    gone: list[str] = []
    model, planner = pair_planner(gone)
    async with planner:
        paused = await planner.run("Clean up.")
        assert isinstance(paused, PlannerPause)
        finish = await planner.resume(paused.resume_token, answers={paused.questions[1].pending_id: "deny"})

    assert isinstance(finish, PlannerFinish)
    assert "step 'second'" in str(model.requests[-1][-1]["content"])
    assert gone == []
