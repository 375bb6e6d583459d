"""The executor: hosts that tell of completion themselves."""

import asyncio
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import EventBus, EventCode, ToolContext, ToolExecutor, ToolRegistry, tool
from toolpost.errors import PauseSignal


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    return a + b


@tool(side_effects="write", destructive=True)
async def wipe() -> None:
    """Wipe everything."""


@pytest.mark.req("PEXE-07", "PEXE-08", "MISC-14")
async def test_an_executor_tells_its_bus_of_a_call_and_not_of_its_end(make_box: MakeBox) -> None:
    bus = EventBus(keep_history=True)
    async with make_box(add) as box:
        await box.executor(bus).execute("add", {"a": 1, "b": 2}, ToolContext("task-1", user_id="acme:ann"))
    assert [event.code.value for event in bus.history] == [400, 405]
    requested = bus.history[0].payload
    assert (requested["tool_name"], requested["params"]) == ("add", {"a": 1, "b": 2})


@pytest.mark.req("PEXE-05", "PEXE-09", "MISC-17")
async def test_completion_is_reported_by_the_host_after_its_own_state(make_box: MakeBox) -> None:
    bus = EventBus(keep_history=True)
    async with make_box(add) as box:
        executor = box.executor(bus)
        context = ToolContext("task-1", user_id="acme:ann")
        result = await executor.execute("add", {"a": 1, "b": 2}, context)
        before = [event.code.value for event in bus.history]
        executor.emit_completion("add", result, context)
    assert before == [400, 405]
    last = bus.history[-1]
    assert (result.success, result.result) == (True, 3)
    assert last.code is EventCode.TOOL_CALL_COMPLETED
    assert (last.payload["tool_name"], last.payload["result"]) == ("add", 3)
    assert last.payload["duration_ms"] == result.duration_ms


@pytest.mark.req("PEXE-10", "PTYPE-03", "PEXE-02")
async def test_a_failure_is_a_result_never_an_exception(make_box: MakeBox) -> None:
    bus = EventBus(keep_history=True)
    async with make_box(add) as box:
        executor = box.executor(bus)
        context = ToolContext("task-1")
        result = await executor.execute("add", {"a": "x"}, context)
        unknown = await executor.execute("nope", {}, context)
        executor.emit_completion("add", result, context)
    assert not result.success
    assert result.error is not None
    assert result.error.startswith("Parameter validation failed")
    assert result.error_info is not None
    assert result.error_info["error_code"] == "validation_failed"
    assert result.completed_at is not None
    assert result.completed_at >= result.started_at > 1e12
    assert unknown.error == 'Tool "nope" not found'
    assert bus.history[-1].payload["error"] == result.error


@pytest.mark.req("CONC-05", "PSEC-05")
@pytest.mark.parametrize(
    ("settings", "limit"), [({}, 3), ({"tools": {"maxConcurrent": 2}}, 2), ({"agent": {"maxConcurrentTools": 4}}, 4)]
)
async def test_at_most_so_many_tools_run_at_a_time(make_box: MakeBox, settings: dict[str, Any], limit: int) -> None:
    now, most = 0, 0

    @tool(side_effects="read")
    async def work() -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.005)
        now -= 1

    bus = EventBus()
    async with make_box(work, **settings) as box:
        executor = box.executor(bus)
        await asyncio.gather(*(executor.execute("work", {}, ToolContext("t")) for _ in range(10)))
    assert most == limit


async def test_a_pause_is_raised_with_the_address_of_its_question(make_box: MakeBox) -> None:
    bus = EventBus()
    async with make_box(wipe) as box:
        executor = box.executor(bus)
        with pytest.raises(PauseSignal) as pause:
            await executor.execute("wipe", {}, ToolContext("t", user_id="acme:ann"))
        (action,) = await box.pending.list(by="acme:ann")
    assert pause.value.pending_id == action.id


async def test_a_subscriber_hears_what_it_asked_for_and_cannot_disturb_a_call(make_box: MakeBox) -> None:
    bus, heard = EventBus(), list[int]()

    def deaf(_event: object) -> None:
        raise RuntimeError("not listening")

    bus.subscribe(EventCode.TOOL_CALL_COMPLETED, lambda event: heard.append(event.code.value))
    stop = bus.subscribe(None, deaf)
    async with make_box(add, sinks=[bus]) as box:
        assert (await box.call("add", {"a": 1, "b": 1})).status == "completed"
        stop()
        await box.call("add", {"a": 1, "b": 1})
    assert heard == [410, 410]


async def test_a_call_inside_a_call_ends_by_itself(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def outer(ctx: ToolContext) -> str:
        return (await ctx.call("add", {"a": 1, "b": 2})).status

    bus = EventBus(keep_history=True)
    async with make_box(add, outer) as box:
        await box.executor(bus).execute("outer", {}, ToolContext("t"))

    ended = [event.call.tool_name for event in bus.history if event.code is EventCode.TOOL_CALL_COMPLETED]
    assert ended == ["add"]


@pytest.mark.req("PEXE-03", "PEXE-04", "PSEC-04")
async def test_an_executor_over_a_bare_registry_validates_counts_and_times_out() -> None:
    @tool(side_effects="read")
    async def hang() -> None:
        await asyncio.Event().wait()

    registry, bus = ToolRegistry(), EventBus(keep_history=True)
    registry.register_many([add, hang, wipe])
    executor, context = ToolExecutor(registry, bus, timeout_s=0.05), ToolContext("task-1")

    done = await executor.execute("add", {"a": 1, "b": 2}, context)
    wrong = await executor.execute("add", {"a": "x"}, context)
    late = await executor.execute("hang", {}, context)
    wiped = await executor.execute("wipe", {}, context)
    executor.emit_completion("add", done, context)

    assert (done.result, wiped.success) == (3, True)
    assert str(wrong.error).startswith("Parameter validation failed")
    assert late.error == "Tool execution timed out after 50ms"
    assert bus.history[-1].payload["result"] == 3
    counted = registry.get_stats().call_stats
    assert {name: (one.count, one.failures) for name, one in counted.items()} == {
        "add": (2, 1),
        "hang": (1, 1),
        "wipe": (1, 0),
    }


async def test_a_call_of_an_executor_knows_what_it_was_made_for(make_box: MakeBox) -> None:
    bus = EventBus(keep_history=True)
    async with make_box(add) as box:
        executor, context = box.executor(bus), ToolContext("t", correlation_id="event_1")
        executor.emit_completion("add", await executor.execute("add", {"a": 1, "b": 2}, context), context)

    requested, started, completed = bus.history
    assert requested.parent_event_id == "event_1"
    assert {started.parent_event_id, completed.parent_event_id} == {requested.id}
