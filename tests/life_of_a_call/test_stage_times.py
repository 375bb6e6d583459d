"""Where the time of a call went, in its events: checks, sign-in, queue and attempts."""

import asyncio
from typing import Any

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Toolbox, tool
from toolpost.errors import ToolServerError

BUSY = ToolServerError("busy", status_code=503)


async def payloads(box: Toolbox, run_id: str | None) -> dict[str, Any]:
    return {event.code.name: dict(event.payload) for event in await box.events(run_id=run_id)}


async def test_a_call_that_runs_at_once_only_reports_how_long_its_checks_took(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def add(a: int, b: int) -> int:
        return a + b

    async with make_box(add) as box:
        outcome = await box.call("add", {"a": 1, "b": 1})
        told = await payloads(box, outcome.run_id)

    started, ended = told["TOOL_CALL_STARTED"], told["TOOL_CALL_COMPLETED"]
    assert 0 < started["checks_ms"] < ended["duration_ms"]
    assert started.keys() & {"auth_ms"} == ended.keys() & {"queue_ms", "tries"} == set()


async def test_each_attempt_of_a_call_is_reported_with_its_error(make_box: MakeBox) -> None:
    ends = iter([BUSY, BUSY, None])

    @tool(side_effects="read")
    async def flaky() -> str:
        await asyncio.sleep(0.002)
        if (error := next(ends)) is not None:
            raise error
        return "done"

    async with make_box(flaky) as box:
        outcome = await box.call("flaky")
        ended = (await payloads(box, outcome.run_id))["TOOL_CALL_COMPLETED"]
        events = await box.events(run_id=outcome.run_id)

    tries = ended["tries"]
    assert [one["error_code"] for one in tries] == ["server_error", "server_error", None]
    assert all(one["took_ms"] >= 2 for one in tries)
    begins = [one["began"] for one in tries]
    assert begins == sorted(begins)
    assert events[0].at <= begins[0] + 0.05
    assert begins[-1] <= events[-1].at + 0.05


async def test_a_deadline_in_the_second_attempt_ends_that_attempt(make_box: MakeBox) -> None:
    tries: list[int] = []

    @tool(side_effects="read", timeout_s=1.0)
    async def slow() -> None:
        tries.append(1)
        if len(tries) == 1:
            raise BUSY
        await asyncio.sleep(60)

    async with make_box(slow) as box:
        outcome = await box.call("slow")
        failed = (await payloads(box, outcome.run_id))["TOOL_CALL_FAILED"]

    assert [one["error_code"] for one in failed["tries"]] == ["server_error", failed["error_code"]]


async def test_a_call_reports_how_long_it_waited_for_a_slot_even_if_it_never_got_one(make_box: MakeBox) -> None:
    inside, go_on = asyncio.Event(), asyncio.Event()

    @tool(side_effects="read", max_concurrency=1)
    async def work() -> None:
        inside.set()
        await go_on.wait()

    async with make_box(work) as box:
        first = asyncio.create_task(box.call("work"))
        await inside.wait()
        late = await box.call("work", timeout_s=0.05)
        second = asyncio.create_task(box.call("work"))
        await asyncio.sleep(0.02)
        go_on.set()
        await first
        failed = (await payloads(box, late.run_id))["TOOL_CALL_FAILED"]
        completed = (await payloads(box, (await second).run_id))["TOOL_CALL_COMPLETED"]

    assert failed["queue_ms"] >= 20  # of the 50 that it may take, most is spent waiting
    assert completed["queue_ms"] >= 15
