"""Sessions of older clients: their streams, which a client resumes, cancellation, and requests of the server."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, add, served
from toolpost import ToolContext, tool
from toolpost.gateway.mcp.event_streams import MessageStream, RecentEvents

VERSION = "2025-11-25"
USUAL = {"Content-Type": "application/json", "Accept": "application/json, text/event-stream"}
marks: dict[str, asyncio.Event] = {}  # of the test that runs


@tool(side_effects="pure")
async def wait() -> str:
    """Wait until the test lets it go on."""
    marks["began"].set()
    try:
        await marks["go on"].wait()
    finally:
        marks["ended"].set()
    return "waited"


@tool(side_effects="pure")
async def echo(text: str) -> str:
    """Return a text when the other call has begun."""
    marks[text].set()
    await asyncio.gather(*(marks[one].wait() for one in ("one", "two")))
    return text


@tool(side_effects="pure")
async def book(ctx: ToolContext) -> str:
    """Book a table for as many as a person says."""
    return f"a table for {await ctx.pause('guests', {'prompt': 'How many guests?'})}"


@tool(side_effects="pure")
async def late() -> str:
    """Come late."""
    return "late"


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    marks.update({name: asyncio.Event() for name in ("began", "go on", "ended", "one", "two")})
    async with served(tmp_path / "data", [add, wait, echo, book]) as gate:
        yield gate


async def opened(gate: Served, **capabilities: Any) -> dict[str, str]:
    """Open a session and return the headers of its requests."""
    info = {"name": "by hand", "version": "1"}
    params = {"protocolVersion": VERSION, "capabilities": capabilities, "clientInfo": info}
    answer = await gate.http.post("/mcp", json=request("initialize", 0, **params), headers=USUAL)
    session = {**USUAL, "Mcp-Session-Id": answer.headers["mcp-session-id"], "MCP-Protocol-Version": VERSION}
    await send(gate, session, {"jsonrpc": "2.0", "method": "notifications/initialized"})
    return session


async def send(gate: Served, session: dict[str, str], message: Any) -> httpx2.Response:
    return await gate.http.post("/mcp", json=message, headers=session)


def request(method: str, number: Any = 1, **params: Any) -> dict[str, Any]:
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params}


def call(name: str, number: Any = 1, **arguments: Any) -> dict[str, Any]:
    return request("tools/call", number, name=name, arguments=arguments)


@asynccontextmanager
async def events(gate: Served, method: str, session: dict[str, str], message: Any = None) -> Any:
    """The events of a stream, each with its ID and its message."""
    async with asyncio.timeout(30), gate.http.stream(method, "/mcp", json=message, headers=session) as answer:
        assert answer.headers["content-type"] == "text/event-stream"
        yield read_events(answer.aiter_lines())


async def read_events(lines: AsyncIterator[str]) -> AsyncIterator[tuple[str, Any]]:
    number = ""
    async for line in lines:
        name, _, value = line.partition(": ")
        if name == "id":
            number = value
        elif name == "data":
            yield number, json.loads(value) if value.strip() else None


async def test_a_client_that_lost_its_connection_gets_the_result_of_its_call(gate: Served) -> None:
    session = await opened(gate)
    async with events(gate, "POST", session, call("wait")) as stream:
        number, primed = await anext(stream)
    marks["go on"].set()

    got = list[Any]()
    for _ in range(2):  # the second time, the call has ended
        async with events(gate, "GET", {**session, "Last-Event-ID": number}) as resumed:
            got += [message async for _, message in resumed if message is not None]

    assert primed is None
    assert [message["result"]["content"][0]["text"] for message in got] == ["waited"] * 2


async def test_events_of_another_session_cannot_be_read(gate: Served) -> None:
    session, other = await opened(gate), await opened(gate)
    async with events(gate, "POST", session, call("wait")) as stream:
        number, _ = await anext(stream)
        marks["go on"].set()
    async with events(gate, "GET", {**other, "Last-Event-ID": number}) as resumed:
        assert [message async for _, message in resumed] == []


async def test_a_call_that_its_client_cancels_ends_with_an_error(gate: Served) -> None:
    session = await opened(gate)
    calling = asyncio.ensure_future(send(gate, session, call("wait", "7")))
    async with asyncio.timeout(30):
        await marks["began"].wait()
        cancelled = {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 7}}
        accepted = await send(gate, session, cancelled)
        answer = await calling
        await marks["ended"].wait()

    assert accepted.status_code == 202
    assert '"code":-32800' in answer.text
    assert (await send(gate, session, call("add", a=1, b=2))).status_code == 200


async def test_a_call_whose_session_is_ended_ends_with_an_error(gate: Served) -> None:
    session = await opened(gate)
    calling = asyncio.ensure_future(send(gate, session, call("wait")))
    async with asyncio.timeout(30):
        await marks["began"].wait()
        await gate.http.delete("/mcp", headers=session)
        answer = await calling
        await marks["ended"].wait()

    assert "The session has ended" in answer.text


async def test_concurrent_calls_with_the_same_id_get_their_own_results(gate: Served) -> None:
    session = await opened(gate)
    async with asyncio.timeout(30):
        answers = await asyncio.gather(*(send(gate, session, call("echo", text=text)) for text in ("one", "two")))

    for text, answer in zip(("one", "two"), answers, strict=True):
        assert f'"text":"{text}"' in answer.text


async def test_a_session_has_one_stream_for_news(gate: Served) -> None:
    session = await opened(gate)
    async with events(gate, "GET", session) as news:
        second = await gate.http.get("/mcp", headers=session)
        gate.box.registry.register(late)
        number, message = await anext(news)
    gate.box.registry.unregister("late")
    async with events(gate, "GET", {**session, "Last-Event-ID": number}) as resumed:
        later = [one async for one in first(resumed)]

    assert second.status_code == 409
    assert message["method"] == "notifications/tools/list_changed"
    assert later == ["notifications/tools/list_changed"]


async def first(stream: Any) -> AsyncIterator[str]:
    async for _, message in stream:
        if message is not None:
            yield message["method"]
            return


async def test_a_question_is_sent_on_the_stream_of_its_call_and_answered_by_a_post(gate: Served) -> None:
    session, stranger = await opened(gate, elicitation={}), await gate.key("beta:bot", "call")
    async with events(gate, "POST", session, call("book")) as stream:
        asked = await anext(message async for _, message in stream if message is not None)
        reply = {"jsonrpc": "2.0", "id": asked["id"], "result": {"action": "accept", "content": {"value": "eight"}}}
        foreign = await send(gate, {**session, **stranger}, reply)
        unknown = await send(gate, session, {**reply, "id": 99})
        accepted = await send(gate, session, {**reply, "id": str(asked["id"])})
        result = await anext(message async for _, message in stream if message is not None)

    assert asked["method"] == "elicitation/create"
    assert [foreign.status_code, unknown.status_code, accepted.status_code] == [404, 202, 202]
    assert result["result"]["content"][0]["text"] == "a table for eight"


async def test_a_question_is_withdrawn_when_its_call_is_cancelled(gate: Served) -> None:
    session = await opened(gate, elicitation={})
    async with events(gate, "POST", session, call("book")) as stream:
        messages = (message async for _, message in stream if message is not None)
        asked = await anext(messages)
        await send(gate, session, {"jsonrpc": "2.0", "method": "notifications/cancelled", "params": {"requestId": 1}})
        withdrawn, ended = await anext(messages), await anext(messages)

    assert (withdrawn["method"], withdrawn["params"]["requestId"]) == ("notifications/cancelled", asked["id"])
    assert ended["error"]["code"] == -32800


def test_the_events_that_a_session_keeps_are_limited_by_number_and_size() -> None:
    many, large = RecentEvents(), RecentEvents()
    stream = MessageStream(many)
    for _ in range(101):
        many.store(stream, b"small")
    for _ in range(5):
        large.store(stream, b"x" * 3_000_000)

    assert [many.after(number) is None for number in ("1", "2")] == [True, False]
    assert [large.after(number) is None for number in ("3", "4")] == [True, False]
    large.store(stream, b"x" * 9_000_000)
    assert large.after("5") is None
    assert large.after("6") == (stream, [])
