"""What a shared connection brings that no call asked for: dropped, and told only to whom it may concern."""

import asyncio
import json
import logging

import pytest
from websockets.asyncio.server import ServerConnection

from tests.sources.websocket.servers import Held, serving, shared, tool, toolbox
from toolpost import Failed
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolTimeoutError
from toolpost.sources.base import Services
from toolpost.sources.websocket.source import WebSocketSource


@pytest.mark.parametrize(
    "stray",
    [
        "hello",
        "[1, 2]",
        '{"id": true}',
        '{"id": 99}',
        '{"id": null}',
        '{"id": [1]}',
        '{"id": 1.0}',
        '{"id": -1}',
        '{"jsonrpc": "2.0", "id": 1, "method": "ping"}',
    ],
)
async def test_what_is_for_no_call_is_dropped(stray: str, caplog: pytest.LogCaptureFixture) -> None:
    held = Held()
    with caplog.at_level(logging.INFO, "toolpost.sources.websocket"):
        async with serving(held) as url, toolbox(shared(url)) as box:
            call = asyncio.create_task(box.call("api.ask", {}))
            connection, message = await held.next()
            await connection.send(stray)
            await connection.send(json.dumps({"id": message["id"], "mine": True}))
            assert (await call).content == {"mine": True}
    assert "dropped" in caplog.text


async def test_a_call_that_waits_alone_learns_what_came_instead_of_its_answer() -> None:
    async def babble(connection: ServerConnection) -> None:
        async for _ in connection:
            await connection.send("<html>what?</html>")

    async with serving(babble) as url:
        own = WebSocketSource(shared(url, {"ask": tool(timeout_s=0.3)}), Services())
        (ask,) = await own.discover()
        with pytest.raises(ToolTimeoutError, match=r"'api' did not answer in time; .* not JSON: '<html>what"):
            await ask.execute({}, ToolContext())
        await own.close()


@pytest.mark.waits
async def test_how_a_stray_message_begins_is_neither_reported_to_one_of_many_nor_written_to_a_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    held = Held()
    with caplog.at_level(logging.INFO, "toolpost.sources.websocket"):
        async with serving(held) as url, toolbox(shared(url)) as box:
            patient = asyncio.create_task(box.call("api.ask", {}))
            connection, message = await held.next()
            late = asyncio.create_task(box.call("api.ask", {}, timeout_s=1.5))
            await held.next()
            await connection.send("the diary of Ada")
            outcome = await late
            await connection.send(json.dumps({"id": message["id"], "mine": True}))
            assert (await patient).content == {"mine": True}
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "timeout"
    assert "a message that is not JSON" in caplog.text
    assert "diary" not in caplog.text + str(outcome.error)


async def test_a_call_is_not_told_of_what_came_before_it_began() -> None:
    held = Held()
    async with serving(held) as url:
        own = WebSocketSource(shared(url, {"ask": tool(timeout_s=0.3), "wait": tool()}), Services())
        ask, wait = await own.discover()
        first = asyncio.create_task(wait.execute({}, ToolContext()))
        connection, message = await held.next()
        await connection.send("rubbish")
        await connection.send(json.dumps({"id": message["id"]}))
        await first
        with pytest.raises(ToolTimeoutError, match=r"'api' did not answer in time$"):
            await ask.execute({}, ToolContext())
        await own.close()
