"""Earlier tests of agents, unchanged, whose agents also have the tools of a table."""

import inspect
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Self

import pytest

from tests.agents import test_agent, test_planner, test_steps
from toolpost import Toolbox
from toolpost.adapters import PythonFunctionTool, extract_tools, tool_table, workflow_tool
from toolpost.sources import Workflow

EARLIER = (
    test_steps.test_a_step_of_a_plan_calls_its_tool_and_is_recorded,
    test_agent.test_a_task_runs_in_the_background_to_its_result,
    test_agent.test_events_of_a_task_are_a_chain_of_causes,
    test_agent.test_a_task_is_suspended_until_a_person_has_answered,
    test_agent.test_a_task_has_the_tools_that_it_was_given_and_no_others,
    test_agent.test_a_suspended_task_is_continued_by_the_next_process,
    test_planner.test_a_request_is_answered_with_tools,
    test_planner.test_calls_of_one_message_run_at_once,
)
TABLE = tool_table(
    [
        PythonFunctionTool("add", "Add.", {"type": "object"}, "tests.agents.test_planner", "add"),
        workflow_tool(Workflow.of({"name": "sum", "steps": {"s": {"tool": "add", "arguments": {"a": 1, "b": 2}}}})),
    ]
)


class TableToolbox(Toolbox):
    """A Toolbox with the tools of a table, of two types, beside those that it is given."""

    async def __aenter__(self) -> Self:
        await super().__aenter__()
        extracted = await extract_tools(TABLE, box=self, servers=["tests.agents.test_planner"], trust_rows=True)
        assert [self.registry.has(one.tool_name) for one in extracted] == [True, True]
        return self


@pytest.mark.req("TEST-05")
@pytest.mark.parametrize("earlier", EARLIER, ids=lambda test: test.__name__.removeprefix("test_"))
async def test_an_earlier_test_of_agents_passes_with_the_tools_of_a_table_beside(
    earlier: Callable[..., Awaitable[None]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules[earlier.__module__], "Toolbox", TableToolbox)
    await (earlier(tmp_path) if "tmp_path" in inspect.signature(earlier).parameters else earlier())
