"""A gateway as it runs for a team: ready, measured, described, and stopped without keeping anybody waiting."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import httpx2
import pytest

from tests.gateway.serving import Served, add, drop, served
from toolpost import Completed, Toolbox
from toolpost.sources import Workflow, WorkflowFunction

USERS = ("beta:eve", "local:ann")


async def test_whoever_watches_over_it_needs_no_token_and_figures_need_one(gate: Served) -> None:
    async with httpx2.AsyncClient(base_url=gate.url, trust_env=False) as stranger:
        replies = [await stranger.get(path) for path in ("/healthz", "/readyz", "/metrics", "/.well-known/utcp")]
    agent = await gate.http.get("/metrics", headers=await gate.key("acme:bot", "call"))

    assert [reply.status_code for reply in replies] == [200, 200, 401, 401]
    assert replies[1].json()["status"] == "ready"
    assert agent.status_code == 403


async def test_figures_of_all_tenants_are_not_for_people_of_another_tenant(gate: Served) -> None:
    await gate.box.call("add", {"a": 1, "b": 2}, user="acme:ann")
    other, own = await gate.key("beta:eve", "answer", "admin"), await gate.key("local:ann", "answer")
    metrics = [await gate.http.get("/metrics", headers=one) for one in (other, own)]
    status = [await gate.http.get("/api/v1/status", headers=await gate.key(user, "admin")) for user in USERS]
    body = {"name": "monitor", "scopes": ["observe"]}
    made = [await gate.http.post("/api/v1/keys", json=body, headers=await gate.key(user, "admin")) for user in USERS]
    stats = [(await gate.http.get("/api/v1/stats", headers=one)).json() for one in (other, own)]
    tool = [(await gate.http.get("/api/v1/tools/add", headers=one)).json()["stats"] for one in (other, own)]
    about = [(await gate.http.get("/api/v1/about", headers=one)).json() for one in (other, own)]

    assert [one.status_code for one in (*metrics, *status, *made)] == [403, 200, 403, 200, 403, 201]
    assert "/api/v1/insight/series" in metrics[0].json()["detail"]
    assert [(one["calls"].get("add", {}).get("count"), one["accounts"] is None) for one in stats] == [
        (None, True),
        (1, False),
    ]
    assert (tool[0], tool[1]["count"]) == (None, 1)
    assert [(one["data_dir"] is None, one["problems"]) for one in about] == [(True, None), (False, [])]


async def test_figures_are_in_the_format_of_prometheus(gate: Served) -> None:
    for arguments in ({"a": 1, "b": 2}, {"a": 1}):
        await gate.box.call("add", arguments)
    await gate.box.call("drop", {"name": "t"})
    text = (await gate.http.get("/metrics")).text

    assert 'toolpost_tool_calls_total{tool="add"} 2\n' in text
    assert 'toolpost_tool_failures_total{tool="add"} 1\n' in text
    assert "\ntoolpost_pending_actions 1\n" in text


@pytest.mark.sqlite
async def test_questions_are_counted_without_being_opened(tmp_path: Path) -> None:
    flow = WorkflowFunction(Workflow.parse("{name: flow, steps: {drop: {tool: drop, arguments: {name: t}}}}"))
    async with served(tmp_path / "data", [drop, flow]) as gate:
        await gate.box.call("flow", {})
        once = (await gate.http.get("/metrics")).text
        with closing(sqlite3.connect(tmp_path / "data" / "toolpost.db")) as database, database:
            database.execute("UPDATE pending SET action = x'00'")  # what cannot be opened waits, too
        sealed = (await gate.http.get("/metrics")).text

    assert "\ntoolpost_pending_actions 1\n" in once
    assert "\ntoolpost_pending_actions 1\n" in sealed


async def test_a_webhook_that_fails_is_seen_by_whoever_watches(tmp_path: Path) -> None:
    webhook = {"name": "audit", "url": "http://127.0.0.1:9/hook", "secret": f"whsec_{'a' * 32}"}
    async with served(tmp_path / "data", [add], webhooks=[webhook]) as gate:
        await gate.box.call("add", {"a": 1, "b": 2})
        while True:
            [state] = (await gate.http.get("/api/v1/stats")).json()["webhooks"]
            if state["state"] == "failing":
                break
        text = (await gate.http.get("/metrics")).text

    assert state["behind"] > 0
    assert "127.0.0.1" in state["error"]
    assert 'toolpost_webhook_delivered_total{webhook="audit"} 0\n' in text


async def test_the_catalog_is_a_utcp_manual_whose_addresses_answer(
    gate: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manual = tmp_path / "manual.json"
    manual.write_text((await gate.http.get("/.well-known/utcp")).text)
    monkeypatch.setenv("gate_TOOLPOST_TOKEN", gate.http.headers["Authorization"].removeprefix("Bearer "))
    source = {"name": "gate", "transport": "utcp", "connection": str(manual), "trust": True}
    settings = {"data_dir": None, "policy": "exploratory", "sources": [source], "network": {"allow_private": True}}
    async with Toolbox(settings=settings) as box:
        called = await box.call("gate.add", {"body": {"a": 2, "b": 3}})

    assert isinstance(called, Completed), called
    assert called.content == 5


async def test_stopping_lets_listeners_go_at_once(tmp_path: Path) -> None:
    async with asyncio.timeout(30):
        async with served(tmp_path / "data", [add]) as gate, httpx2.AsyncClient(timeout=60, trust_env=False) as other:
            address = f"{gate.url}/api/v1/events"
            async with other.stream("GET", address, headers=dict(gate.http.headers)) as reply:
                lines = reply.aiter_lines()
                assert await anext(lines) == ": listening"
                gate.feed.close()
                rest = [line async for line in lines]
                stopping = [await gate.http.get("/readyz"), await gate.http.post("/api/v1/calls", json={"tool": "add"})]

    assert rest == [""]
    assert [reply.status_code for reply in stopping] == [503, 503]
