"""Deadlines and cancellation: they reach the tool, and the caller always gets an answer."""

import asyncio
import threading

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import EventCode, Settings, tool
from toolpost.errors import ToolCancelledError, ToolTimeoutError

ANN = "acme:ann"


@pytest.mark.req("PSEC-04", "PEXE-03", "ERR-16")
async def test_a_tool_that_hangs_is_stopped_at_its_deadline(make_box: MakeBox) -> None:
    stopped: list[str] = []

    @tool(side_effects="pure", timeout_s=0.05)
    async def hang() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            stopped.append("yes")
            raise

    async with make_box(hang) as box:
        outcome = await box.call("hang", user=ANN)
        told = await box.events(user=ANN, run_id=outcome.run_id)
    assert isinstance(outcome.error, ToolTimeoutError)
    assert str(outcome.error) == "Tool execution timed out after 50ms"
    assert stopped == ["yes"]
    assert told[-1].payload["error_code"] == "timeout"


@pytest.mark.req("PSEC-04", "PSEC-06")
async def test_the_call_s_deadline_goes_before_the_tool_s_and_that_before_the_default(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def hang() -> None:
        await asyncio.sleep(60)

    async with make_box(hang, tools={"timeout": "40ms"}) as box:
        by_default = await box.call("hang")
        by_call = await box.call("hang", timeout_s=0.02)
    assert Settings().tools.timeout == 30_000
    assert by_default.error.timeout_ms == 40
    assert by_call.error.timeout_ms == 20


async def test_a_plain_function_that_hangs_does_not_hold_up_the_caller(make_box: MakeBox) -> None:
    released, ended = threading.Event(), threading.Event()

    @tool(side_effects="pure", timeout_s=0.05)
    def hang() -> None:
        released.wait(60)
        ended.set()

    async with make_box(hang) as box:
        outcome = await box.call("hang")
        answered_first = not ended.is_set()
        released.set()
    assert outcome.error.error_code == "timeout"
    assert answered_first


@pytest.mark.waits
async def test_a_tool_that_swallows_the_cancellation_is_reported_again(make_box: MakeBox) -> None:
    @tool(side_effects="pure", timeout_s=0.02)
    async def stubborn() -> None:
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            await asyncio.sleep(60)

    async with make_box(stubborn) as box:
        outcome = await box.call("stubborn")
    assert outcome.error.error_code == "timeout"


async def test_many_calls_share_one_timer_and_each_keeps_its_own_deadline(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def nap(seconds: float) -> float:
        await asyncio.sleep(seconds)
        return seconds

    async with make_box(nap) as box:
        calls = [
            box.call("nap", {"seconds": s}, timeout_s=t) for s, t in [(60, 0.05), (0.01, 60), (60, 0.02), (0.1, 60)]
        ]
        outcomes = await asyncio.gather(*calls)
    assert [outcome.status for outcome in outcomes] == ["failed", "completed", "failed", "completed"]


async def test_a_call_can_be_cancelled_by_its_run_while_others_continue(make_box: MakeBox) -> None:
    started = asyncio.Event()

    @tool(side_effects="write")
    async def work(seconds: float) -> str:
        started.set()
        await asyncio.sleep(seconds)
        return "done"

    async with make_box(work) as box:
        long = asyncio.create_task(box.call("work", {"seconds": 60}, user=ANN, run_id="run_long"))
        await started.wait()
        short = asyncio.create_task(box.call("work", {"seconds": 0.05}, user=ANN))
        assert not await box.cancel("run_long", by="rival:eve")
        assert await box.cancel("run_long", by=ANN)
        outcome = await long
        told = await box.events(user=ANN, run_id="run_long")
        assert (await short).status == "completed"
        assert not await box.cancel("run_long", by=ANN)
    assert isinstance(outcome.error, ToolCancelledError)
    assert "may have taken effect" in str(outcome.error)
    assert [e.code for e in told].count(EventCode.TOOL_CALL_FAILED) == 1


async def test_when_the_caller_itself_is_cancelled_the_end_is_reported_all_the_same(make_box: MakeBox) -> None:
    started = asyncio.Event()

    @tool(side_effects="write")
    async def work() -> None:
        started.set()
        await asyncio.sleep(60)

    async with make_box(work) as box:
        task = asyncio.create_task(box.call("work", user=ANN, run_id="run_x"))
        await started.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        told = await box.events(user=ANN, run_id="run_x")
    assert told[-1].payload["error_code"] == "cancelled"


async def test_a_cancelled_caller_is_not_mistaken_for_a_deadline(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def hang() -> None:
        await asyncio.sleep(60)

    async with make_box(hang) as box:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.05):
                await box.call("hang")
