"""Connections that break: mended by the next call, never by running something twice, and told as they happen."""

import asyncio
import os
import signal
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.sources.mcp.rogues import (
    IDEMPOTENT,
    Rogue,
    answering,
    config_by,
    http_rogue,
    is_alive,
    rogue_by,
    text,
    tool,
    toolbox,
    until,
)
from toolpost import EventCode, MCPManager, RetryPolicy, ToolContext, ToolNode, ToolRegistry
from toolpost.errors import ToolConnectionError, ToolNodeError, ToolTimeoutError

pytestmark = pytest.mark.programs

HTTP = ["http-legacy-sse", "http-legacy-json", "http-modern-json", "sse"]
ONCE = RetryPolicy(max_attempts=1)
OFTEN = RetryPolicy(max_attempts=10, wait_exponential_min_s=0.1, wait_exponential_max_s=0.5)


async def end(pid: int) -> None:
    """Kill a server and wait until it was reaped: before that a thread of it may still hold its pipes."""
    os.kill(pid, signal.SIGKILL)
    await until(lambda: not psutil.pid_exists(pid))


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
@pytest.mark.parametrize("how", [{"exit": 1}, {"exit": 0}, {"exit": 1, "half": True}])
async def test_a_call_that_may_have_run_is_not_run_again(tmp_path: Path, way: str, how: dict[str, Any]) -> None:
    with rogue_by(way, tmp_path, tool("pay", do=how), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            broken = await box.call("srv.pay")
            after = await box.call("srv.echo")
    assert isinstance(broken.error, ToolConnectionError)
    assert broken.error.sent
    assert rogue.runs("pay") == 1
    assert after.status == "completed"
    assert len(rogue.pids) == 2


@pytest.mark.parametrize("annotations", [{"readOnlyHint": True}, IDEMPOTENT])
async def test_a_call_that_repeats_safely_is_replayed_once_the_server_is_back(
    tmp_path: Path, annotations: dict[str, bool]
) -> None:
    rogue = Rogue(tmp_path, tool("look", do={"exit": 1, "first": 1}, annotations=annotations))
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.look", {"at": "it"})
    assert outcome.content["arguments"] == {"at": "it"}
    assert rogue.runs("look") == 2
    assert len(rogue.pids) == 2


async def test_a_servers_word_is_not_taken_where_the_source_is_not_trusted(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("look", safe=True, do={"exit": 1, "first": 1}))
    async with toolbox(rogue.config(trust=False)) as box:
        outcome = await box.call("srv.look")
    assert isinstance(outcome.error, ToolConnectionError)
    assert rogue.runs("look") == 1


@pytest.mark.parametrize("way", ["http-legacy-sse", "http-legacy-json", "http-modern-json", "http-modern-sse"])
async def test_a_request_that_gets_no_answer_is_repeated_only_where_that_is_safe(tmp_path: Path, way: str) -> None:
    dropping = [tool("pay", do={"drop": True}), tool("look", safe=True, do={"drop": True, "first": 1})]
    with rogue_by(way, tmp_path, *dropping) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            paid = await box.call("srv.pay")
            looked = await box.call("srv.look")
    assert isinstance(paid.error, ToolConnectionError)
    assert paid.error.sent
    assert looked.status == "completed"
    assert (rogue.runs("pay"), rogue.runs("look")) == (1, 2)


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
async def test_a_server_that_died_between_calls_is_started_again_unseen(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("pay")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            await end(rogue.pids[0])
            outcome = await box.call("srv.pay")
    assert outcome.status == "completed"
    assert len(rogue.pids) == 2
    assert rogue.runs("pay") == 1


@pytest.mark.parametrize("way", HTTP)
async def test_a_remote_server_that_was_restarted_is_found_again_unseen(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("pay")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            first = await box.call("srv.pay")
            rogue.stop()  # type: ignore[attr-defined]
            rogue.start()  # type: ignore[attr-defined]
            second = await box.call("srv.pay")
    assert first.content["pid"] != second.content["pid"]
    assert rogue.runs("pay") == 2


@pytest.mark.parametrize(
    "lost", [(404, -32001, "Session not found"), (404, -32600, "Gone"), (400, -32000, "Bad Request: no session ID")]
)
async def test_a_lost_session_is_begun_again_however_the_server_puts_it(
    tmp_path: Path, lost: tuple[int, int, str]
) -> None:
    with rogue_by("http-legacy-json", tmp_path, tool("pay"), lost=lost) as rogue:
        async with toolbox(config_by("http-legacy-json", rogue)) as box:
            rogue.stop()  # type: ignore[attr-defined]
            rogue.start()  # type: ignore[attr-defined]
            outcome = await box.call("srv.pay")
    assert outcome.status == "completed"
    assert rogue.runs("pay") == 1


@pytest.mark.parametrize("way", HTTP)
async def test_a_remote_server_that_is_away_fails_a_call_that_was_never_sent(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("pay")) as rogue:
        async with toolbox(config_by(way, rogue, retry_policy=ONCE)) as box:
            rogue.stop()  # type: ignore[attr-defined]
            away = await box.call("srv.pay")
            rogue.start()  # type: ignore[attr-defined]
            back = await box.call("srv.pay")
    assert isinstance(away.error, ToolConnectionError)
    assert not away.error.sent
    assert back.status == "completed"


@pytest.mark.parametrize("way", HTTP)
async def test_a_call_outlives_a_remote_servers_restart_when_it_repeats_safely(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("look", safe=True, do={"hang": True, "first": 1})) as rogue:
        async with toolbox(config_by(way, rogue, retry_policy=OFTEN)) as box:
            calling = asyncio.create_task(box.call("srv.look"))
            await until(lambda: rogue.runs("look"))
            rogue.stop()  # type: ignore[attr-defined]
            rogue.start()  # type: ignore[attr-defined]
            outcome = await calling
    assert outcome.status == "completed"
    assert rogue.runs("look") == 2


async def test_many_calls_to_a_dead_server_start_it_once(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"))
    async with toolbox(rogue.config()) as box:
        await end(rogue.pids[0])
        outcomes = await asyncio.gather(*(box.call("srv.echo") for _ in range(20)))
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert len(rogue.pids) == 2


async def test_a_server_that_dies_at_every_start_is_not_started_without_end(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo", safe=True))
    async with toolbox(rogue.config()) as box:
        rogue.plan(modes=["exit"])
        await end(rogue.pids[0])
        outcomes = [await box.call("srv.echo") for _ in range(20)]
    assert {outcome.status for outcome in outcomes} == {"failed"}
    assert len(rogue.pids) <= 15, "each try is of both eras"


async def test_calls_to_one_server_finish_while_another_hangs(tmp_path: Path) -> None:
    hanging = Rogue(tmp_path, tool("hang", do={"hang": True}), name="hanging")
    good = Rogue(tmp_path, tool("echo"))
    async with toolbox(hanging.config(max_concurrency=2), good.config()) as box:
        stuck = [asyncio.create_task(box.call("hanging.hang")) for _ in range(10)]
        await until(lambda: hanging.runs("hang") == 2)
        outcomes = await asyncio.gather(*(box.call("srv.echo") for _ in range(20)))
        assert not any(one.done() for one in stuck)
        for one in stuck:
            one.cancel()
        await asyncio.gather(*stuck, return_exceptions=True)
    assert {outcome.status for outcome in outcomes} == {"completed"}


async def test_calls_to_one_server_finish_while_another_is_being_started_again(tmp_path: Path) -> None:
    bad = Rogue(tmp_path, tool("echo"), name="bad")
    good = Rogue(tmp_path, tool("echo"))
    async with toolbox(bad.config(connect_timeout_s=60, retry_policy=ONCE), good.config()) as box:
        bad.plan(modes=["mute"])
        await end(bad.pids[0])
        waiting = asyncio.create_task(box.call("bad.echo", timeout_s=60))
        await until(lambda: len(bad.pids) == 2)
        outcomes = [await box.call("srv.echo") for _ in range(20)]
        assert not waiting.done()
        bad.plan(modes=["exit"])
        await end(bad.pids[1])
        failed = await waiting
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert failed.status == "failed"


async def test_calls_under_way_do_not_end_with_a_neighbour_that_crashes(tmp_path: Path) -> None:
    bad = Rogue(tmp_path, tool("crash", do={"exit": 1}), name="bad")
    good = Rogue(tmp_path, tool("slow", do={"sleep": 0.5}))
    async with toolbox(bad.config(), good.config()) as box:
        slow = asyncio.create_task(box.call("srv.slow"))
        await until(lambda: good.runs("slow"))
        crashed = await box.call("bad.crash")
        outcome = await slow
    assert (crashed.status, outcome.status) == ("failed", "completed")


async def test_every_call_under_way_is_reported_when_its_server_dies(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("hang", do={"hang": True}))
    async with toolbox(rogue.config()) as box:
        calls = [asyncio.create_task(box.call("srv.hang")) for _ in range(8)]
        await until(lambda: rogue.runs("hang") == 8)
        await end(rogue.pids[0])
        outcomes = await asyncio.gather(*calls)
    assert {type(outcome.error) for outcome in outcomes} == {ToolConnectionError}
    assert rogue.runs("hang") == 8


async def test_a_source_that_was_away_when_the_toolbox_opened_is_there_when_it_comes(tmp_path: Path) -> None:
    with http_rogue(tmp_path, tool("echo"), only="mcp") as rogue:
        rogue.stop()
        async with toolbox(rogue.config(options={"poll_s": 1})) as box:
            (before,) = box.report
            rogue.start()
            await until(lambda: box.registry.has("srv.echo"))
            outcome = await box.call("srv.echo")
    assert not before.ok
    assert outcome.status == "completed"


async def test_changes_of_a_connection_are_reported(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"))
    async with toolbox(rogue.config()) as box:
        await end(rogue.pids[0])
        await box.call("srv.echo")
        told: list[EventCode] = []
        while told[-1:] != [EventCode.SOURCE_UP]:  # it is up for others once its tools are listed
            await asyncio.sleep(0.02)
            told = [event.code for event in await box.store.events.read(run_id="source_srv")]
    assert told.index(EventCode.SOURCE_DOWN) < len(told) - 1


async def test_the_report_says_which_source_is_down_now(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"))
    async with toolbox(rogue.config(retry_policy=ONCE)) as box:
        rogue.plan(modes=["exit"])
        await end(rogue.pids[0])
        await box.call("srv.echo")
        down = [(state.name, state.ok) for state in box.report]
        rogue.plan(modes=[])
        await box.call("srv.echo")
        up = [(state.name, state.ok) for state in box.report]
    assert down == [("srv", False)]
    assert up == [("srv", True)]


async def test_tools_that_come_go_and_change_are_exchanged_when_the_server_says_so(tmp_path: Path) -> None:
    news = {"method": "notifications/tools/list_changed"}
    tell = tool("tell", do={"before": [news]})
    rogue = Rogue(tmp_path, tell, tool("old"), tool("kept", {"type": "object", "required": ["a"]}))
    async with toolbox(rogue.config()) as box:
        rogue.plan(tools=[tell, tool("new"), tool("kept", {"type": "object", "required": ["b"]})])
        await box.call("srv.tell")
        await until(lambda: box.registry.has("srv.new"))
        outcomes = [await box.call("srv.kept", given) for given in ({"a": 1}, {"b": 1})]
        outcomes += [await box.call("srv.old"), await box.call("srv.new")]
    assert [outcome.status for outcome in outcomes] == ["failed", "completed", "failed", "completed"]
    assert rogue.greetings == 1


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json", "sse"])
@pytest.mark.req("NODE-03", "NODE-10", "GEN-09")
async def test_a_node_connects_once_is_called_by_either_name_and_closes_for_good(tmp_path: Path, way: str) -> None:
    registry = ToolRegistry()
    with rogue_by(way, tmp_path, tool("echo")) as rogue:
        node = ToolNode(config=config_by(way, rogue), registry=registry)
        with pytest.raises(ToolNodeError, match="ToolNode 'srv' not connected"):
            node.get_tools()
        await node.connect()
        await node.connect()
        names = [one.spec.name for one in node.get_tools()]
        contents = [await node.call(name, {"n": 1}) for name in ("srv.echo", "echo")]
        await node.close()
        await node.close()
        with pytest.raises(ToolNodeError, match="not connected"):
            node.get_tools()
        assert way != "stdio-legacy" or not is_alive(rogue.pids[0])
    assert (names, rogue.greetings, registry.list()) == (["srv.echo"], 1, [])
    assert [content["arguments"] for content in contents] == [{"n": 1}, {"n": 1}]


@pytest.mark.req("NODE-03")
async def test_whoever_connects_a_node_that_is_being_connected_waits_for_it(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), ready_s=0.3)
    node = ToolNode(config=rogue.config(), registry=ToolRegistry())
    first = asyncio.create_task(node.connect())
    await until(lambda: rogue.pids)
    try:
        await node.connect()
        assert [one.spec.name for one in node.get_tools()] == ["srv.echo"]
    finally:
        await first
        await node.close()
    assert rogue.greetings == 1


@pytest.mark.req("KMCP-04")
async def test_a_node_that_cannot_connect_says_so_leaves_nothing_behind_and_can_try_again(tmp_path: Path) -> None:
    rogue, registry = Rogue(tmp_path, tool("echo"), modes=["mute"]), ToolRegistry()
    node = ToolNode(config=rogue.config(connect_timeout_s=2.5), registry=registry)
    with pytest.raises(ToolConnectionError, match=r"2\.5"):
        await node.connect()
    assert registry.list() == []
    assert not any(is_alive(pid) for pid in rogue.pids)
    rogue.plan(modes=[])
    async with node:
        assert (await node.call("echo", {}))["name"] == "echo"


@pytest.mark.req("RES-03", "RES-04")
async def test_a_node_raises_what_went_wrong_and_cancellation_as_it_is(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("hang", do={"hang": True}), tool("pay", do={"exit": 1}), tool("echo"))
    async with ToolNode(config=rogue.config(timeout_s=3), registry=ToolRegistry()) as node:
        with pytest.raises(ToolTimeoutError):
            await node.call("hang", {})
        calling = asyncio.create_task(node.call("hang", {}))
        await until(lambda: rogue.runs("hang") == 2)
        calling.cancel()
        with pytest.raises(asyncio.CancelledError):
            await calling
        with pytest.raises(ToolConnectionError):
            await node.call("pay", {})
        assert (await node.call("echo", {}))["name"] == "echo"
    assert rogue.runs("pay") == 1


@pytest.mark.req("RES-05")
async def test_an_error_of_a_server_says_that_it_came_over_mcp(tmp_path: Path) -> None:
    reported = answering("bad", {**text("no such branch"), "isError": True})
    refused = tool("refuse", do={"error": {"code": -32602, "message": "no"}})
    rogue = Rogue(tmp_path, reported, refused, tool("die", do={"exit": 1}))
    async with ToolNode(config=rogue.config(), registry=ToolRegistry()) as node:
        for name in ("bad", "refuse", "die"):
            with pytest.raises(ToolNodeError, match=r"^MCP (tool error|connection failed): "):
                await node.call(name, {})


@pytest.mark.req("PMCP-01", "PMCP-03", "PMCP-04")
async def test_a_manager_connects_whom_it_can_and_lets_all_of_them_go(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    local, manager = Rogue(tmp_path, tool("echo"), name="local"), MCPManager()
    bad, off = Rogue(tmp_path, name="bad", modes=["exit"]), Rogue(tmp_path, name="off")
    with (
        http_rogue(tmp_path, tool("echo"), name="new", only="mcp") as new,
        http_rogue(tmp_path, tool("echo"), name="old", path="/sse", only="sse") as old,
    ):
        configs = [local.config(), bad.config(), off.config(enabled=False), new.config(), old.config()]
        report = await manager.connect_all(configs)
        tools = {name: [one.spec.name for one in manager.list_tools(name)] for name in report.connected}
        results = [await manager.call_tool(name, "echo", {"n": 1}) for name in report.connected]
        lost = await manager.call_tool("local", "no_such_tool", {})
        await manager.disconnect_all()
        await manager.disconnect_all()
    assert (report.connected, list(report.failed), off.pids) == (["local", "new", "old"], ["bad"], [])
    assert "bad" in caplog.text
    assert tools == {name: [f"{name}.echo"] for name in report.connected}
    assert [result.result["arguments"] for result in results] == [{"n": 1}] * 3
    assert not lost.success
    assert not is_alive(local.pids[0])


@pytest.mark.req("PMCP-06", "PMCP-10", "RES-06")
async def test_a_managers_tools_say_whose_they_are_and_fail_as_results(tmp_path: Path) -> None:
    bad = answering("bad", {**text("no such branch"), "isError": True})
    rogue = Rogue(tmp_path, tool("echo", description="Echo."), bad, tool("die", do={"exit": 1}))
    manager, mine, other = MCPManager(), ToolRegistry(), ToolRegistry()
    await manager.connect_all([rogue.config()])
    try:
        count = manager.load_tools(mine, other)
        run = {one.spec.name: one.execute for one in mine.list()}
        good, reported, died = [await run[f"srv.{name}"]({}, ToolContext()) for name in ("echo", "bad", "die")]
    finally:
        await manager.disconnect_all()
    assert count == len(mine.list()) == len(other.list()) == 3
    assert mine.find("srv.echo").spec.description == "[srv] Echo."
    assert (good.success, good.result["name"]) == (True, "echo")
    assert (reported.success, died.success) == (False, False)
    assert "no such branch" in (reported.error or "")
    assert rogue.runs("die") == 1
