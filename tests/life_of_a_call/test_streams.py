"""Tools that yield: each value is told as it comes, and the last is the result."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Any

import pytest

from tests.life_of_a_call.conftest import MakeBox
from toolpost import Completed, EventCode, Failed, ToolContext, tool
from toolpost.events import RunEvent

ANN = "acme:ann"


async def values_of(box: Any, run_id: str) -> list[dict[str, Any]]:
    told = await box.events(user=ANN, run_id=run_id, limit=5000)
    return [dict(event.payload) for event in told if event.code is EventCode.SUBAGENT_ACTION]


@pytest.mark.req("FUT-07")
async def test_each_value_is_reported_before_the_next_is_made(make_box: MakeBox) -> None:
    heard: asyncio.Queue[Any] = asyncio.Queue()

    class Listener:
        def emit(self, event: RunEvent) -> None:
            if event.code is EventCode.SUBAGENT_ACTION:
                heard.put_nowait(event.payload["value"])

    @tool(side_effects="pure")
    async def tail(lines: int) -> AsyncIterator[dict[str, int]]:
        for number in range(lines):
            yield {"line": number}
            assert await heard.get() == {"line": number}

    async with make_box(tail, sinks=[Listener()]) as box:
        outcome = await box.call("tail", {"lines": 3}, user=ANN)
        told = await values_of(box, outcome.run_id)

    assert isinstance(outcome, Completed)
    assert outcome.content == {"line": 2}
    assert [(one["text"], one["value"]["line"]) for one in told] == [(f'{{"line":{n}}}', n) for n in range(3)]


async def test_a_cancelled_stream_is_closed(make_box: MakeBox) -> None:
    begun, closed = asyncio.Event(), asyncio.Event()

    @tool(side_effects="pure")
    async def tail() -> AsyncIterator[int]:
        try:
            yield 1
            begun.set()
            while True:  # it waits for nothing, and ends all the same
                yield 2
        finally:
            closed.set()

    async with make_box(tail) as box:
        call = asyncio.create_task(box.call("tail", user=ANN, run_id="run"))
        await begun.wait()
        await box.cancel("run", by=ANN)
        outcome = await call

    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "cancelled"
    assert closed.is_set()


async def test_secrets_in_values_are_masked_in_value_and_text(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def log_in() -> AsyncIterator[dict[str, str]]:
        yield {"password": "s3cret-canary", "user": "ann"}

    async with make_box(log_in) as box:
        outcome = await box.call("log_in", user=ANN)
        (told,) = await values_of(box, outcome.run_id)

    assert told["value"]["user"] == "ann"
    assert "s3cret-canary" not in repr(told)


async def test_values_that_come_too_fast_are_counted_and_large_ones_described(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    def flood() -> Iterator[str]:
        yield "x" * 100_000
        for number in range(20_000):
            yield str(number)

    async with make_box(flood) as box:
        outcome = await box.call("flood", user=ANN)
        told = await values_of(box, outcome.run_id)

    assert outcome.content == "19999"
    assert told[0]["text"].endswith("(100000 characters)")
    assert "value" not in told[0]
    assert 1000 <= len(told) < 5000


async def test_a_tool_with_a_context_streams_by_hand_and_a_failure_ends_the_stream(make_box: MakeBox) -> None:
    @tool(side_effects="pure")
    async def steps(ctx: ToolContext) -> str:
        ctx.stream({"done": 1})
        raise OSError("the disk is gone")

    async with make_box(steps) as box:
        outcome = await box.call("steps", user=ANN)
        told = await values_of(box, outcome.run_id)

    assert isinstance(outcome, Failed)
    assert [one["value"] for one in told] == [{"done": 1}]
