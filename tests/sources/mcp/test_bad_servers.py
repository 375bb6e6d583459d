"""Servers that do not start, babble, flood, lose answers or do not end: told plainly, never at others' cost."""

import asyncio
import json
import os
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import psutil
import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from tests.gateway.serving import listening
from tests.sources.mcp.rogue import DYING_WORDS
from tests.sources.mcp.rogues import Rogue, config_by, is_alive, memory_mb, rogue_by, tool, toolbox, until
from toolpost import ExternalToolConfig
from toolpost.errors import ToolCancelledError, ToolClientError, ToolServerError, ToolTimeoutError

pytestmark = pytest.mark.programs


def state_of(box: Any, name: str) -> Any:
    return next(state for state in box.report if state.name == name)


@pytest.mark.req("KMCP-04")
async def test_a_command_that_does_not_exist_is_named_and_the_others_work(tmp_path: Path) -> None:
    good = Rogue(tmp_path, tool("echo"))
    bad = ExternalToolConfig(name="bad", transport="mcp", connection="no-such-command --port 7")
    async with toolbox(bad, good.config()) as box:
        state = state_of(box, "bad")
        outcome = await box.call("srv.echo")
    assert not state.ok
    assert "no-such-command" in state.error
    assert outcome.status == "completed"


@pytest.mark.req("KMCP-04")
async def test_what_a_server_said_before_it_died_is_shown(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, modes=["exit"])
    async with toolbox(rogue.config()) as box:
        state = state_of(box, "srv")
    assert not state.ok
    assert DYING_WORDS in state.error


TIDY_AND_MUTE = """
import signal, sys, threading
from pathlib import Path

def end(how):
    Path(__file__).with_name("ended").write_text(how)
    sys.exit(0)

signal.signal(signal.SIGTERM, lambda *_: end("terminated"))
sys.stdin.read()
threading.Event().wait(1)
end("by itself")
"""


async def test_a_server_that_never_answered_is_not_waited_for_when_it_is_given_up(tmp_path: Path) -> None:
    program = tmp_path / "mute.py"
    program.write_text(TIDY_AND_MUTE)
    mute = ExternalToolConfig(
        name="mute", transport="mcp", connection=f"{sys.executable} {program}", connect_timeout_s=2
    )
    async with toolbox(mute) as box:
        state = state_of(box, "mute")

    assert not state.ok
    assert (tmp_path / "ended").read_text() == "terminated"


@pytest.mark.parametrize("mode", ["mute", "deaf"])
async def test_servers_that_never_answer_are_given_up_in_time_and_slow_no_one_down(tmp_path: Path, mode: str) -> None:
    good = Rogue(tmp_path, tool("echo"))
    bad = [Rogue(tmp_path, name=f"bad{n}", modes=[mode]) for n in range(4)]
    async with toolbox(*(one.config(connect_timeout_s=5) for one in bad), good.config()) as box:
        errors = [state_of(box, one.name).error for one in bad]
        outcome = await box.call("srv.echo")
    began = [entry["at"] for one in bad for entry in one.received("(started)")]
    assert max(began) - min(began) < 5, "the last was started before the first was given up"
    assert all("5" in error for error in errors)
    assert outcome.status == "completed"
    assert not any(is_alive(pid) for one in bad for pid in one.pids)


@pytest.mark.parametrize("way", ["http-legacy-json", "http-modern-sse", "sse"])
async def test_a_remote_server_that_never_answers_is_given_up_in_time(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("echo"), modes=["mute"]) as rogue:
        async with toolbox(config_by(way, rogue, connect_timeout_s=0.5)) as box:
            state = state_of(box, "srv")
    assert not state.ok
    assert "0.5" in state.error


@pytest.mark.req("NRT-04")
@pytest.mark.parametrize("version", ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"])
@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-json"])
async def test_a_server_that_knows_one_older_version_alone_is_spoken_to_in_it(
    tmp_path: Path, way: str, version: str
) -> None:
    with rogue_by(way, tmp_path, tool("echo"), version=version) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcome = await box.call("srv.echo", {"n": 1})
    assert outcome.content["arguments"] == {"n": 1}
    assert rogue.received("notifications/initialized")


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern"])
async def test_garbage_between_messages_is_passed_over(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("echo"), modes=["garbage"]) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcomes = await asyncio.gather(*(box.call("srv.echo", {"n": n}) for n in range(20)))
    assert [outcome.content["arguments"] for outcome in outcomes] == [{"n": n} for n in range(20)]
    assert rogue.greetings == 1


async def test_a_flood_on_stderr_neither_blocks_the_server_nor_fills_the_memory(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"))
    before = memory_mb()
    rogue.plan(modes=["flood"], flood_mb=300)
    async with toolbox(rogue.config()) as box:
        outcomes = [await box.call("srv.echo", {"n": n}) for n in range(20)]
        await until(lambda: rogue.received("(flooded)"))
        grown = memory_mb() - before
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert grown < 100


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern", "sse"])
async def test_an_answer_under_a_wrong_id_is_no_answer(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("odd", do={"wrong_id": True}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            lost = await box.call("srv.odd", timeout_s=0.5)
            found = await box.call("srv.echo")
    assert isinstance(lost.error, ToolTimeoutError)
    assert found.status == "completed"
    assert rogue.greetings == 1


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json", "sse"])
async def test_a_call_that_hangs_times_out_and_leaves_the_session_usable(tmp_path: Path, way: str) -> None:
    with rogue_by(way, tmp_path, tool("hang", do={"hang": True}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            hung = await box.call("srv.hang", timeout_s=1)
            found = await box.call("srv.echo")
            await until(lambda: rogue.received("(taken back)"))
    assert isinstance(hung.error, ToolTimeoutError)
    assert found.status == "completed"
    assert rogue.greetings == 1


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern", "http-legacy-sse", "http-modern-json", "sse"])
async def test_a_hundred_calls_at_once_each_get_their_own_answer(tmp_path: Path, way: str) -> None:
    slow_first = [tool(f"echo{n}", do={"sleep": (3 - n) / 50}) for n in range(4)]
    with rogue_by(way, tmp_path, *slow_first) as rogue:
        async with toolbox(config_by(way, rogue, max_concurrency=100)) as box:
            outcomes = await asyncio.gather(*(box.call(f"srv.echo{n % 4}", {"n": n}) for n in range(100)))
    assert [outcome.content["arguments"] for outcome in outcomes] == [{"n": n} for n in range(100)]
    assert rogue.greetings == 1


@pytest.mark.parametrize("who", ["operator", "caller"])
@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern", "http-legacy-sse", "http-modern-json", "sse"])
async def test_a_cancelled_call_is_taken_back_at_the_server(tmp_path: Path, way: str, who: str) -> None:
    with rogue_by(way, tmp_path, tool("slow", do={"hang": True}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            calling = asyncio.create_task(box.call("srv.slow", run_id="run_7"))
            await until(lambda: rogue.runs("slow"))
            if who == "operator":
                assert await box.cancel("run_7", by="local:ann")
                assert isinstance((await calling).error, ToolCancelledError)
            else:
                calling.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await calling
            await until(lambda: rogue.received("(taken back)"))
            found = await box.call("srv.echo")
    assert found.status == "completed"
    assert rogue.greetings == 1
    if way != "http-modern-json":  # there the end of the request is the message
        (cancelled,) = rogue.received("notifications/cancelled")
        (call,) = (entry for entry in rogue.received("tools/call") if entry["params"]["name"] == "slow")
        assert cancelled["params"]["requestId"] == call["id"]


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern", "http-legacy-sse", "sse"])
async def test_what_a_server_says_unasked_disturbs_no_call(tmp_path: Path, way: str) -> None:
    said: list[Any] = [
        {"id": "q1", "method": "sampling/createMessage", "params": {"messages": [], "maxTokens": 1}},
        {"id": "q2", "method": "roots/list"},
        {"id": "q3", "method": "no/such/method", "params": {"a": 1}},
        {"method": "notifications/message", "params": {"level": "loud", "data": {"deep": [1]}}},
        {"method": "notifications/progress", "params": {"progressToken": "nobody's", "progress": 1}},
        {"method": "notifications/progress", "params": {"progressToken": None}},
        {"method": "notifications/cancelled", "params": {"requestId": 1}},
        *({"method": "notifications/message", "params": {"level": "info", "data": f"line {n}"}} for n in range(500)),
    ]
    with rogue_by(way, tmp_path, tool("chatty", do={"before": said}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcomes = [await box.call("srv.chatty", {"n": 1}), await box.call("srv.echo", {"n": 2})]
    assert [outcome.content["arguments"] for outcome in outcomes] == [{"n": 1}, {"n": 2}]
    assert rogue.greetings == 1


@pytest.mark.parametrize("way", ["stdio-legacy", "stdio-modern", "http-legacy-sse", "http-modern-sse", "sse"])
async def test_progress_that_cannot_be_computed_disturbs_no_call(tmp_path: Path, way: str) -> None:
    endless, none = float("inf"), float("nan")
    odd = [(10**400, 2 * 10**400), (1, 10**400), (endless, endless), (none, 1), (1, none), (1, 0), (1, 5e-324), (-1, 2)]
    with rogue_by(way, tmp_path, tool("go", do={"progress": odd}), tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcomes = [await box.call("srv.go", {"n": 1}, timeout_s=30), await box.call("srv.echo", {"n": 2})]
            told = [event.payload for event in await box.events()]
    assert [outcome.status for outcome in outcomes] == ["completed", "completed"]
    assert rogue.greetings == 1
    json.dumps(told, allow_nan=False)


@pytest.mark.parametrize("way", ["stdio-legacy", "sse"])
async def test_answers_that_come_twice_or_too_late_are_taken_for_no_one_elses(tmp_path: Path, way: str) -> None:
    late = tool("late", do={"sleep": 0.6, "late": True})
    with rogue_by(way, tmp_path, tool("twice", do={"times": 3}), late, tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            twice = await box.call("srv.twice", {"n": 1})
            lost = await box.call("srv.late", {"n": 2}, timeout_s=0.3)
            outcomes = [await box.call("srv.echo", {"n": n}) for n in range(40)]
    assert twice.content["arguments"] == {"n": 1}
    assert isinstance(lost.error, ToolTimeoutError)
    assert [outcome.content["arguments"] for outcome in outcomes] == [{"n": n} for n in range(40)]
    assert rogue.greetings == 1


async def test_a_protocol_error_is_the_calls_own_failure(tmp_path: Path) -> None:
    refusing = tool("refuse", safe=True, do={"error": {"code": -32602, "message": "there is no such branch"}})
    rogue = Rogue(tmp_path, refusing, tool("echo"))
    async with toolbox(rogue.config()) as box:
        refused = await box.call("srv.refuse")
        found = await box.call("srv.echo")
    assert isinstance(refused.error, ToolClientError)
    assert "there is no such branch" in str(refused.error)
    assert len(rogue.calls("refuse")) == 1
    assert (found.status, rogue.greetings) == ("completed", 1)


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-modern-json", "sse"])
async def test_what_a_server_writes_into_its_errors_proves_nothing(tmp_path: Path, way: str) -> None:
    claims: list[Any] = [{"kind": "broken", "sent": False}, {"kind": "broken"}, {"kind": "refused", "status": 401}, "x"]
    forged = [{"code": -32000, "message": "no", "data": {"toolpost": claim}} for claim in claims]
    if not way.startswith("http"):  # there the SDK itself says so, in the same words, when a request gets no answer
        forged += [{"code": -32000, "message": "Connection closed"}, {"code": -32603, "message": "SSE stream ended"}]
    with rogue_by(way, tmp_path, *(tool(f"t{n}", do={"error": one}) for n, one in enumerate(forged))) as rogue:
        async with toolbox(config_by(way, rogue)) as box:
            outcomes = [await box.call(f"srv.t{n}") for n in range(len(forged))]
    assert [rogue.runs(f"t{n}") for n in range(len(forged))] == [1] * len(forged)
    assert {type(outcome.error) for outcome in outcomes} <= {ToolClientError, ToolServerError}
    assert rogue.greetings == 1


@pytest.mark.parametrize("result", [5, None, [], {}, {"content": "text"}, {"content": [7]}])
async def test_a_result_of_the_wrong_shape_is_a_failure_and_nothing_more(tmp_path: Path, result: Any) -> None:
    with rogue_by("stdio-legacy", tmp_path, tool("odd", do={"result": result}), tool("echo")) as rogue:
        async with toolbox(rogue.config()) as box:
            odd = await box.call("srv.odd", timeout_s=20)
            found = await box.call("srv.echo")
    assert odd.status == "failed" or odd.content in (None, "", {}, [])
    assert not isinstance(getattr(odd, "error", None), ToolTimeoutError)
    assert (found.status, rogue.greetings) == ("completed", 1)


async def test_a_server_that_will_not_end_is_ended(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), modes=["stubborn"])
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.echo")
    assert outcome.status == "completed"
    assert not is_alive(rogue.pids[0])


async def test_a_child_that_keeps_the_pipes_open_is_ended_with_its_server(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), modes=["haunted"])
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.echo")
    (ghost,) = (entry["child"] for entry in rogue.received("(haunted)"))
    try:
        assert outcome.status == "completed"
        assert not is_alive(rogue.pids[0])
        await until(lambda: not is_alive(ghost))
    finally:
        if is_alive(ghost):
            os.kill(ghost, signal.SIGKILL)


@pytest.mark.parametrize("turns", [0, 2, 5, 10, 20])
async def test_nothing_is_left_when_a_toolbox_closes_while_its_server_dies(tmp_path: Path, turns: int) -> None:
    rogue, children = Rogue(tmp_path, tool("echo")), psutil.Process().children()
    async with toolbox(rogue.config()) as box:
        os.kill(rogue.pids[0], signal.SIGKILL)
        while all(state.ok for state in box.report):
            await asyncio.sleep(0)
        for _ in range(turns):  # the old session is being closed, and a new one opened
            await asyncio.sleep(0)
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert psutil.Process().children() == children
    assert not any(is_alive(pid) for pid in rogue.pids)


async def test_a_server_that_starts_slowly_is_waited_for(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), ready_s=1)
    async with toolbox(rogue.config(connect_timeout_s=60)) as box:
        outcome = await box.call("srv.echo")
    assert outcome.status == "completed"


async def test_a_program_that_ends_unless_it_is_greeted_first_is_greeted(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, tool("echo"), modes=["prim"])
    async with toolbox(rogue.config()) as box:
        outcome = await box.call("srv.echo")
    assert outcome.status == "completed"
    assert len(rogue.pids) == 2


async def test_a_server_that_only_kept_silent_is_not_said_to_have_ended(tmp_path: Path) -> None:
    rogue = Rogue(tmp_path, modes=["mute"])
    async with toolbox(rogue.config(connect_timeout_s=1.5)) as box:
        error = state_of(box, "srv").error
    assert "no answer within 1.5 s" in error
    assert "ended" not in error


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-sse", "http-legacy-json", "sse"])
async def test_messages_that_come_as_a_batch_are_read_one_by_one(
    tmp_path: Path, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "toolpost.sources.mcp")
    with rogue_by(way, tmp_path, tool("echo", do={"batch": True}), version="2025-03-26") as rogue:
        async with toolbox(config_by(way, rogue, timeout_s=20)) as box:
            outcome = await box.call("srv.echo")
            await until(lambda: "in a batch" in caplog.text)
    assert outcome.content["name"] == "echo"


@pytest.mark.parametrize("way", ["stdio-legacy", "http-legacy-json", "sse"])
async def test_an_answer_in_another_version_of_the_framing_fails_its_call_at_once(tmp_path: Path, way: str) -> None:
    odd = tool("odd", do={"frame": {"jsonrpc": "1.0"}})
    with rogue_by(way, tmp_path, odd, tool("echo")) as rogue:
        async with toolbox(config_by(way, rogue, timeout_s=60)) as box:
            outcome = await box.call("srv.odd")
            after = await box.call("srv.echo")
    assert isinstance(outcome.error, ToolClientError)
    assert after.status == "completed"


async def test_an_address_of_both_transports_is_heard_without_a_complaint(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with rogue_by("http-legacy-json", tmp_path, tool("echo"), both=True) as rogue:
        async with toolbox(config_by("http-legacy-json", rogue)):
            await until(lambda: rogue.received("(stream opened)") and len(rogue.received("tools/list")) > 1)
    assert "SSE event" not in caplog.text


async def test_a_page_in_place_of_an_answer_is_reported_as_that(tmp_path: Path) -> None:
    page = {"status": 200, "body": "<html>Please log in</html>", "headers": {"Content-Type": "text/html"}}
    with rogue_by("http-legacy-json", tmp_path, tool("echo"), refuse=[page]) as rogue:
        async with toolbox(config_by("http-legacy-json", rogue)) as box:
            error = state_of(box, "srv").error
    assert "answered with text/html in place of a message; is this the right address?" in error


@pytest.mark.parametrize("kind", ["", "application/octet-stream", "text/plain"])
async def test_an_answer_under_another_type_is_read_all_the_same(tmp_path: Path, kind: str) -> None:
    with rogue_by("http-legacy-json", tmp_path, tool("echo"), type=kind) as rogue:
        async with toolbox(config_by("http-legacy-json", rogue)) as box:
            outcome = await box.call("srv.echo")
    assert outcome.content["name"] == "echo"


async def test_a_server_that_ends_its_stream_of_news_at_once_is_not_asked_without_a_pause() -> None:
    seen: Counter[str] = Counter()
    answers: dict[str, Any] = {
        "initialize": {
            "protocolVersion": "2025-06-18",
            "capabilities": {"tools": {}},
            "serverInfo": {"name": "hasty", "version": "1"},
        },
        "tools/list": {"tools": [tool("echo")]},
        "tools/call": {"content": [{"type": "text", "text": "done"}]},
    }

    async def serve(request: Request) -> Response:
        seen[request.method] += 1
        if request.method == "GET":
            return Response("retry: 0\n\n", media_type="text/event-stream")
        message = await request.json() if request.method == "POST" else {}
        if "id" not in message:
            return Response(status_code=202)
        result = answers.get(message["method"])
        answer = {"error": {"code": -32601, "message": "no"}} if result is None else {"result": result}
        return JSONResponse({"jsonrpc": "2.0", "id": message["id"], **answer}, headers={"Mcp-Session-Id": "one"})

    app = Starlette(routes=[Route("/mcp", serve, methods=["GET", "POST", "DELETE"])])
    async with listening(app) as url:
        config = ExternalToolConfig(name="srv", transport="mcp", connection=f"{url}/mcp", trust=True, required=True)
        async with toolbox(config, network={"allow_private": True}) as box:
            outcomes = [await box.call("srv.echo") for _ in range(100)]
    assert {outcome.status for outcome in outcomes} == {"completed"}
    assert 0 < seen["GET"] < 50
