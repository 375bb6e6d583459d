"""Metrics over REST: series and lists of the most, counted from the event log by the gateway."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, add, drop, served
from toolpost import Paused, Settings, Toolbox


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", [add, drop]) as gate:
        yield gate


async def counted(gate: Served, calls: int) -> None:
    """Wait until the gateway has counted this number of calls."""
    async with asyncio.timeout(60):
        while (await top(gate, by="tool")).get("add", {}).get("calls", 0) < calls:
            await asyncio.sleep(0.05)


async def top(gate: Served, **query: Any) -> dict[str, Any]:
    reply = await gate.http.get("/api/v1/insight/top", params=query)
    assert reply.status_code == 200, reply.text
    return {item["key"]: item for item in reply.json()["items"]}


async def series(gate: Served, **query: Any) -> dict[tuple[str, str], list[float | None]]:
    reply = await gate.http.get("/api/v1/insight/series", params=query)
    assert reply.status_code == 200, reply.text
    return {(one["key"], one["metric"]): one["values"] for one in reply.json()["series"]}


@pytest.mark.waits
@pytest.mark.req("OPS-01")
async def test_calls_of_processes_without_a_port_are_metrics_of_the_gateway(gate: Served, tmp_path: Path) -> None:
    settings = Settings(data_dir=tmp_path / "data")
    async with Toolbox(tools=[add], settings=settings) as worker:
        for user, b in (("local:ann", 3), ("acme:ann", "x")):
            await worker.call("add", {"a": 2, "b": b}, user=user)
    await counted(gate, 1)
    text = (await gate.http.get("/metrics")).text

    assert 'toolpost_recent_calls{tool="add"} 2\n' in text
    assert 'toolpost_recent_failures{tool="add"} 1\n' in text
    assert 'toolpost_tool_calls_total{tool="add"} 2\n' not in text


@pytest.mark.waits
@pytest.mark.req("WEB-11")
async def test_calls_appear_in_series_and_lists(gate: Served) -> None:
    for b in (3, 4, "x"):
        await gate.box.call("add", {"a": 2, "b": b}, user="acme:ann")
    await gate.box.call("add", {"a": 2, "b": 3}, user="beta:eve")
    await counted(gate, 3)

    tools = await top(gate, by="tool")
    failures = await top(gate, by="failure")
    both = await series(gate, by="tool", metric="calls,failed,p95,answer_p50")
    assert (tools["add"]["calls"], tools["add"]["failed"]) == (3, 1)
    assert failures["add validation_failed"]["calls"] == 1
    assert sum(filter(None, both["add", "calls"])) == 3
    assert sum(filter(None, both["add", "failed"])) == 1
    assert [value > 0 for value in both["add", "p95"] if value is not None] == [True]
    assert set(both["add", "answer_p50"]) == {None}
    olga = await gate.http.get("/api/v1/stats", headers=await gate.key("acme:olga", "answer"))
    assert olga.json()["durations"]["add"]["p95"] == tools["add"]["p95"]
    assert olga.json()["since"] <= time.time()
    assert (olga.json()["calls"]["add"]["count"], olga.json()["calls"]["add"]["failures"]) == (3, 1)
    assert olga.json()["webhooks"] == []
    assert await series(gate, by="code", key="timeout") == {}
    whole = (await gate.http.get("/api/v1/insight/series", params={"by": "tool", "metric": "calls,p95"})).json()[
        "series"
    ]
    assert {one["metric"]: one["total"] for one in whole if one["key"] == "add"} == {
        "calls": 3,
        "p95": tools["add"]["p95"],
    }


@pytest.mark.waits
@pytest.mark.req("WEB-11")
async def test_the_time_to_an_answer_is_counted(gate: Served) -> None:
    paused = await gate.box.call("drop", {"name": "t"}, user="acme:ann")
    assert isinstance(paused, Paused)
    await gate.box.pending.deny(paused.pending_id, by="acme:boss")
    await gate.box.call("add", {"a": 2, "b": 3}, user="acme:ann")
    await counted(gate, 1)

    item = (await top(gate, by="tool"))["drop"]
    assert (item["asked"], item["denied"], item["failed"]) == (1, 1, 0)
    assert item["answer_p50"] > 0


@pytest.mark.parametrize(
    ("path", "query", "problem"),
    [
        ("series", {"metric": "p42"}, "unknown metric 'p42'"),
        ("series", {"since": 20, "until": 10}, "must be before"),
        ("series", {"since": 0, "step": 3600}, "steps are more than"),
        ("series", {"step": 5}, "'step' is invalid"),
        ("top", {"by": "none"}, "'by' is invalid"),
    ],
)
async def test_wrong_windows_and_metrics_are_refused(
    gate: Served, path: str, query: dict[str, Any], problem: str
) -> None:
    reply = await gate.http.get(f"/api/v1/insight/{path}", params=query)

    assert reply.status_code == 400
    assert problem in reply.json()["detail"]


async def test_a_window_without_calls_has_steps_without_values(gate: Served) -> None:
    reply = await gate.http.get("/api/v1/insight/series", params={"since": time.time() - 30 * 86400, "step": 21600})

    assert (reply.json()["step"], reply.json()["series"], reply.json()["data_since"]) == (21600, [], None)


@pytest.mark.waits
async def test_a_metric_is_returned_once_and_times_are_finite(gate: Served) -> None:
    await gate.box.call("add", {"a": 1, "b": 1}, user="acme:ann")
    await counted(gate, 1)
    repeated = await gate.http.get("/api/v1/insight/series", params={"metric": ",".join(["calls"] * 1000)})
    wrong = [
        await gate.http.get(path, params={name: value})
        for path in ("/api/v1/insight/series", "/api/v1/insight/top", "/api/v1/runs")
        for name, value in (("until", "inf"), ("since", "nan"))
    ]

    assert [one["metric"] for one in repeated.json()["series"]] == ["calls"]
    assert [(one.status_code, one.json()["code"]) for one in wrong] == [(400, "invalid_parameter")] * 6
