"""The adapter for DSPy, in a separate environment: `make test-frameworks` runs this."""

import asyncio
import copy
import json
from collections.abc import Sequence
from contextvars import ContextVar
from typing import Any

import dspy
import pytest
from dspy.utils import DummyLM

from tests.adapters.frameworks.driver import Call, Result
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import ANN, BOSS, eventually
from tests.adapters.frameworks.waiting_suite import Ended, WaitingAdapterTests, WaitingDriver
from toolpost import Toolbox
from toolpost.adapters.dspy import DSPyTool, tools


class DSPy(WaitingDriver):
    """The framework makes one call at a time: the calls of a run are those of several agents."""

    def __init__(self) -> None:
        super().__init__()
        self._tools: dict[tuple[Toolbox, str | None, float], list[DSPyTool]] = {}

    async def agent(
        self, box: Toolbox, calls: Sequence[Call], ended: Ended, *, user: str | None, wait_s: float
    ) -> None:
        wanted = (box, user, wait_s)
        if wanted not in self._tools:
            self._tools[wanted] = await tools(box, user=user, wait_s=wait_s)
        answers = await asyncio.gather(*[self._answer(self._tools[wanted], call, ended) for call in calls])
        ended.answer = answers[0]

    async def _answer(self, listed: list[DSPyTool], call: Call, ended: Ended) -> str:
        react = dspy.ReAct("question -> answer", tools=listed, max_iters=3)
        with dspy.context(lm=scripted(call)):
            done = await react.acall(question="go")
        observation = str(done.trajectory["observation_0"])
        ended.results[call.id] = Result(observation, observation.startswith("Execution error in"))
        return str(done.answer)


def scripted(call: Call) -> DummyLM:
    """Return a model that makes a call, and then says that it is done."""
    written = call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments)
    return DummyLM(
        [
            {"next_thought": "call", "next_tool_name": call.name, "next_tool_args": written},
            {"next_thought": "end", "next_tool_name": "finish", "next_tool_args": "{}"},
            {"reasoning": "so", "answer": "done"},
        ]
    )


class TestDSPy(WaitingAdapterTests):
    def new_driver(self) -> DSPy:
        return DSPy()

    async def test_a_program_in_a_thread_calls_the_toolbox(self, box: Toolbox, shelf: Shelf) -> None:
        current = ContextVar[str]("current")
        (wipe,) = await tools(box, user=current.get, only=["wipe"])
        current.set(ANN)

        calling = asyncio.create_task(asyncio.to_thread(wipe, disk="sda"))
        await box.approve((await eventually(box, 1))[0], by=BOSS)

        assert await calling == "sda is empty"
        assert shelf.wiped == [("sda", ANN)]

    async def test_tool_calls_of_a_prediction_are_executed(self, box: Toolbox) -> None:
        listed = await tools(box)
        made = dspy.ToolCalls.ToolCall(name="add", args={"a": 2, "b": 3})

        assert await asyncio.to_thread(made.execute, listed) == "5"

    async def test_a_program_in_the_event_loop_of_the_toolbox_is_refused(self, box: Toolbox) -> None:
        (add,) = await tools(box, only=["add"])

        with pytest.raises(RuntimeError, match="must not be blocked"):
            add(a=1, b=2)

    async def test_a_copied_program_has_the_same_tools(self, box: Toolbox) -> None:
        react = dspy.ReAct("question -> answer", tools=await tools(box))

        assert copy.deepcopy(react).tools["add"] is react.tools["add"]

    async def test_models_see_the_whole_schema(self, box: Toolbox) -> None:
        (add,) = await tools(box, only=["add"])
        shown: Any = add.format_as_litellm_function_call()["function"]["parameters"]

        assert (list(shown["properties"]), shown["required"]) == (["a", "b"], ["a", "b"])
        assert "The required arguments are ['a', 'b']." in str(add)
