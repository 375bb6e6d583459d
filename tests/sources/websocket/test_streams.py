"""Streams: answers that come until a limit, told as they come."""

import asyncio
import json
from typing import Any

import pytest
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import Handler, serving, source, tool, toolbox
from toolpost import Completed, Failed
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolTimeoutError
from toolpost.contracts.events import EventCode
from toolpost.sources.base import Services
from toolpost.sources.websocket.source import WebSocketSource

ENDLESS = 10_000


def ticks(count: int = ENDLESS, *, then: dict[str, Any] | None = None, code: int | None = 1000) -> Handler:
    """A server that counts, with the id it was given, and then says something or closes."""

    async def tick(connection: ServerConnection) -> None:
        asked = json.loads(await connection.recv())
        known = {"id": asked["id"]} if "id" in asked else {}
        for number in range(count):
            await connection.send(json.dumps({**known, "n": number}))
            await asyncio.sleep(0)
        if then is not None:
            await connection.send(json.dumps({**known, **then}))
        if code is None:
            await connection.wait_closed()
        else:
            await connection.close(code, "over")

    return tick


async def streamed(handler: Handler, *, told: list[str] | None = None, mode: str = "per_call", **fields: Any) -> Any:
    tools = {"watch": tool(stream=True, **fields)}
    async with serving(handler) as url, toolbox(source(url, tools, mode=mode)) as box:
        outcome = await box.call("api.watch", {"topic": "ink"})
        if told is not None:
            events = await box.store.events.read(run_id=outcome.run_id)
            told += [event.payload["text"] for event in events if event.code == EventCode.SUBAGENT_ACTION]
        return outcome


@pytest.mark.parametrize("mode", ["per_call", "multiplexed"])
async def test_a_stream_ends_after_so_many_messages_and_each_is_reported(mode: str) -> None:
    told: list[str] = []
    outcome = await streamed(ticks(), told=told, mode=mode, max_messages=3)
    assert outcome.content == [{"n": 0}, {"n": 1}, {"n": 2}]
    assert told == ['{"n":0}', '{"n":1}', '{"n":2}']


async def test_a_stream_ends_after_so_many_seconds() -> None:
    outcome = await streamed(ticks(2, code=None), max_seconds=0.2)
    assert outcome.content == [{"n": 0}, {"n": 1}]


async def test_a_stream_ends_with_a_clean_close() -> None:
    assert (await streamed(ticks(2))).content == [{"n": 0}, {"n": 1}]
    assert (await streamed(ticks(0))).content == []


@pytest.mark.parametrize("mode", ["per_call", "multiplexed"])
async def test_a_stream_ends_with_the_answer_that_says_it_is_the_last(mode: str) -> None:
    outcome = await streamed(
        ticks(1, then={"meta": {"done": True}}, code=None), mode=mode, last_field="meta.done", timeout_s=5
    )
    assert outcome.content == [{"n": 0}, {"meta": {"done": True}}]


@pytest.mark.parametrize(
    ("handler", "code", "said"),
    [
        (ticks(2, then={"error": "out of ink"}), "error_answer", "out of ink"),
        (ticks(2, code=1011), "connection_failed", "code 1011: over"),
    ],
    ids=["error", "close"],
)
async def test_a_stream_that_breaks_is_a_failure_that_says_how_much_came(
    handler: Handler, code: str, said: str
) -> None:
    told: list[str] = []
    outcome = await streamed(handler, told=told)
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == code
    assert said in str(outcome.error)
    assert "2 answers arrived before" in str(outcome.error)
    assert told == ['{"n":0}', '{"n":1}']


async def test_a_stream_without_an_end_is_a_timeout_that_says_how_to_end_it() -> None:
    async with serving(ticks(1, code=None)) as url:
        (watch,) = await WebSocketSource(
            source(url, {"watch": tool(stream=True, timeout_s=0.5)}), Services()
        ).discover()
        with pytest.raises(
            ToolTimeoutError, match=r"did not end within .* 1 answer arrived before\. .*set max_seconds"
        ):
            await watch.execute({}, ToolContext())


@pytest.mark.waits
async def test_a_time_limit_may_be_longer_than_the_usual_deadline() -> None:
    tools = {"watch": tool(stream=True, max_seconds=1.2)}
    async with (
        serving(ticks(1, code=None)) as url,
        toolbox(source(url, tools, timeout_s=1.0)) as box,
    ):
        outcome = await box.call("api.watch", {})
    assert isinstance(outcome, Completed)
    assert outcome.content == [{"n": 0}]


async def test_a_stream_has_its_own_connection_and_drops_what_is_for_others() -> None:
    async def chatty(connection: ServerConnection) -> None:
        await connection.send(json.dumps({"welcome": True}))
        asked = json.loads(await connection.recv())
        await connection.send(json.dumps({"id": 99, "n": "another's"}))
        await connection.send(json.dumps({"id": asked["id"], "n": 1}))
        await connection.close()

    outcome = await streamed(chatty, mode="multiplexed")
    assert outcome.content == [{"n": 1}]


async def test_a_stream_that_does_not_end_tells_of_answers_that_came_without_its_id() -> None:
    async def push(connection: ServerConnection) -> None:
        asked = json.loads(await connection.recv())
        await connection.send(json.dumps({"id": asked["id"], "subscribed": True}))
        for number in range(3):
            await connection.send(json.dumps({"method": "tick", "params": number}))
        await connection.close(1011)

    outcome = await streamed(push, mode="multiplexed")
    assert isinstance(outcome, Failed)
    assert "1 answer arrived before, and 3 without its id (dropped)" in str(outcome.error)


async def test_a_stream_is_limited_in_size_as_a_whole() -> None:
    tools = {"watch": tool(stream=True, max_messages=ENDLESS)}
    async with serving(ticks()) as url, toolbox(source(url, tools, max_message_bytes=1024)) as box:
        outcome = await box.call("api.watch", {})
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "response_too_large"


async def test_bytes_of_a_stream_are_reported_in_base64() -> None:
    async def send(connection: ServerConnection) -> None:
        await connection.recv()
        await connection.send(b"\x00\xff")

    tools = {"watch": tool(stream=True, message="go")}
    async with serving(send) as url, toolbox(source(url, tools, format="bytes")) as box:
        assert (await box.call("api.watch", {})).content == ["AP8="]
