"""How many calls run at once, on each level."""

import asyncio

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import ExternalToolConfig, RetryPolicy, map_concurrent, tool


class Gauge:
    """Counts how many are inside at once."""

    def __init__(self) -> None:
        self.now = 0
        self.most = 0

    async def __aenter__(self) -> None:
        self.now += 1
        self.most = max(self.most, self.now)

    async def __aexit__(self, *_: object) -> None:
        self.now -= 1


@pytest.mark.req("GEN-22")
async def test_a_tool_runs_no_more_often_at_once_than_it_allows(make_box: MakeBox) -> None:
    gauge = Gauge()

    @tool(side_effects="read", max_concurrency=2)
    async def work() -> None:
        async with gauge:
            await asyncio.sleep(0.005)

    async with make_box(work) as box:
        outcomes = await asyncio.gather(*(box.call("work") for _ in range(12)))
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert gauge.most == 2


@pytest.mark.req("CONC-03", "CONC-04")
async def test_fifty_calls_reach_a_source_ten_at_a_time(make_box: MakeBox) -> None:
    gauge = Gauge()

    @tool(name="far", side_effects="read")
    async def far() -> None:
        async with gauge:
            await asyncio.sleep(0.005)

    async with make_box() as box:
        config = ExternalToolConfig(name="api", transport="python", connection="x", retry_policy=RetryPolicy())
        box.registry.register(far, config=config)
        await box.call_many([("far", {})] * 50)
    assert gauge.most == config.max_concurrency == 10


async def test_a_planner_never_gets_more_than_its_absolute_limit(make_box: MakeBox) -> None:
    gauge = Gauge()

    @tool(side_effects="read")
    async def work() -> None:
        async with gauge:
            await asyncio.sleep(0.005)

    async with make_box(work) as box:
        await box.call_many([("work", {})] * 120, max_parallel=500)
        assert gauge.most == 50
        gauge.most = 0
        await box.call_many([("work", {})] * 20, max_parallel=4)
    assert gauge.most == 4


@pytest.mark.req("CONC-02")
async def test_map_concurrent_runs_eight_at_a_time_and_keeps_the_order() -> None:
    gauge = Gauge()

    async def double(n: int) -> int:
        async with gauge:
            await asyncio.sleep(0.001)
            return 2 * n

    assert await map_concurrent(range(30), double) == [2 * n for n in range(30)]
    assert gauge.most == 8


async def test_a_caller_who_gives_up_waiting_leaves_the_queue(make_box: MakeBox) -> None:
    begun, go = asyncio.Event(), asyncio.Event()

    @tool(side_effects="read", max_concurrency=1)
    async def work() -> str:
        begun.set()
        await go.wait()
        return "done"

    async with make_box(work) as box:
        first = asyncio.create_task(box.call("work"))
        await begun.wait()
        late = await box.call("work", timeout_s=0.02)
        go.set()
        assert late.error.error_code == "timeout"
        assert (await first).content == "done"
        assert (await box.call("work")).content == "done"
