"""Tasks of an agent: reasoned, planned, acted and reflected on until there is a result."""

import asyncio
import json
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import pytest

from toolpost import EventBus, EventCode, Settings, Toolbox, ToolContext, tool
from toolpost.agents import Agent, Budget
from toolpost.agents.conversation import CANCELLED
from toolpost.errors import ToolClientError, ToolConflictError
from toolpost.sources import Workflow, WorkflowFunction
from toolpost.stores.agent_records.task_logs import TaskLogs
from toolpost.testing import ScriptedModel, tool_calls

ANN = "acme:ann"


@tool(side_effects="read")
async def add(a: int, b: int) -> int:
    return a + b


@tool(side_effects="read")
async def fetch(url: str) -> str:
    raise ConnectionError("nobody is there")


@tool(side_effects="write", destructive=True)
async def wipe(name: str) -> str:
    return f"wiped {name}"


@asynccontextmanager
async def agent_of(
    *lines: Any, data_dir: Path | None = None, **options: Any
) -> AsyncGenerator[tuple[Agent, ScriptedModel, EventBus]]:
    bus, model = EventBus(keep_history=True), ScriptedModel(*lines)
    async with Toolbox(tools=[add, fetch, wipe], settings=Settings(data_dir=data_dir)) as box:
        agent = Agent(box, model, user=ANN, bus=bus, **options)
        try:
            yield agent, model, bus
        finally:
            await agent.stop()


def codes(bus: EventBus) -> list[str]:
    return [event.code.name for event in bus.history if event.code < EventCode.TOOL_CALL_REQUESTED]


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(10):
        while not condition():
            await asyncio.sleep(0.005)


async def test_a_task_runs_in_the_background_to_its_result() -> None:
    async with agent_of(tool_calls(("add", {"a": 1, "b": 2})), "It is 3.") as (agent, model, bus):
        task = await agent.submit("What is 1 + 2?", description="a sum")
        assert (task.state, task.description) == ("running", "a sum")
        assert await task.wait(timeout_s=10) == "completed"

    assert task.result == "It is 3."
    assert [(action.tool_name, action.result) for action in task.context.actions_done] == [("add", 3)]
    assert model.results == ["3"]
    assert codes(bus) == ["TASK_CREATED", "TASK_STARTED", "REASON_DONE", "REASON_DONE", "TASK_COMPLETED"]


async def test_events_of_a_task_are_a_chain_of_causes() -> None:
    async with agent_of(tool_calls(("add", {"a": 1, "b": 2})), "3") as (agent, _, bus):
        await (await agent.submit("add", cause="call_1")).wait(timeout_s=10)

    by_id = {event.id: event for event in bus.history}
    created = bus.history[0]
    requested = next(event for event in bus.history if event.code is EventCode.TOOL_CALL_REQUESTED)
    assert created.parent_event_id == "call_1"
    assert by_id[requested.parent_event_id].code is EventCode.REASON_DONE
    assert all(event.parent_event_id in by_id for event in bus.history[1:])


@pytest.mark.req("PEXE-11")
@pytest.mark.parametrize("verdict", ["complete", "continue", "replan"])
async def test_after_a_step_that_failed_a_reflection_says_what_follows(verdict: str) -> None:
    said = {"verdict": verdict, "assessment": "no net", "lessons": ["ask first"], "nextFocus": "use add"}
    lines = (tool_calls(("fetch", {"url": "x"})), json.dumps(said), "done otherwise")
    async with agent_of(*lines) as (agent, model, bus):
        task = await agent.submit("fetch x")
        await task.wait(timeout_s=10)

    (reflection,) = task.context.reflections
    assert (reflection.verdict, reflection.lessons, reflection.next_focus) == (verdict, ["ask first"], "use add")
    assert task.result == ("no net" if verdict == "complete" else "done otherwise")
    told = [message["content"] for message in model.requests[-1] if message["role"] == "user"]
    assert any("Change your plan: no net Focus on: use add" in text for text in told) is (verdict == "replan")
    assert "STEPS_REFLECTED" in codes(bus)


@pytest.mark.parametrize("reflection", ["I do not know", '{"verdict": "give up"}', RuntimeError("down")])
async def test_a_reflection_that_says_nothing_lets_the_task_continue(reflection: Any) -> None:
    async with agent_of(tool_calls(("fetch", {"url": "x"})), reflection, "done") as (agent, _, __):
        task = await agent.submit("fetch x")
        assert await task.wait(timeout_s=10) == "completed"

    assert task.context.reflections[0].verdict == "continue"


async def test_a_task_is_suspended_until_a_person_has_answered(tmp_path: Path) -> None:
    async with Toolbox(tools=[wipe], settings=Settings(data_dir=tmp_path)) as box:
        model, bus = ScriptedModel(tool_calls(("wipe", {"name": "x"})), "It is gone."), EventBus(keep_history=True)
        agent = Agent(box, model, user=ANN, bus=bus)
        task = await agent.submit("wipe x")
        await until(lambda: task.state == "suspended")
        with pytest.raises(ToolConflictError, match="waits for a person"):
            await agent.resume(task.id, "go on")
        await box.approve(task.waiting[0].pending_id, by="acme:bob")
        assert await task.wait(timeout_s=10) == "completed"
        events = await box.events(run_id=task.id, user=ANN)
        await agent.stop()

    assert (model.results, task.context.actions_done[0].result) == (["wiped x"], "wiped x")
    assert [name for name in codes(bus) if "SUSPENDED" in name or "RESUMED" in name] == [
        "TASK_SUSPENDED",
        "TASK_RESUMED",
    ]
    assert sum(event.code is EventCode.TOOL_CALL_COMPLETED for event in events) == 1


@pytest.mark.sqlite
async def test_a_damaged_question_does_not_hold_other_tasks(tmp_path: Path) -> None:
    async with Toolbox(tools=[wipe], settings=Settings(data_dir=tmp_path)) as box:
        model = ScriptedModel(*[tool_calls(("wipe", {"name": "x"}))] * 2, "It is gone.")
        agent = Agent(box, model, user=ANN)
        tasks = [await agent.submit(f"wipe {number}") for number in range(2)]
        await until(lambda: all(task.state == "suspended" for task in tasks))
        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
            db.execute("UPDATE pending SET action = x'00' WHERE id = ?", (tasks[0].waiting[0].pending_id,))
        await box.approve(tasks[1].waiting[0].pending_id, by="acme:bob")
        ended = await tasks[1].wait(timeout_s=10)
        await agent.stop()

    assert ended == "completed"


PAIR = """
name: pair
description: Wipe two things.
steps:
  first: {tool: wipe, arguments: {name: a}}
  second: {tool: wipe, arguments: {name: b}}
message: "${{ steps.first }}, ${{ steps.second }}"
"""


async def test_a_task_waits_for_all_answers_of_a_workflow_and_gets_what_came_of_it() -> None:
    flow = WorkflowFunction(Workflow.parse(PAIR))
    async with Toolbox(tools=[wipe, flow], settings=Settings(data_dir=None)) as box:
        model = ScriptedModel(tool_calls(("pair", {})), "They are gone.")
        agent = Agent(box, model, user=ANN)
        task = await agent.submit("wipe two")
        await until(lambda: task.state == "suspended")
        (waiting,) = task.waiting
        for action in await box.pending.list(by=ANN):
            await box.approve(action.id, by=ANN)
        assert await task.wait(timeout_s=10) == "completed"
        await agent.stop()

    assert waiting.question.count("Allow wipe?") == 2
    assert model.results == ["wiped a, wiped b"]


async def test_a_task_that_needs_information_waits_for_it() -> None:
    asked = tool_calls(("need_more_info", {"question": "Which one?"}))
    async with agent_of(asked, "The red one, then.", extras=["task_extras"]) as (agent, model, bus):
        task = await agent.submit("paint it")
        await until(lambda: task.needs_info)
        await agent.resume(task.id, "the red one")
        assert await task.wait(timeout_s=10) == "completed"

    assert model.results == ["the red one"]
    question = next(event for event in bus.history if event.code is EventCode.NEED_MORE_INFO)
    assert question.payload["question"] == "Which one?"


async def test_a_task_reports_how_far_it_is() -> None:
    lines = (tool_calls(("notify", {"text": "half done"})), "done")
    async with agent_of(*lines, extras=["notify"]) as (agent, _, bus):
        await (await agent.submit("work")).wait(timeout_s=10)

    (told,) = [event for event in bus.history if event.code is EventCode.TASK_NOTIFY]
    assert told.payload["text"] == "half done"


async def test_a_task_that_is_cancelled_ends_with_its_calls_and_questions(tmp_path: Path) -> None:
    async with Toolbox(tools=[wipe], settings=Settings(data_dir=tmp_path)) as box:
        agent = Agent(box, ScriptedModel(tool_calls(("wipe", {"name": "x"}))), user=ANN)
        task = await agent.submit("wipe x")
        await until(lambda: task.state == "suspended")
        assert await agent.cancel(task.id)
        waiting = await box.pending.list(by=ANN)
        again = await agent.cancel(task.id)
        await agent.stop()

    assert (task.state, task.error, waiting, again) == ("cancelled", "the task was cancelled", [], False)


async def test_only_so_many_tasks_run_at_once() -> None:
    hold = asyncio.Event()

    class Hanging:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            await hold.wait()
            return {"content": "done"}

    async with Toolbox(settings=Settings(data_dir=None)) as box:
        agent = Agent(box, Hanging(), max_tasks=2)
        tasks = [await agent.submit("one"), await agent.submit("two")]
        with pytest.raises(ToolConflictError, match="2 tasks are active") as refused:
            await agent.submit("three")
        hold.set()
        ended = [await task.wait(timeout_s=10) for task in tasks]
        await (await agent.submit("three")).wait(timeout_s=10)
        await agent.stop()

    assert refused.value.error_code == "too_many_tasks"
    assert ended == ["completed", "completed"]


@pytest.mark.parametrize(
    ("lines", "options", "error"),
    [
        ([RuntimeError("the provider is down")], {}, "the provider is down"),
        ([""], {}, "said nothing"),
        ([tool_calls(("add", {"a": 1, "b": 2}))] * 2, {"budget": Budget(steps=2)}, "used up its budget (steps)"),
        ([tool_calls(("reply", {"text": "hi"})), "{}"] * 3, {}, 'Tool "reply" not found'),
        ([tool_calls(("add", "{not json")), "{}"] * 3, {}, "the arguments are not JSON"),
        ([tool_calls(*[("add", {"a": 1, "b": 2})] * 51)] * 3, {}, "51 concurrent calls are too many"),
    ],
)
async def test_a_task_that_cannot_continue_fails_alone_and_says_why(lines: list[Any], options: Any, error: str) -> None:
    async with agent_of(*lines, "fine", **options) as (agent, _, bus):
        task = await agent.submit("do it")
        await task.wait(timeout_s=10)
        other = await agent.submit("and this")
        await other.wait(timeout_s=10)

    assert task.state == "failed"
    assert error in str(task.error)
    assert (other.state, codes(bus).count("TASK_FAILED")) == ("completed", 1)


async def test_a_task_has_the_tools_that_it_was_given_and_no_others() -> None:
    lines = (tool_calls(("add", {"a": 1, "b": 2})), "{}", "gave up")
    async with agent_of(*lines, tools=["fetch"]) as (agent, model, _):
        task = await agent.submit("add")
        await task.wait(timeout_s=10)

    assert model.tools[0] == ["fetch"]
    assert task.context.actions_done[0].error == 'Tool "add" not found'


async def test_a_task_that_has_ended_continues_with_more_input(tmp_path: Path) -> None:
    async with agent_of("one", data_dir=tmp_path) as (agent, _, __):
        task = await agent.submit("count")
        await task.wait(timeout_s=10)

    async with agent_of("two", data_dir=tmp_path) as (agent, model, _):
        with pytest.raises(ToolClientError, match="not found in index"):
            await agent.resume("task_none", "go on")
        resumed = await agent.resume(task.id, "and now?")
        await resumed.wait(timeout_s=10)

    assert resumed.result == "two"
    assert [message["content"] for message in model.requests[0][1:]] == ["count", "one", "and now?"]


async def test_a_task_of_an_earlier_process_that_is_resumed_twice_at_once_is_one_task(tmp_path: Path) -> None:
    async with agent_of("one", data_dir=tmp_path) as (agent, _, __):
        task = await agent.submit("count")
        await task.wait(timeout_s=10)

    async with agent_of("two", "three", data_dir=tmp_path) as (agent, _, __):
        resumes = (agent.resume(task.id, text) for text in ("and now?", "and then?"))
        first, second = await asyncio.gather(*resumes, return_exceptions=True)
        [resumed] = agent.tasks
        await resumed.wait(timeout_s=10)

    # The other one came while it ran, or once it had ended.
    assert first is resumed or isinstance(first, ToolConflictError)
    assert second is resumed or isinstance(second, ToolConflictError)


async def test_the_tasks_of_others_cannot_be_resumed(tmp_path: Path) -> None:
    async with agent_of("one", data_dir=tmp_path) as (agent, _, __):
        task = await agent.submit("count")
        await task.wait(timeout_s=10)
    async with Toolbox(settings=Settings(data_dir=tmp_path)) as box:
        other = Agent(box, ScriptedModel(), user="acme:bob")
        with pytest.raises(ToolClientError, match="not found"):
            await other.resume(task.id, "go on")


async def test_a_suspended_task_is_continued_by_the_next_process(tmp_path: Path) -> None:
    async with agent_of(tool_calls(("wipe", {"name": "x"})), data_dir=tmp_path) as (agent, _, __):
        task = await agent.submit("wipe x", source="mine")
        await until(lambda: task.state == "suspended")
    async with Toolbox(tools=[wipe], settings=Settings(data_dir=tmp_path)) as box:
        model = ScriptedModel("It is gone.")
        agent = Agent(box, model, user=ANN)
        await agent.adopt("another")
        assert agent.tasks == []
        await agent.adopt("mine")
        (adopted,) = agent.tasks
        await until(lambda: adopted.state == "suspended")
        await box.approve(adopted.waiting[0].pending_id, by=ANN)
        await adopted.wait(timeout_s=10)
        await agent.stop()

    assert (adopted.id, adopted.result, model.results) == (task.id, "It is gone.", ["wiped x"])


@pytest.mark.parametrize("kept", [True, False])
async def test_a_task_that_is_stopped_continues_with_the_next_process_if_it_is_logged(
    tmp_path: Path, *, kept: bool
) -> None:
    asked = asyncio.Event()

    class Slow:
        async def complete(self, messages: Any, *, tools: Any = ()) -> Any:
            asked.set()
            await asyncio.Event().wait()

    async with Toolbox(tools=[add], settings=Settings(data_dir=tmp_path if kept else None)) as box:
        agent = Agent(box, Slow(), user=ANN)
        task = await agent.submit("What is 1 + 2?", source="mine")
        await asyncio.wait_for(asked.wait(), 10)
        await agent.stop()
        following = Agent(box, ScriptedModel("It is 3."), user=ANN)
        await following.adopt("mine")
        for one in following.tasks:
            await one.wait(timeout_s=10)
        results = [one.result for one in following.tasks]
        await following.stop()

    assert (task.state, results) == (("suspended", ["It is 3."]) if kept else ("cancelled", []))


@pytest.mark.parametrize(("restarts", "state"), [(2, "completed"), (3, "failed")])
async def test_a_task_that_was_cut_off_continues_with_its_open_calls_unless_it_ends_every_process(
    restarts: int, state: str, tmp_path: Path
) -> None:
    asked = {"role": "assistant", **tool_calls(("add", {"a": 1, "b": 2}), ("fetch", {"url": "[redacted]"}))}
    log = TaskLogs(tmp_path / "tenants" / "acme" / "tasks").create("task_1", user=ANN)
    log.append("TASK_CREATED", {"inputText": "add", "source": "mine"}, [{"role": "user", "content": "add"}])
    log.append("REASON_DONE", {}, [asked])
    for _ in range(restarts):
        log.append("TASK_RESUMED", {"reason": "restarted"})
    async with agent_of("It is 3.", data_dir=tmp_path) as (agent, model, _):
        await agent.adopt("mine")
        (task,) = agent.tasks or [await agent.resume("task_1", "once more")]
        await task.wait(timeout_s=10)

    assert (agent.tasks[0].id, task.conversation.turns) == ("task_1", 2 if state == "completed" else 1)
    results = [message["content"] for message in model.requests[0] if message["role"] == "tool"]
    assert results[-1] == "3" if state == "completed" else results == [CANCELLED] * 2
    assert log.read().status == "completed"  # type: ignore[union-attr]


async def test_no_secret_reaches_a_prompt_an_event_or_a_log(tmp_path: Path) -> None:
    @tool(side_effects="read")
    async def leak(password: str) -> str:
        return "it is swordfish-4711"

    settings = Settings.model_validate({"data_dir": tmp_path, "tools": {"webSearch": {"apiKey": "swordfish-4711"}}})
    bus = EventBus(keep_history=True)
    async with Toolbox(tools=[leak], settings=settings) as box:
        model = ScriptedModel(tool_calls(("leak", {"password": "tulip-42"})), "done")
        agent = Agent(box, model, bus=bus)
        task = await agent.submit("my key is swordfish-4711")
        await task.wait(timeout_s=10)
        await agent.stop()

    logged = "".join(path.read_text() for path in (tmp_path / "tasks").rglob("*.jsonl"))
    told = json.dumps([event.payload for event in bus.history], default=str)
    assert task.result == "done"
    assert "swordfish" not in json.dumps(model.requests) + logged + told
    assert "tulip-42" not in logged + told


async def test_a_context_of_a_task_says_whose_it_is() -> None:
    seen: list[tuple[str, str | None, str]] = []

    @tool(side_effects="read")
    async def look(ctx: ToolContext) -> None:
        seen.append((ctx.task_id, ctx.user_id, ctx.trace_id))

    async with Toolbox(tools=[look], settings=Settings(data_dir=None)) as box:
        agent = Agent(box, ScriptedModel(tool_calls(("look", {})), "done"), user=ANN)
        task = await agent.submit("look")
        await task.wait(timeout_s=10)
        await agent.stop()

    assert seen == [(task.id, ANN, task.id)]


@pytest.mark.req("SCALE-02")
async def test_suspended_tasks_hold_no_coroutine_of_their_own() -> None:
    async with Toolbox(tools=[wipe], settings=Settings(data_dir=None)) as box:
        before = len(asyncio.all_tasks())
        model = ScriptedModel(*[tool_calls(("wipe", {"name": "x"}))] * 20)
        agent = Agent(box, model, user=ANN, max_tasks=20)
        tasks = [await agent.submit(f"wipe {number}") for number in range(20)]
        await until(lambda: all(task.state == "suspended" for task in tasks))
        await until(lambda: all(task.work is None or task.work.done() for task in tasks))
        # The one that looks for answers and those beneath it; others of the Toolbox run for a moment.
        await until(lambda: len(asyncio.all_tasks()) - before <= 3)
        await agent.stop()
