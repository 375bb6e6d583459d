"""Reflection after a task: what is written to memory, and that nothing ever waits for it."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from toolpost import EventBus, EventCode, Principal, Settings, Toolbox
from toolpost.agents import ActionResult, Agent, PostTaskReflection, PostTaskReflector, TaskContext
from toolpost.testing import ScriptedModel, tool_calls

ANN = Principal("acme", "ann")
LONG = "It took long, " * 20


def task(**facts: Any) -> TaskContext:
    done = ActionResult(step_id="1", tool_name="add", params={"a": 1}, success=True, text="3")
    members: dict[str, Any] = {"iteration": 2, "actions_done": [done], "final_result": "3", **facts}
    return TaskContext(task_id="task_1", input_text="add for Ann", **members)


@asynccontextmanager
async def opened(tmp_path: Path | None) -> AsyncGenerator[Toolbox]:
    async with Toolbox(settings=Settings(data_dir=tmp_path)) as box:
        yield box


@pytest.mark.req("PREFL-01", "PREFL-02")
async def test_what_a_task_taught_is_written_to_memory(tmp_path: Path) -> None:
    fact = {"path": "facts/ann.md", "content": "# Ann\n> Summary: who Ann is\n- Likes: sums\n"}
    wrong = {"path": "facts/none.md", "old_str": "a", "new_str": "b"}
    model = ScriptedModel(tool_calls(("memory_write", fact), ("memory_patch", wrong)), "It went well.")
    async with opened(tmp_path) as box:
        reflection = await PostTaskReflector(box, model, user=ANN).run(task())

    assert reflection == PostTaskReflection(assessment="It went well.", tool_calls_count=2)
    assert (tmp_path / "tenants" / "acme" / "user_memory" / "ann" / "facts" / "ann.md").read_text() == fact["content"]
    assert model.results[0] == '{"path": "facts/ann.md", "size": 42}'
    assert model.results[1].startswith('{"error": ')


@pytest.mark.req("PREFL-03", "PCOL-03")
async def test_the_model_gets_the_task_the_facts_and_an_index_of_episodes(tmp_path: Path) -> None:
    memory = tmp_path / "tenants" / "acme" / "user_memory" / "ann"
    for name, text in (
        ("facts/ann.md", "> Summary: Ann\n- Likes: tea\n"),
        ("episodes/2026-11.md", "> Summary: a flood\n"),
    ):
        (memory / name).parent.mkdir(parents=True, exist_ok=True)
        (memory / name).write_text(text)
    model = ScriptedModel("Nothing new.")
    async with opened(tmp_path) as box:
        await PostTaskReflector(box, model, user=ANN).run(task())

    prompt = model.requests[0][1]["content"]
    assert all(part in prompt for part in ("add for Ann", "- Likes: tea", "- episodes/2026-11.md: a flood"))
    assert model.tools[0] == ["memory_read", "memory_write", "memory_patch", "memory_append"]


async def test_a_model_that_does_not_end_has_five_rounds(tmp_path: Path) -> None:
    model = ScriptedModel(*[tool_calls(("memory_list", {}))] * 6)
    async with opened(tmp_path) as box:
        reflection = await PostTaskReflector(box, model, user=ANN).run(task())

    assert reflection == PostTaskReflection(assessment="Max reflection rounds reached", tool_calls_count=5)
    assert "not found" in model.results[0]


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"iteration": 1}, False),
        ({"iteration": 1, "actions_done": []}, False),
        ({"iteration": 2}, True),
        ({"iteration": 1, "final_result": LONG}, True),
        ({"iteration": 1, "actions_done": [*task().actions_done] * 2}, True),
    ],
)
async def test_a_small_task_is_not_worth_a_reflection(tmp_path: Path, facts: dict[str, Any], expected: bool) -> None:
    async with opened(tmp_path) as box, opened(None) as without_memory:
        assert PostTaskReflector(box, ScriptedModel(), user=ANN).should_reflect(task(**facts)) is expected
        assert not PostTaskReflector(without_memory, ScriptedModel(), user=ANN).should_reflect(task(**facts))


@pytest.mark.parametrize("fault", [RuntimeError("swordfish-4711 is down"), "hangs"])
async def test_a_reflection_that_fails_changes_nothing_about_the_task(tmp_path: Path, fault: Any) -> None:
    class Hanging:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            await asyncio.Event().wait()

    settings = Settings.model_validate({"data_dir": tmp_path, "tools": {"webSearch": {"apiKey": "swordfish-4711"}}})
    bus, failed = EventBus(keep_history=True), asyncio.Event()
    bus.subscribe(EventCode.REFLECTION_FAILED, lambda _: failed.set())
    async with Toolbox(settings=settings) as box:
        model: Any = Hanging() if fault == "hangs" else ScriptedModel(fault)
        reflector = PostTaskReflector(box, model, user=ANN, timeout_s=0.05)
        agent = Agent(box, ScriptedModel(LONG), user=str(ANN), bus=bus, reflector=reflector)
        submitted = await agent.submit("work")
        assert await submitted.wait(timeout_s=10) == "completed"
        await asyncio.wait_for(failed.wait(), 10)
        await agent.stop()

    last = bus.history[-1]
    assert (submitted.state, submitted.result) == ("completed", LONG)
    assert last.payload["error_code"] in ("tool_raised", "timeout")
    assert "swordfish" not in str(last.payload)


async def test_a_reflection_is_logged_with_its_task(tmp_path: Path) -> None:
    bus, done = EventBus(), asyncio.Event()
    bus.subscribe(EventCode.REFLECTION_COMPLETE, lambda _: done.set())
    async with opened(tmp_path) as box:
        reflector = PostTaskReflector(box, ScriptedModel("All well."), user=ANN)
        agent = Agent(box, ScriptedModel(LONG), user=str(ANN), bus=bus, reflector=reflector)
        await agent.submit("work")
        await asyncio.wait_for(done.wait(), 10)
        await agent.stop()

    (log,) = (tmp_path / "tenants" / "acme" / "tasks").glob("2*/*.jsonl")
    assert '"event":"REFLECTION_COMPLETE"' in log.read_text()
    assert '"assessment":"All well.","toolCallsCount":0' in log.read_text()
