"""Events over HTTP: from any event on, without gaps and without doubles, to many listeners at once."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client

from tests.gateway.serving import Served, add, served
from toolpost import ToolContext, tool
from toolpost.gateway.caller_keys import revoke_caller_key
from toolpost.gateway.rest import event_stream


@tool(side_effects="pure")
async def count_to(n: int, ctx: ToolContext) -> int:
    """Count."""
    for number in range(n):
        ctx.progress(f"{number}")
    return n


@asynccontextmanager
async def listening(gate: Served, headers: dict[str, str] | None = None, **params: Any) -> AsyncIterator[Any]:
    """Listen; gives the events, once the gateway has said that it listens."""
    async with gate.http.stream("GET", "/api/v1/events", params=params, headers=headers or {}) as reply:
        lines = reply.aiter_lines()
        assert await anext(lines) == ": listening"
        yield read_events(lines)


async def read_events(lines: Any) -> AsyncIterator[dict[str, Any]]:
    block: dict[str, str] = {}
    async for line in lines:
        if line:
            name, _, value = line.partition(": ")
            block[name] = value
        elif "data" in block:
            data = json.loads(block["data"])
            assert (int(block["id"]), block["event"]) == (data["id"], data["type"])
            yield data
            block = {}


async def take(events: Any, count: int) -> list[Any]:
    async with asyncio.timeout(60):
        return [await anext(events) for _ in range(count)]


async def test_a_caller_has_so_many_streams_and_requests_at_a_time_and_others_are_not_refused(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [count_to], server={"concurrent_requests": 2}) as gate:
        bot, other = await gate.key("acme:bot", "call"), await gate.key("acme:other", "call")

        async def status(headers: dict[str, str], path: str = "/api/v1/events") -> int:
            async with gate.http.stream("GET", path, headers=headers) as reply:
                return reply.status_code

        async with listening(gate, bot):
            async with listening(gate, bot):
                refused = await gate.http.get("/api/v1/events", headers=bot)
                elsewhere = [await status(bot, path) for path in ("/api/v1/tools", "/mcp", "/healthz")]
                others = [await status(other), await status({})]
            async with asyncio.timeout(60):
                while await status(bot) != 200:  # until the gateway has noticed that the client is gone
                    pass

    assert (refused.status_code, refused.json()["code"]) == (429, "too_many_requests")
    assert int(refused.headers["retry-after"]) >= 1
    assert (elsewhere, others) == ([429, 429, 200], [200, 200])


async def test_a_stream_is_not_begun_for_a_client_that_asks_for_its_head(gate: Served) -> None:
    async with asyncio.timeout(60), httpx2.AsyncClient(limits=httpx2.Limits(max_connections=1)) as http:
        head = await http.head(f"{gate.url}/api/v1/events", headers=dict(gate.http.headers))
        after = await http.get(f"{gate.url}/healthz")

    assert (head.status_code, head.headers["content-type"].partition(";")[0]) == (200, "text/event-stream")
    assert (after.status_code, gate.feed.listeners) == (200, 0)


async def test_a_listener_hears_of_calls_as_they_happen_and_continues_where_it_was(gate: Served) -> None:
    await gate.box.call("add", {"a": 0, "b": 0}, user="acme:olga")  # before anybody listens
    async with listening(gate) as events:
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
        first = await take(events, 2)
    await gate.box.call("add", {"a": 2, "b": 2}, user="acme:olga")
    async with listening(gate, {"Last-Event-ID": str(first[-1]["id"])}) as events:
        rest = await take(events, 4)
    async with listening(gate, after=0) as events:
        everything = await take(events, 9)

    assert [event["type"] for event in first] == ["TOOL_CALL_REQUESTED", "TOOL_CALL_STARTED"]
    assert [event["type"] for event in rest][:1] == ["TOOL_CALL_COMPLETED"]
    ids = [event["id"] for event in everything]
    assert ids == sorted(set(ids))
    assert [event["id"] for event in first + rest] == ids[3:]


async def test_events_are_filtered_by_run_tool_and_user_and_those_of_others_do_not_come(gate: Served) -> None:
    bot = await gate.key("acme:bot", "call")
    async with (
        listening(gate, tool="dr*") as by_tool,
        listening(gate, user="bot") as by_user,
        listening(gate, run="run_x") as by_run,
        listening(gate, bot) as own,
    ):
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
        await gate.box.call("add", {"a": 1, "b": 1}, user="beta:bot", run_id="run_x")
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:bot")
        await gate.box.call("drop", {"name": "t"}, user="acme:olga", run_id="run_x")
        found = [(await take(events, 1))[0] for events in (by_tool, by_user, by_run, own)]

    assert [event["payload"]["tool_name"] for event in found] == ["drop", "add", "drop", "add"]
    assert [event["user"] for event in found] == ["olga", "bot", "olga", "bot"]


JSON = {"Accept": "application/json"}


async def test_events_are_read_by_pages_newest_first_with_filters(gate: Served) -> None:
    async def page(headers: dict[str, str] | None = None, **params: Any) -> Any:
        reply = await gate.http.get("/api/v1/events", params=params, headers=JSON | (headers or {}))
        assert reply.headers["content-type"] == "application/json"
        return reply.json()

    bot = await gate.key("acme:bot", "call")
    await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
    await gate.box.call("add", {"a": 1, "b": 1}, user="beta:bot")
    await gate.box.call("drop", {"name": "t"}, user="acme:bot", run_id="run_x")
    everything = (await page())["items"]
    of_run, first = await page(limit=2, run="run_x"), await page(limit=3)
    ends = await page(type="tool_call_completed,TOOL_CALL_F*")
    by_user, by_tool, own = await page(user="olga"), await page(tool="dr*"), await page(bot, user="olga")
    late = await page(since=everything[0]["at"])
    middle = await page(after=everything[-1]["id"], before=everything[0]["id"], until=everything[1]["at"])

    ids = [event["id"] for event in everything]
    assert ids == sorted(ids, reverse=True)
    assert {event["tenant"] for event in everything} == {"acme"}
    assert [event["type"] for event in everything[:2]] == ["APPROVAL_REQUESTED", "TOOL_CALL_REQUESTED"]
    assert of_run == {"items": everything[:2], "next": None}
    assert first == {"items": everything[:3], "next": ids[2]}
    assert [event["type"] for event in ends["items"]] == ["TOOL_CALL_COMPLETED"]
    assert by_user["items"] == everything[2:]
    assert by_tool["items"] == own["items"] == everything[:2]
    assert (late["items"], middle["items"]) == (everything[:1], everything[1:-1])
    assert late["next"] is None


async def test_a_page_of_events_continues_in_the_middle_of_a_call(gate: Served) -> None:
    for _ in range(3):
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
    found: list[int] = []
    before: dict[str, int] = {}
    while True:
        reply = (await gate.http.get("/api/v1/events", params={"limit": 2, **before}, headers=JSON)).json()
        found += [event["id"] for event in reply["items"]]
        if reply["next"] is None:
            break
        before = {"before": reply["next"]}

    assert found == list(range(found[0], found[0] - 9, -1))


async def test_a_stream_sends_only_events_of_its_types(gate: Served) -> None:
    async with listening(gate, type="TOOL_CALL_*ED,APPROVAL_REQUESTED", after=0) as events:
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga")
        await gate.box.call("drop", {"name": "t"}, user="acme:olga")
        found = [event["type"] for event in await take(events, 5)]

    assert found == [
        "TOOL_CALL_REQUESTED",
        "TOOL_CALL_STARTED",
        "TOOL_CALL_COMPLETED",
        "TOOL_CALL_REQUESTED",
        "APPROVAL_REQUESTED",
    ]


async def test_a_wrong_request_for_events_is_a_problem_that_reports_what_to_do(gate: Served) -> None:
    await gate.box.call("add", {"a": 1, "b": 1}, user="beta:bot", run_id="run_b")
    requests: list[tuple[dict[str, Any], dict[str, str], int, str]] = [
        ({"type": "TOOL_CALL_ENDED"}, JSON, 400, "unknown_event_type"),
        ({"type": "TOOL_CALL_ENDED"}, {}, 400, "unknown_event_type"),
        ({"run": "run_b"}, JSON, 404, "run_not_found"),
        ({"since": 2, "until": 1}, JSON, 400, "invalid_range"),
        ({"limit": 5}, {}, 400, "not_a_page"),
        ({"limit": 5000}, JSON, 400, "invalid_parameter"),
        ({"before": "bWFkZS11cA"}, JSON, 400, "invalid_parameter"),
    ]
    for params, headers, status, code in requests:
        reply = await gate.http.get("/api/v1/events", params=params, headers=headers)
        assert (reply.status_code, reply.json()["code"]) == (status, code), params


@pytest.mark.req("NAPP-03")
async def test_that_a_person_is_asked_comes_with_the_same_card_as_everywhere(gate: Served) -> None:
    http = httpx2.AsyncClient(headers=gate.http.headers, timeout=60, trust_env=False)
    async with listening(gate, tool="drop") as events, http:
        async with Client(streamable_http_client(f"{gate.url}/mcp", http_client=http), mode="legacy") as client:
            told = await client.call_tool("drop", {"name": "t"})
        while (event := (await take(events, 1))[0])["type"] != "APPROVAL_REQUESTED":
            pass
        shown = (await gate.http.get(f"/api/v1/pending/{event['card']['id']}")).json()
        kept = gate.box.pending.card(await gate.box.pending.get(event["card"]["id"], by="acme:olga"))

    assert event["card"] == shown
    assert shown.pop("viewer")["may"] == ["approve", "modify", "deny"]  # depends on who asks, so it is not elsewhere
    assert shown == json.loads(json.dumps(kept))
    assert [value for key, value in (told.meta or {}).items() if key.endswith("card")] == [shown]


async def test_no_listener_misses_an_event_of_its_run_or_gets_one_twice(gate: Served) -> None:
    runs = [f"run_{number}" for number in range(40)]

    async def listen(run_id: str) -> list[int]:
        async with listening(gate, run=run_id) as events:
            heard.release()
            return [event["seq"] for event in await take(events, 9)]

    heard = asyncio.Semaphore(0)
    listeners = [asyncio.create_task(listen(run_id)) for run_id in runs]
    for _ in runs:
        await heard.acquire()
    for _ in range(3):
        await asyncio.gather(
            *(gate.box.call("add", {"a": 1, "b": 1}, user="acme:olga", run_id=run_id) for run_id in runs)
        )

    assert await asyncio.gather(*listeners) == [list(range(1, 10))] * len(runs)


@pytest.mark.slow
async def test_a_streamed_call_that_reports_much_at_once_has_all_of_it_in_its_stream(tmp_path: Path) -> None:
    call = {"tool": "count_to", "arguments": {"n": 2500}}
    parts = [{"data": call}]
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": parts}
    over_a2a = {"jsonrpc": "2.0", "id": 1, "method": "SendStreamingMessage", "params": {"message": message}}
    async with served(tmp_path / "data", [count_to]) as gate:
        rest = await gate.http.post("/api/v1/calls", json={**call, "mode": "stream"})
        a2a = await gate.http.post("/a2a", json=over_a2a)

    assert rest.text.count("event: SUBAGENT_ACTION") == 2500
    assert a2a.text.count('"text":"') == 2500


CALLS = {
    "rest": ("/api/v1/calls", {"tool": "step", "mode": "stream"}),
    "a2a": (
        "/a2a",
        {
            "jsonrpc": "2.0",
            "id": 1,
            "method": "SendStreamingMessage",
            "params": {"message": {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": {"tool": "step"}}]}},
        },
    ),
}


@pytest.mark.parametrize("door", CALLS)
async def test_a_streamed_call_is_read_when_something_happens_in_it_and_not_in_between(
    tmp_path: Path, door: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    steps = asyncio.Semaphore(0)

    @tool(side_effects="pure")
    async def step(ctx: ToolContext) -> str:
        """Go on when it is told to."""
        for number in range(3):
            ctx.progress(f"step {number}")
            await steps.acquire()
        return "at the end"

    path, body = CALLS[door]
    async with served(tmp_path / "data", [step, add]) as gate:
        log, reads = gate.box.store.events, list[str | None]()
        read = log.read

        async def counted(**options: Any) -> Any:
            reads.append(options.get("run_id"))
            return await read(**options)

        monkeypatch.setattr(log, "read", counted)
        async with asyncio.timeout(60), gate.http.stream("POST", path, json=body) as reply:
            lines = reply.aiter_lines()
            await find_line(lines, "step 0")
            so_far = len(reads)
            for _ in range(50):
                await gate.http.post("/api/v1/calls", json={"tool": "add", "arguments": {"a": 1, "b": 1}})
            meanwhile = reads[so_far:]
            for text in ("step 1", "step 2", "at the end"):
                steps.release()
                await find_line(lines, text)

    assert len(meanwhile) <= 1  # what woke the stream while it was sending is looked at once more
    assert 3 <= len(reads) <= 10


async def find_line(lines: AsyncIterator[str], text: str) -> None:
    while text not in await anext(lines):
        pass


async def test_a_caller_that_waits_for_an_outcome_gets_it_when_the_call_ends(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @tool(side_effects="pure")
    async def hold() -> str:
        """Wait until somebody says so."""
        await go_on.wait()
        return "released"

    async with served(tmp_path / "data", [hold]) as gate:
        begun = await gate.http.post("/api/v1/calls", json={"tool": "hold", "mode": "async"})
        location = begun.headers["location"]
        waiting = asyncio.create_task(gate.http.get(location, params={"wait_s": 60}))
        running = await gate.http.get(location)
        go_on.set()
        outcome = await waiting

    assert (running.status_code, outcome.status_code, outcome.json()["content"]) == (202, 200, "released")


@pytest.mark.parametrize("kind", ["key", "session"])
async def test_a_stream_ends_with_the_key_or_session_of_its_caller(
    gate: Served, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(event_stream, "_CHECKED_S", 0.0)
    headers = await gate.key("acme:ann", "answer")
    (key,) = [one for one in await gate.box.store.caller_keys.list() if one.name == "acme:ann"]
    if kind == "session":
        opened = await gate.http.post("/api/v1/sessions", headers=headers)
        headers = {"Authorization": f"Bearer {opened.json()['token']}"}
    async with listening(gate, headers, tool="add") as events, asyncio.timeout(60):
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:bot")
        before = await take(events, 3)
        await revoke_caller_key(gate.box, key.id, by="acme:olga")
        await gate.box.call("add", {"a": 1, "b": 1}, user="acme:bot")
        after = [event async for event in events]

    assert (len(before), after) == (3, [])
