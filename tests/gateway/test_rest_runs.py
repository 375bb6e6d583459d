"""Runs over HTTP: what a run tells, filters and pages of runs and of their events, and the proof of one run."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, add, served
from toolpost import ToolContext, tool

SUM = {"tool": "add", "arguments": {"a": 1, "b": 1}}


async def get(gate: Served, path: str, headers: dict[str, str] | None = None, **params: Any) -> Any:
    return (await gate.http.get(f"/api/v1{path}", params=params, headers=headers or {})).json()


@pytest.mark.sqlite
async def test_one_run_is_verified_and_a_change_of_another_run_does_not_matter(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder, [add]) as gate:
        first, second = [(await gate.http.post("/api/v1/calls", json=SUM)).json()["run_id"] for _ in range(2)]
    of_first = "run = (SELECT nr FROM runs WHERE run_id = ?)"
    with closing(sqlite3.connect(folder / "toolpost.db")) as database, database:
        database.execute(f"UPDATE segments SET user = 'eve' WHERE {of_first}", (first,))
    async with served(folder, [add]) as gate:
        changed, intact = [await get(gate, f"/runs/{run_id}/verify") for run_id in (first, second)]
        hidden = await get(gate, f"/runs/{first}/verify", await gate.key("other:eve", "admin"))

    assert intact == {"status": "verified", "problems": [], "events": 3}
    assert (changed["status"], changed["problems"]) == (
        "changed",
        ["events 1 to 3 were changed, or an event before them was"],
    )
    assert hidden["code"] == "run_not_found"


@tool(side_effects="write", destructive=True)
async def drop(name: str) -> str:
    """Drop a table."""
    return name


@tool(name="shop.fail", side_effects="read")
async def fail(times: int) -> None:
    """Report and fail."""
    raise ValueError("no stock")


async def call(gate: Served, tool: str, headers: dict[str, str] | None = None, **arguments: Any) -> Any:
    body = {"tool": tool, "arguments": arguments}
    return (await gate.http.post("/api/v1/calls", json=body, headers=headers or {})).json()


async def test_a_run_tells_its_caller_its_error_and_how_long_it_worked_and_waited(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [drop, fail]) as gate:
        bot = await gate.key("acme:bot", "call")
        asked, failed = await call(gate, "drop", bot, name="t"), await call(gate, "shop.fail", bot, times=1)
        (paused,) = (await get(gate, "/runs", status="paused"))["items"]
        answer = f"/api/v1/pending/{asked['pending']['id']}/answer"
        boss = await gate.key("acme:boss", "answer")
        await gate.http.post(answer, json={"decision": "approve"}, headers=boss)
        done, broken = [await get(gate, f"/runs/{one['run_id']}", log="no") for one in (asked, failed)]

    assert paused["pending_ids"] == done["pending_ids"] == [asked["pending"]["id"]]
    assert paused["caller"] == done["caller"]
    assert done["caller"].startswith("key:")
    assert (done["error_code"], done["source"], broken["error_code"], broken["source"]) == (
        None,
        None,
        "tool_raised",
        "shop",
    )
    assert 0 < done["waited_ms"] < done["duration_ms"] == pytest.approx(done["work_ms"] + done["waited_ms"])
    assert (broken["waited_ms"], broken["progress"], broken["parent_run"]) == (0, None, None)
    assert "log" not in done


async def test_a_run_tells_the_last_progress_while_it_is_open_and_whether_its_result_is_kept(tmp_path: Path) -> None:
    go_on = asyncio.Event()

    @tool(side_effects="pure")
    async def report(ctx: ToolContext) -> str:
        """Report and wait."""
        ctx.progress("a third", fraction=1 / 3)
        ctx.progress("half", fraction=0.5)
        await go_on.wait()
        return "done"

    async with served(tmp_path / "data", [report, add]) as gate:
        begun = (await gate.http.post("/api/v1/calls", json={"tool": "report", "mode": "async"})).json()
        async with asyncio.timeout(60):
            while (run := await get(gate, f"/runs/{begun['run_id']}"))["progress"] is None:
                pass
        (listed,) = (await get(gate, "/runs", status="running"))["items"]
        go_on.set()
        await gate.http.get(f"/api/v1/runs/{begun['run_id']}/outcome", params={"wait_s": 30})
        ended = await get(gate, f"/runs/{begun['run_id']}")
        waited_for = await get(gate, f"/runs/{(await call(gate, 'add', a=1, b=1))['run_id']}")

    assert run["progress"]["text"] in ("a third", "half")
    assert listed.keys() == run.keys() - {"log", "artifacts", "result"}
    assert (run["result"], ended["result"], waited_for["result"]) == (None, "kept", "not kept")
    assert ended["progress"] is None


async def test_the_outcome_of_a_run_whose_result_is_not_kept_says_how_it_ended(gate: Served) -> None:
    done = await call(gate, "add", a=1, b=1)
    failed = await call(gate, "add", a="one", b=1)
    shown = [await gate.http.get(f"/api/v1/runs/{one['run_id']}/outcome") for one in (done, failed)]

    assert [answer.status_code for answer in shown] == [200, 200]
    assert shown[0].json() == {
        **{name: done[name] for name in ("status", "run_id", "call_id", "tool_name")},
        "error_code": None,
        "result": "not kept",
    }
    assert (shown[1].json()["status"], shown[1].json()["error_code"]) == ("failed", failed["error"]["error_code"])


async def test_runs_are_filtered_counted_and_read_by_pages(tmp_path: Path) -> None:
    async with served(tmp_path / "data", [add, fail]) as gate:
        bot = await gate.key("acme:bot", "call")
        sums = [(await call(gate, "add", a=1, b=n))["run_id"] for n in range(3)]
        failed = (await call(gate, "shop.fail", bot, times=1))["run_id"]
        await call(gate, "add", await gate.key("other:eve", "call"), a=1, b=1)
        at = (await get(gate, f"/runs/{sums[1]}"))["started_at"]

        async def found(headers: dict[str, str] | None = None, **query: Any) -> tuple[list[str], int | None]:
            shown = await get(gate, "/runs", headers, **query)
            return [run["run_id"] for run in shown["items"]], shown["total"]

        queries: list[dict[str, Any]] = [
            {"status": "failed"},
            {"tool": "shop.*"},
            {"source": "shop"},
            {"user": "bot"},
            {"q": "SHOP"},
            {"q": failed[4:9]},
        ]
        filtered = [await found(total="yes", **query) for query in queries]
        by_time = [await found(since=at), await found(until=at)]
        page = await get(gate, "/runs", limit=1, tool="add", total="yes")
        following = await get(gate, "/runs", limit=5, tool="add", cursor=page["next"])
        own = await found(bot, total="yes", user="olga")

    assert filtered == [([failed], 1)] * 6
    assert by_time == [([failed, sums[2], sums[1]], None), ([sums[1], sums[0]], None)]
    assert ([run["run_id"] for run in page["items"]], page["total"]) == (sums[2:], 3)
    assert [run["run_id"] for run in following["items"]] == [sums[1], sums[0]]
    assert own == ([failed], 1)  # a caller that only calls sees its own runs, whatever it asks for


async def test_the_events_of_a_run_are_read_by_pages_and_types(gate: Served) -> None:
    run_id = (await call(gate, "add", a=1, b=1))["run_id"]
    whole = (await get(gate, f"/runs/{run_id}"))["log"]
    first = await get(gate, f"/runs/{run_id}/events", limit=2)
    second = await get(gate, f"/runs/{run_id}/events", limit=2, after=first["next"])
    ends = await get(gate, f"/runs/{run_id}/events", type="tool_call_started,410", after=whole[0]["id"])

    assert (first["items"], second) == (whole[:2], {"items": whole[2:], "next": None})
    assert [event["type"] for event in ends["items"]] == ["TOOL_CALL_STARTED", "TOOL_CALL_COMPLETED"]


async def test_a_wrong_filter_is_a_problem_that_reports_what_to_do(gate: Served) -> None:
    run_id = (await call(gate, "add", a=1, b=1))["run_id"]
    eve = await gate.key("other:eve", "admin")
    problems = [
        await get(gate, f"/runs/{run_id}/events", type="TOOL_CALL_ENDED"),
        await get(gate, "/runs", since=2, until=1),
        await get(gate, "/runs", cursor="bWFkZS11cA"),
        await get(gate, f"/runs/{run_id}/events", eve),
        await get(gate, "/runs", since=1_700_000_000_000),
    ]

    assert [(problem["status"], problem["code"]) for problem in problems] == [
        (400, "unknown_event_type"),
        (400, "invalid_range"),
        (400, "invalid_cursor"),
        (404, "run_not_found"),
        (400, "invalid_parameter"),
    ]
    assert "did you mean TOOL_CALL_" in problems[0]["detail"]
