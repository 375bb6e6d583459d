"""A gateway that has to stop before its calls have ended: what may be repeated goes on in the next one."""

import asyncio
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.gateway.serving import Served, served
from toolpost import Completed, Paused, Tool, Toolbox, ToolContext, tool


class Bench:
    """Tools that wait until they may go on, and count how often they began."""

    def __init__(self) -> None:
        self.began: list[str] = []
        self.may_end = asyncio.Event()

    async def _work(self, name: str) -> str:
        self.began.append(name)
        await self.may_end.wait()
        return name

    def tools(self) -> list[Tool]:
        @tool(side_effects="read")
        async def look() -> str:
            """Look at something for long."""
            return await self._work("look")

        @tool(side_effects="write")
        async def send() -> str:
            """Send something, slowly."""
            return await self._work("send")

        @tool(side_effects="pure")
        async def both(ctx: ToolContext) -> Any:
            """Look, as a part of this."""
            looked = await ctx.call("look", {})
            if isinstance(looked, Paused):
                ctx.wait_for(looked)
            return looked.content if isinstance(looked, Completed) else None

        return [look, send, both]

    async def all_began(self, *names: str) -> None:
        async with asyncio.timeout(30):
            while sorted(self.began) != sorted(names):
                await asyncio.sleep(0.005)


def call(gate: Served, tool_name: str, **more: Any) -> asyncio.Task[httpx2.Response]:
    return asyncio.create_task(gate.http.post("/api/v1/calls", json={"tool": tool_name, **more}))


async def outcome(gate: Served, run_id: str) -> dict[str, Any]:
    reply = await gate.http.get(f"/api/v1/runs/{run_id}/outcome", params={"wait_s": 30})
    assert reply.status_code == 200, reply.text
    shown: dict[str, Any] = reply.json()
    return shown


async def test_calls_that_may_be_repeated_are_parked_and_end_in_the_next_gateway(tmp_path: Path) -> None:
    first, second = Bench(), Bench()
    second.may_end.set()
    async with served(tmp_path / "data", first.tools()) as gate:
        waiting, started = call(gate, "look"), await call(gate, "look", mode="async")
        await first.all_began("look", "look")
        await gate.box.router.park(within_s=0)
        told = await waiting
    async with served(tmp_path / "data", second.tools()) as gate:
        ended = [await outcome(gate, reply.json()["run_id"]) for reply in (told, started)]
        run = (await gate.http.get(f"/api/v1/runs/{told.json()['run_id']}")).json()

    assert (told.status_code, told.headers["content-type"], told.json()["code"]) == (
        503,
        "application/problem+json",
        "parked",
    )
    assert told.headers["location"].endswith(f"/api/v1/runs/{told.json()['run_id']}/outcome")
    assert [one["content"] for one in ended] == ["look", "look"]
    assert second.began == ["look", "look"]
    assert [event["type"] for event in run["log"]][1:] == [
        "TOOL_CALL_STARTED",
        "CALL_PAUSED",
        "CALL_RESUMED",
        "TOOL_CALL_COMPLETED",
    ]


@pytest.mark.parametrize("path", ["calls", "tools/look"])
@pytest.mark.waits
async def test_a_call_whose_request_is_ended_by_force_continues_in_the_next_gateway(tmp_path: Path, path: str) -> None:
    first, second = Bench(), Bench()
    second.may_end.set()
    async with served(tmp_path / "data", first.tools()) as gate:
        body = {"tool": "look"} if path == "calls" else {}
        waiting = asyncio.create_task(gate.http.post(f"/api/v1/{path}", json=body))
        await first.all_began("look")
    await asyncio.gather(waiting, return_exceptions=True)
    async with served(tmp_path / "data", second.tools()) as gate:
        [run] = (await gate.http.get("/api/v1/runs")).json()["items"]
        ended = await outcome(gate, run["run_id"])

    assert ended["content"] == "look"
    assert second.began == ["look"]


async def test_a_call_that_must_not_be_repeated_is_cancelled_and_its_doubt_is_reported_and_kept(tmp_path: Path) -> None:
    first, second = Bench(), Bench()
    second.may_end.set()
    async with served(tmp_path / "data", first.tools()) as gate:
        key = {"Idempotency-Key": "once"}
        waiting = asyncio.create_task(gate.http.post("/api/v1/calls", json={"tool": "send"}, headers=key))
        await first.all_began("send")
        await gate.box.router.park(within_s=0)
        told = await waiting
    async with served(tmp_path / "data", second.tools()) as gate:
        again = (await gate.http.post("/api/v1/calls", json={"tool": "send"}, headers=key)).json()
        run = (await gate.http.get(f"/api/v1/runs/{told.json()['run_id']}")).json()

    assert (told.status_code, told.json()["code"]) == (503, "stopped")
    assert "may have taken effect" in told.json()["detail"]
    assert (again["status"], again["error"]["error_code"]) == ("failed", "stopped")
    assert second.began == []
    assert [event["type"] for event in run["log"]][-1] == "TOOL_CALL_FAILED"


async def test_a_call_that_waits_for_one_inside_it_continues_with_it(tmp_path: Path) -> None:
    first, second = Bench(), Bench()
    second.may_end.set()
    async with Toolbox(tools=first.tools(), settings={"data_dir": tmp_path / "data"}) as box:
        running = asyncio.create_task(box.call("both", idempotency_key="k"))
        await first.all_began("look")
        await box.router.park(within_s=0)
        parked = await running
    async with Toolbox(tools=second.tools(), settings={"data_dir": tmp_path / "data"}) as box, asyncio.timeout(30):
        while isinstance(ended := await box.call("both", idempotency_key="k"), Paused):
            await asyncio.sleep(0.01)

    assert isinstance(parked, Paused)
    assert isinstance(ended, Completed), ended
    assert ended.call_id == parked.call_id
    assert second.began == ["look"]


async def test_calls_that_end_in_time_are_waited_for(tmp_path: Path) -> None:
    bench = Bench()
    async with served(tmp_path / "data", bench.tools()) as gate:
        waiting = call(gate, "send")
        await bench.all_began("send")
        parking = asyncio.create_task(gate.box.router.park(within_s=30))
        bench.may_end.set()
        reply = await waiting
        await parking

    assert reply.json()["content"] == "send"


@pytest.mark.parametrize("tool_name", ["look", "send"])
async def test_a_parked_call_is_shown_to_no_one_as_a_question(tmp_path: Path, tool_name: str) -> None:
    bench = Bench()
    async with served(tmp_path / "data", bench.tools()) as gate:
        waiting = call(gate, tool_name)
        await bench.all_began(tool_name)
        await gate.box.router.park(within_s=0)
        await waiting
        asked = (await gate.http.get("/api/v1/pending")).json()

    assert asked["items"] == []
