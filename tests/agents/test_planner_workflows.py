"""A model calls a workflow; a pause inside it is a pause of the run."""

import pytest

from toolpost import PlannerFinish, PlannerPause, ReactPlanner, Settings, Tool, tool
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
