"""The adapter for penguiflow, in a separate environment: `make test-frameworks` runs this."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest
from penguiflow.planner import PlannerPause, ReactPlanner

from tests.adapters.frameworks.driver import Call, Driver, Result, Run
from tests.adapters.frameworks.shelf import Shelf
from tests.adapters.frameworks.suite import AdapterTests
from toolpost import Toolbox
from toolpost.adapters.penguiflow import node_specs

UNKNOWN = "failed during parallel execution. Investigate the tool"


class Scripted:
    """A model that makes some calls, and then says that it is done."""

    def __init__(self, calls: Sequence[Call]) -> None:
        steps = [{"node": call.name, "args": call.arguments} for call in calls]
        actions: list[Any] = [{"next_node": "parallel", "args": {"steps": steps}}]
        if len(calls) == 1:
            actions = [{"next_node": calls[0].name, "args": calls[0].arguments}]
        self._actions: Iterator[Any] = iter([*actions, {"next_node": "final_response", "args": {"answer": "done"}}])

    async def complete(self, **_: Any) -> str:
        return json.dumps(next(self._actions))


class States:
    """A store of paused runs, which can be resumed any number of times."""

    def __init__(self) -> None:
        self.saved: dict[str, str] = {}

    async def save_planner_state(self, token: str, payload: Mapping[str, Any]) -> None:
        self.saved[token] = json.dumps(payload)

    async def load_planner_state(self, token: str) -> Any:
        return json.loads(self.saved[token])

    async def save_event(self, event: Any) -> None: ...

    async def save_remote_binding(self, binding: Any) -> None: ...

    async def load_history(self, trace_id: str) -> list[Any]:
        return []


class Penguiflow:
    has_data = False

    async def run(self, box: Toolbox, calls: Sequence[Call], *, user: str | None = None) -> Run:
        made_of = (box, calls, user, States())
        planner = await self._planner(made_of, calls)
        return _read(made_of, await planner.run("go"))

    async def resume(self, run: Run) -> Run:
        made_of, result = run.state
        left = [call for call in made_of[1] if call.id not in run.results]
        planner = await self._planner(made_of, left)
        return _read(made_of, await planner.resume(result.resume_token))

    async def _planner(self, made_of: Any, calls: Sequence[Call]) -> Any:
        box, _, user, states = made_of
        listed = await node_specs(box, user=user)
        return ReactPlanner(llm_client=Scripted(calls), catalog=listed, state_store=states)


def _read(made_of: Any, result: Any) -> Run:
    paused = isinstance(result, PlannerPause)
    states = made_of[3]
    steps = json.loads(states.saved[result.resume_token])["trajectory"]["steps"] if paused else result.metadata["steps"]
    ended = [one for step in steps for one in _ended(step)]
    results: dict[str, Result] = {}
    for call in made_of[1]:
        found = [one for name, arguments, one in ended if (name, arguments) == (call.name, call.arguments)]
        if found:
            results[call.id] = found[-1]
    waiting = [result.payload["pending_id"]] if paused else []
    return Run(results, waiting, None if paused else result.payload["raw_answer"], (made_of, result))


def _ended(step: Mapping[str, Any]) -> Iterator[tuple[str, Any, Result]]:
    """The calls of a step that did not pause; of several that did, a planner reports all but one as failed."""
    action, observation = step["action"], step["observation"] or {}
    made = observation.get("branches") or [{"node": action["next_node"], "args": action["args"], **step}]
    for one in made:
        seen, error = one.get("observation") or {}, one.get("error")
        if error and UNKNOWN not in error:
            yield one["node"], one["args"], Result(str(error), failed=True)
        elif "result" in seen:
            yield one["node"], one["args"], Result(seen["result"], failed=False)


class TestPenguiflow(AdapterTests):
    @pytest.fixture
    def driver(self) -> Driver:
        return Penguiflow()

    async def test_arguments_that_are_a_broken_text_are_a_failure(
        self, driver: Driver, box: Toolbox, shelf: Shelf
    ) -> None:
        run = await driver.run(box, [Call("bad_3", "add", '{"a": 2, ')])

        assert (run.answer, run.results, shelf.added) == ("done", {}, [])  # the planner asks its model again
