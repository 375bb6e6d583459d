"""What a kill -9 leaves behind: nothing lost, nothing run twice in silence."""

import asyncio
import json
import os
import signal
from pathlib import Path
from textwrap import dedent

import pytest

from tests.warm import Program
from toolpost import Paused, Settings, Toolbox, model_text, tool
from toolpost.configuration.settings import ApprovalSettings
from toolpost.errors import ToolConflictError, ToolPermissionError

pytestmark = pytest.mark.programs

ANN = "acme:ann"

HOST = dedent(
    """
    import asyncio, os, sys
    from pathlib import Path
    from toolpost import Settings, Toolbox, ToolContext, tool

    folder = Path(sys.argv[1])

    @tool(side_effects="write")
    async def pay(amount: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"{amount}\\n")
        if not (folder / "go").exists():
            print("inside", flush=True)
            await asyncio.sleep(60)
        return "paid"

    @tool(side_effects="write", idempotent=True)
    async def put(n: int) -> str:
        print("inside", flush=True)
        await asyncio.sleep(60)
        return "put"

    @tool(side_effects="read")
    async def look(n: int, ctx: ToolContext) -> str:
        await ctx.once("step", lambda: asyncio.sleep(0))  # when this is durable, so are the events before it
        print("inside", flush=True)
        await asyncio.sleep(60)
        return "seen"

    @tool(side_effects="read", destructive=True)
    async def peek(n: int, ctx: ToolContext) -> str:
        await ctx.once("step", lambda: asyncio.sleep(0))
        print("inside", flush=True)
        await asyncio.sleep(60)
        return "seen"

    @tool(side_effects="write", destructive=True)
    async def drop(n: int) -> str:
        with (folder / "ledger").open("a") as ledger:
            ledger.write(f"drop {n}\\n")
        if not (folder / "go").exists():
            print("inside", flush=True)
            await asyncio.sleep(60)
        return "dropped"

    @tool(side_effects="write")
    async def compute(n: int) -> str:
        from concurrent.futures import ProcessPoolExecutor

        with ProcessPoolExecutor(1) as pool:
            print(pool.submit(os.getpid).result(), flush=True)
            await asyncio.sleep(60)
        return "computed"

    @tool(side_effects="write")
    async def trip(stops: list[int], ctx: ToolContext) -> list[str]:
        paid = [(await ctx.call("pay", {"amount": stop})).content for stop in stops]
        if not (folder / "arrived").exists():
            print("inside", flush=True)
            await asyncio.sleep(60)
        return paid

    @tool(name="shop.ship", side_effects="write")
    async def ship() -> str:
        print("inside", flush=True)
        await asyncio.sleep(60)
        return "shipped"

    tools = [pay, put, look, peek, drop, compute, trip, ship]

    async def main():
        async with Toolbox(tools=tools, settings=Settings(data_dir=folder / "data")) as box:
            if sys.argv[2] == "die before settling":
                box.store.pending.settle = lambda *_, **__: os._exit(9)
            if sys.argv[2] == "die before telling the end":
                box.router.emitter.emit_end = lambda *_, **__: os._exit(9)
                await box.call("trip", {"stops": [1]}, user="acme:ann")
            if sys.argv[2] in ("answer", "die before settling"):
                (action,) = await box.pending.list(by="acme:ann")
                await box.approve(action.id, by="acme:ann")
            elif sys.argv[2] == "rerun":
                (action,) = await box.pending.list(by="acme:ann")
                outcome = await box.answer(action.id, by="acme:ann", decision="rerun")
                print(outcome.status, flush=True)
            elif sys.argv[2] == "die before telling":
                box.store.pending.settle = lambda *_, **__: os._exit(9)
                box.router.emitter.emit_end = lambda *_, **__: None
                (action,) = await box.pending.list(by="acme:ann")
                await box.cancel(action.call_id, by="acme:ann")
            elif sys.argv[2] == "die after asking":
                box.router.emitter.emit_pause = lambda *_: os._exit(9)
                await box.call("drop", {"n": 1}, user="acme:ann")
            else:
                name, arguments, key = sys.argv[2:5]
                outcome = await box.call(name, eval(arguments), user="acme:ann", idempotency_key=key or None)
                print(outcome.status, flush=True)

    asyncio.run(main())
    """
)


def start(folder: Path, *arguments: str) -> Program:
    script = folder / "host.py"
    script.write_text(HOST)
    return Program(script, str(folder), *arguments)


def kill_inside(folder: Path, *arguments: str) -> None:
    """Start a call in another process and kill that with -9 while the tool runs."""
    with start(folder, *arguments) as process:
        assert process.stdout.readline() == "inside\n"
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def ledger(folder: Path) -> list[str]:
    return (folder / "ledger").read_text().splitlines()


@tool(side_effects="write")
async def pay(amount: int) -> str:
    return f"paid {amount} again"


@tool(side_effects="write", idempotent=True)
async def put(n: int) -> str:
    return "put"


def reopened(folder: Path) -> Toolbox:
    return Toolbox(tools=[pay, put], settings=Settings(data_dir=folder / "data"))


@pytest.mark.parametrize(
    ("decision", "status", "content"),
    [("happened", "completed", "receipt 7"), ("not_happened", "failed", None), ("rerun", "completed", "paid 5 again")],
)
async def test_an_unsafe_call_interrupted_goes_to_a_person(
    tmp_path: Path, decision: str, status: str, content: str | None
) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
        assert action.question.kind == "unknown"
        assert dict(action.arguments) == {"amount": 5}
        outcome = await box.answer(action.id, "receipt 7", by=ANN, decision=decision)  # type: ignore[arg-type]
        assert await box.pending.list(by=ANN) == []
        told = [event.code.value for event in await box.events(user=ANN, run_id=action.run_id)]
        assert await box.store.events.verify(action.run_id) == []
    assert outcome.status == status
    assert getattr(outcome, "content", None) == content
    assert ledger(tmp_path) == ["5"]
    assert told[:3] == [400, 405, 440]
    assert told[-1] == (410 if status == "completed" else 420)


async def test_an_interrupted_call_of_a_model_is_asked_about_by_the_name_of_its_tool(tmp_path: Path) -> None:
    kill_inside(tmp_path, "shop__ship", "{}", "")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
    assert action.tool_name == "shop.ship"
    assert action.question.prompt.startswith("shop.ship was interrupted")


async def test_with_four_eyes_someone_else_says_what_became_of_an_interrupted_call(tmp_path: Path) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "")
    settings = Settings(data_dir=tmp_path / "data", approvals=ApprovalSettings(four_eyes=True))
    async with Toolbox(tools=[pay], settings=settings) as box:
        (action,) = await box.pending.list(by=ANN)
        assert action.question.arguments == {"amount": 5}
        assert action.question.target["kind"] == "python"
        with pytest.raises(ToolPermissionError, match="the requester may not answer"):
            await box.answer(action.id, by=ANN, decision="rerun")
        outcome = await box.answer(action.id, by="acme:bob", decision="happened")
    assert model_text(outcome) == "It happened, according to the answer; its result is not known."


async def test_an_interrupted_call_is_not_run_again_by_other_code_than_was_asked_about(tmp_path: Path) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)

    @tool(name="pay", side_effects="write")
    async def other(amount: int) -> str:
        return f"paid {amount} a hundred times"

    async with Toolbox(tools=[other], settings=Settings(data_dir=tmp_path / "data")) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.answer(action.id, by=ANN, decision="rerun")


async def test_an_interrupted_call_is_known_where_its_tool_is_not(tmp_path: Path) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "")
    settings = Settings(data_dir=tmp_path / "data")
    async with Toolbox(settings=settings) as box:
        (action,) = await box.pending.list(by=ANN)

    @tool(name="pay", side_effects="write")
    async def other(amount: int) -> str:
        return f"paid {amount} a hundred times"

    assert (action.question.arguments, action.question.target["kind"]) == ({"amount": 5}, "python")
    async with Toolbox(tools=[other], settings=settings) as box:
        with pytest.raises(ToolConflictError, match="has changed since the question"):
            await box.answer(action.id, by=ANN, decision="rerun")


async def test_a_repeatable_call_interrupted_is_closed_as_failed_and_its_key_is_free(tmp_path: Path) -> None:
    kill_inside(tmp_path, "put", '{"n": 1}', "k1")
    async with reopened(tmp_path) as box:
        assert await box.pending.list(by=ANN) == []
        (run,) = await box.runs(user=ANN)
        assert run.status == "failed"
        again = await box.call("put", {"n": 1}, user=ANN, idempotency_key="k1")
    assert again.status == "completed"


async def test_a_worker_process_that_outlives_its_host_does_not_keep_the_call_running(tmp_path: Path) -> None:
    with start(tmp_path, "compute", '{"n": 1}', "") as process:
        worker = int(process.stdout.readline())
        os.kill(process.pid, signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL
        try:
            os.kill(worker, 0)
            async with reopened(tmp_path) as box:
                (action,) = await box.pending.list(by=ANN)
        finally:
            os.kill(worker, signal.SIGKILL)
    assert (action.question.kind, action.tool_name) == ("unknown", "compute")


@pytest.mark.req("NEVT-05")
async def test_a_read_interrupted_is_reported_as_failed_once(tmp_path: Path) -> None:
    kill_inside(tmp_path, "look", '{"n": 1}', "")
    async with reopened(tmp_path) as box:
        (run,) = await box.runs(user=ANN)
        await box.recovery.sweep()
        told = await box.events(user=ANN, run_id=run.run_id)
        assert await box.store.events.verify(run.run_id) == []
    assert run.status == "failed"
    assert [event.code.value for event in told] == [400, 405, 420]
    assert told[-1].payload["error_code"] == "interrupted"


async def test_a_call_that_crashes_again_when_run_again_is_asked_about_again(tmp_path: Path) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "")
    kill_inside(tmp_path, "rerun")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
    assert action.question.kind == "unknown"
    assert ledger(tmp_path) == ["5", "5"]


async def test_a_call_that_is_run_again_does_not_repeat_what_was_done_inside_it(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    kill_inside(tmp_path, "trip", '{"stops": [1, 2, 1]}', "")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
    (tmp_path / "arrived").touch()
    with start(tmp_path, "rerun") as process:
        assert process.stdout.read() == "completed\n"

    assert action.question.prompt.endswith(
        "Its nested calls that are done, and are not repeated if it runs again: pay (3 times)."
    )
    assert ledger(tmp_path) == ["1", "2", "1"]
    async with reopened(tmp_path) as box:
        settled = await box.pending.get(action.id, by=ANN)
    assert settled.outcome is not None
    assert settled.outcome["content"] == ["paid"] * 3


async def test_a_call_inside_another_gets_its_end_after_a_crash(tmp_path: Path) -> None:
    (tmp_path / "go").touch()
    with start(tmp_path, "die before telling the end") as process:
        assert process.wait() == 9
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
        told = await box.events(user=ANN, run_id=action.run_id)
        await box.recovery.sweep()
        assert len(await box.events(user=ANN, run_id=action.run_id)) == len(told)
        assert await box.store.events.verify() == []
    inner = [event.code.value for event in told if event.call_id != action.call_id]
    assert (action.tool_name, inner) == ("trip", [400, 405, 410])


async def test_a_key_of_an_interrupted_unsafe_call_leads_to_its_question(tmp_path: Path) -> None:
    kill_inside(tmp_path, "pay", '{"amount": 5}', "k1")
    async with reopened(tmp_path) as box:
        again = await box.call("pay", {"amount": 5}, user=ANN, idempotency_key="k1")
        (action,) = await box.pending.list(by=ANN)
    assert isinstance(again, Paused)
    assert again.pending_id == action.id
    assert ledger(tmp_path) == ["5"]


async def test_an_approved_call_killed_inside_becomes_unknown_and_never_runs_by_itself(tmp_path: Path) -> None:
    pause(tmp_path, "drop")
    kill_inside(tmp_path, "answer")
    (tmp_path / "go").touch()
    with start(tmp_path, "pay", '{"amount": 1}', "") as process:
        assert process.stdout.read() == "completed\n"
    assert ledger(tmp_path) == ["drop 1", "1"]
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
        assert action.question.kind == "unknown"
        assert action.tool_name == "drop"


def pause(folder: Path, name: str) -> None:
    with start(folder, name, '{"n": 1}', "") as process:
        assert process.stdout.read() == "paused\n"


async def test_a_process_without_the_tool_does_not_open_an_answered_question_again(tmp_path: Path) -> None:
    pause(tmp_path, "drop")
    kill_inside(tmp_path, "answer")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
    assert action.question.kind == "unknown"
    assert ledger(tmp_path) == ["drop 1"]


async def test_a_call_that_ended_before_its_question_was_settled_is_not_asked_about_again(tmp_path: Path) -> None:
    pause(tmp_path, "drop")
    (tmp_path / "go").touch()
    with start(tmp_path, "die before settling") as process:
        assert process.wait() == 9
    async with reopened(tmp_path) as box:
        assert await box.pending.list(by=ANN) == []
        (settled,) = await box.pending.list(by=ANN, status="answered")
    assert settled.outcome is not None
    assert settled.outcome["content"] == "dropped"
    assert ledger(tmp_path) == ["drop 1"]


async def test_a_question_that_nobody_was_told_of_is_no_end(tmp_path: Path) -> None:
    with start(tmp_path, "die after asking") as process:
        assert process.wait() == 9
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
        waiting = await box.run(action.run_id, user=ANN)
        await box.deny(action.id, by=ANN)
        told = [event.code.value for event in await box.events(user=ANN, run_id=action.run_id)]
    assert waiting is not None
    assert waiting.status == "paused"
    assert told == [400, 430, 432, 420]


async def test_a_call_that_was_cancelled_while_it_waited_gets_its_end_from_the_next_process(tmp_path: Path) -> None:
    pause(tmp_path, "drop")
    with start(tmp_path, "die before telling") as process:
        assert process.wait() == 9
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN, status="cancelled")
        told = [event.code.value for event in await box.events(user=ANN, run_id=action.run_id)]
    assert action.outcome is not None
    assert action.outcome["error"]["error_code"] == "cancelled"
    assert told == [400, 430, 420]


async def test_an_answered_read_that_was_killed_waits_for_a_process_that_has_the_tool(tmp_path: Path) -> None:
    pause(tmp_path, "peek")
    kill_inside(tmp_path, "answer")
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
        told = [event.code.value for event in await box.events(user=ANN, run_id=action.run_id)]
        run = await box.run(action.run_id, user=ANN)
    assert (action.question.kind, action.tool_name) == ("approval", "peek")
    assert run is not None
    assert run.status == "paused"
    assert not {410, 420} & set(told)


async def test_an_answer_is_left_to_others_by_a_process_that_left_out_its_source(tmp_path: Path) -> None:
    pause(tmp_path, "peek")
    kill_inside(tmp_path, "answer")
    config = tmp_path / "toolpost.yaml"
    config.write_text("data_dir: data\nsources: [{name: peek, transport: python, connection: tools.py}]\n")
    async with Toolbox.open(config, only=()) as box:
        assert await box.pending.list(by=ANN) == []
    async with reopened(tmp_path) as box:
        (action,) = await box.pending.list(by=ANN)
    assert action.tool_name == "peek"


async def test_a_living_process_s_calls_are_left_alone(tmp_path: Path) -> None:
    with start(tmp_path, "pay", '{"amount": 5}', "") as process:
        assert process.stdout.readline() == "inside\n"
        async with reopened(tmp_path) as box:
            assert await box.pending.list(by=ANN) == []
            (run,) = await box.runs(user=ANN)
            assert run.status == "running"
            assert await box.cancel(run.run_id, by=ANN)
            said = await asyncio.to_thread(process.stdout.readline)
    assert said == "failed\n"
    assert json.dumps(ledger(tmp_path)) == '["5"]'
