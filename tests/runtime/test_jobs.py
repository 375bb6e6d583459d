"""Background work in this process: jobs in the store, which end at a pause and continue with the answer."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from toolpost import Settings, Toolbox, ToolContext, tool
from toolpost.contracts.callers import KEY_ID
from toolpost.contracts.errors import StoreError, ToolCancelledError, ToolRateLimitError
from toolpost.contracts.jobs import Job
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import create_caller_key, revoke_caller_key
from toolpost.runtime.job_runs import find_outcome
from toolpost.runtime.jobs import call_job
from toolpost.stores.sqlite.store import SQLiteStore

ANN, EVE = Principal("acme", "ann"), Principal("evil", "eve")


class Bench:
    """Tools that note their calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.at_once = self.most_at_once = 0
        self.may_end = asyncio.Event()

    def tools(self) -> list[Any]:
        @tool(side_effects="pure")
        async def note(name: str) -> str:
            """Note a call."""
            self.calls.append(name)
            return name

        @tool(side_effects="pure")
        async def hold(name: str) -> str:
            """Wait until the test goes on."""
            self.at_once += 1
            self.most_at_once = max(self.most_at_once, self.at_once)
            await self.may_end.wait()
            self.at_once -= 1
            return name

        @tool(side_effects="write", destructive=True)
        async def drop(name: str) -> str:
            """Drop a table."""
            self.calls.append(name)
            return f"{name} is gone"

        @tool(side_effects="write")
        async def push(name: str) -> str:
            """Have an effect, and wait until the test goes on."""
            self.calls.append(name)
            await self.may_end.wait()
            return name

        @tool(side_effects="external", destructive=False)
        async def assistant(name: str, ctx: ToolContext) -> str:
            """Ask a model, make the call that it requests, and ask it again."""

            async def ask(reply: str) -> str:
                self.calls.append(f"reply: {reply}")
                return reply

            wanted = await ctx.once("reply 1", partial(ask, "drop it"), repeatable=True)
            outcome = await ctx.call("drop", {"name": wanted})
            if isinstance(outcome, Paused):
                ctx.wait_for(outcome)
            return await ctx.once("reply 2", partial(ask, "done"), repeatable=True)

        return [note, hold, drop, push, assistant]


def job(run_id: str, tool_name: str = "note", *, who: Principal = ANN, **arguments: Any) -> Job:
    return call_job(run_id, tool_name, {"name": run_id, **arguments}, principal=who, at=1000.0, queue="calls")


async def outcome_of(box: Toolbox, run_id: str, *, who: Principal = ANN) -> Outcome:
    while True:
        run = await box.run(run_id, user=str(who))
        found = None if run is None else await find_outcome(box.store, run)
        if found is not None:
            return found
        await asyncio.sleep(0.01)


@asynccontextmanager
async def working(
    bench: Bench, folder: Path | None, *, runs: bool = True, **background: Any
) -> AsyncGenerator[Toolbox]:
    settings = Settings.model_validate({"data_dir": folder, "background": background})
    async with Toolbox(tools=bench.tools(), settings=settings) as box:
        if not runs:
            yield box
            return
        async with box.engine.run(box.jobs):
            yield box


@pytest.fixture(params=["sqlite", "memory"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "data" if request.param == "sqlite" else None


async def test_a_job_runs_once_even_if_it_is_stored_twice(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder) as box:
        stored = [await box.engine.enqueue(job("run_1")) for _ in range(2)]
        outcome = await outcome_of(box, "run_1")

    assert (stored, bench.calls) == ([True, False], ["run_1"])
    assert isinstance(outcome, Completed)


@pytest.mark.req("SCALE-01")
async def test_jobs_that_wait_survive_a_restart(tmp_path: Path) -> None:
    bench = Bench()
    async with working(bench, tmp_path, runs=False) as box:
        await box.engine.enqueue(job("run_1"))
        run = await box.run("run_1", user=str(ANN))
        other = await box.run("run_1", user=str(EVE))
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")

    assert run is not None
    assert (run.status, other) == ("running", None)
    assert isinstance(outcome, Completed)


@pytest.mark.req("SCALE-02")
async def test_a_pause_ends_the_job_and_the_answer_stores_its_continuation(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder) as box:
        await box.engine.enqueue(job("run_1", "drop"))
        paused = await outcome_of(box, "run_1")
        assert isinstance(paused, Paused)
        while (begun := await box.store.jobs.of_run("run_1", tenant="acme")) is None or not begun.has_ended:
            await asyncio.sleep(0.01)
        held = (box.jobs.running, [one.running for one in await box.engine.depth()])
        approved = await box.approve(paused.pending_id, by="acme:boss")
        continued = await box.store.jobs.of_run("run_1", tenant="acme")

    assert held == (Counter(), [0, 0, 0])
    assert isinstance(approved, Completed)
    assert continued is not None
    assert (begun.id, continued.id, continued.kind) == ("run:run_1:0", "run:run_1:1", "answer")
    assert bench.calls == ["run_1"]


@pytest.mark.req("SCALE-08")
async def test_an_agent_run_ends_at_a_pause_and_continues_in_another_process(tmp_path: Path) -> None:
    bench = Bench()
    async with working(bench, tmp_path) as box:
        await box.engine.enqueue(job("run_1", "assistant"))
        paused = await outcome_of(box, "run_1")
        assert isinstance(paused, Paused)
        before = list(bench.calls)
    async with working(bench, tmp_path) as box:
        approved = await box.approve(paused.pending_id, by="acme:boss")

    assert isinstance(approved, Completed)
    assert before == ["reply: drop it"]
    assert bench.calls == ["reply: drop it", "drop it", "reply: done"]


@pytest.mark.req("SCALE-02")
async def test_an_answer_whose_process_is_killed_is_carried_out_by_another_once(tmp_path: Path) -> None:
    bench = Bench()
    async with working(bench, tmp_path) as box:
        await box.engine.enqueue(job("run_1", "drop"))
        paused = await outcome_of(box, "run_1")
        assert isinstance(paused, Paused)
    async with working(bench, tmp_path, runs=False) as box:
        box.pending.run_job = None  # as if it were killed after the commit
        answering = asyncio.ensure_future(box.approve(paused.pending_id, by="acme:boss"))
        while (waiting := await box.store.jobs.of_run("run_1", tenant="acme")) is None or waiting.kind != "answer":
            await asyncio.sleep(0.01)
        answering.cancel()
        assert isinstance(box.store, SQLiteStore)
        box.store.abandon()
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")
        while isinstance(outcome, Paused):
            outcome = await outcome_of(box, "run_1")

    assert isinstance(outcome, Completed)
    assert bench.calls == ["run_1"]


@pytest.mark.req("SCALE-03")
async def test_the_jobs_of_a_tenant_take_no_more_than_its_share(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder, max_running_per_tenant=2) as box:
        for number in range(4):
            await box.engine.enqueue(job(f"run_{number}", "hold"))
        await box.engine.enqueue(job("run_eve", who=EVE))
        outcome = await outcome_of(box, "run_eve", who=EVE)
        held = bench.at_once
        bench.may_end.set()
        for number in range(4):
            await outcome_of(box, f"run_{number}")

    assert isinstance(outcome, Completed)
    assert (held, bench.most_at_once) == (2, 2)


@pytest.mark.req("SCALE-03")
async def test_a_full_queue_refuses_jobs(folder: Path | None) -> None:
    async with working(Bench(), folder, runs=False, max_waiting_per_tenant=1) as box:
        await box.engine.enqueue(job("run_1"))
        with pytest.raises(ToolRateLimitError, match="is full") as refused:
            await box.engine.enqueue(job("run_2"))

    assert (refused.value.error_code, refused.value.retry_after_s) == ("queue_full", 5.0)


@pytest.mark.req("SCALE-04")
async def test_a_job_whose_tool_is_gone_fails_with_its_name(folder: Path | None) -> None:
    async with working(Bench(), folder) as box:
        await box.engine.enqueue(job("run_1", "old.tool"))
        outcome = await outcome_of(box, "run_1")

    assert isinstance(outcome, Failed)
    assert "old.tool" in str(outcome.error)


@pytest.mark.req("SCALE-04")
async def test_an_answer_whose_tool_is_gone_waits_for_a_person_again(tmp_path: Path) -> None:
    bench = Bench()
    without = Toolbox(settings=Settings(data_dir=tmp_path))
    async with working(bench, tmp_path, runs=False) as box, without as other:
        async with box.engine.run(box.jobs):
            await box.engine.enqueue(job("run_1", "drop"))
            paused = await outcome_of(box, "run_1")
            assert isinstance(paused, Paused)
        box.pending.run_job = None
        answering = asyncio.ensure_future(box.approve(paused.pending_id, by="acme:boss"))
        async with other.engine.run(other.jobs):
            continuation = await _ended(box, "answer")
        action = await box.pending.get(paused.pending_id, by="acme:boss")
        answering.cancel()

    assert (continuation.kind, action.status, bench.calls) == ("answer", "open", [])


@pytest.mark.req("SCALE-04")
async def test_a_poisoned_job_fails_once_and_says_so(folder: Path | None) -> None:
    unknown = job("run_1")
    async with working(Bench(), folder) as box:
        await box.engine.enqueue(replace(unknown, body={}))
        outcome = await outcome_of(box, "run_1")
        other = await outcome_of(box, await _stored(box, "run_2"))

    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "job_unreadable"
    assert isinstance(other, Completed)


async def _ended(box: Toolbox, kind: str) -> Job:
    while True:
        found = await box.store.jobs.of_run("run_1", tenant="acme")
        if found is not None and found.kind == kind and found.has_ended:
            return found
        await asyncio.sleep(0.01)


async def _stored(box: Toolbox, run_id: str) -> str:
    await box.engine.enqueue(job(run_id))
    return run_id


@pytest.mark.req("SCALE-04")
async def test_a_job_that_ends_its_process_again_and_again_is_given_up(tmp_path: Path) -> None:
    for _ in range(5):
        async with working(Bench(), tmp_path, runs=False) as box:
            await box.engine.enqueue(job("run_1"))
            await box.store.jobs.begin("run:run_1:0")
            assert isinstance(box.store, SQLiteStore)
            box.store.abandon()
    bench = Bench()
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")

    assert isinstance(outcome, Failed)
    assert "5 times" in str(outcome.error)
    assert bench.calls == []


async def test_a_waiting_job_is_cancelled_with_its_run(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder, runs=False) as box:
        await box.engine.enqueue(job("run_1"))
        cancelled = await box.cancel("run_1", by=str(ANN))
        outcome = await outcome_of(box, "run_1")

    assert cancelled
    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "cancelled"
    assert bench.calls == []


@pytest.mark.req("SCALE-02")
async def test_an_answer_that_no_process_has_taken_is_cancelled_with_its_run(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder, runs=False) as box:
        async with box.engine.run(box.jobs):
            await box.engine.enqueue(job("run_1", "drop"))
            paused = await outcome_of(box, "run_1")
            assert isinstance(paused, Paused)
            await _ended(box, "call")
        box.pending.run_job = None
        answering = asyncio.ensure_future(box.approve(paused.pending_id, by="acme:boss"))
        while (waiting := await box.store.jobs.of_run("run_1", tenant="acme")) is None or waiting.kind != "answer":
            await asyncio.sleep(0.01)
        cancelled = await box.cancel("run_1", by=str(ANN))
        answered = await answering
        async with box.engine.run(box.jobs):
            outcome = await outcome_of(box, "run_1")
        run = await box.run("run_1", user=str(ANN))
        action = await box.pending.get(paused.pending_id, by="acme:boss")

    assert cancelled
    assert isinstance(answered, Failed)
    assert isinstance(outcome, Failed)
    assert (outcome.error.error_code, outcome.tool_name) == ("cancelled", "drop")
    assert run is not None
    assert (run.status, action.status, bench.calls) == ("failed", "cancelled", [])


async def test_a_job_that_another_task_took_first_stays_with_this_process(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder, runs=False) as box:
        await box.engine.enqueue(job("run_1", "hold"))
        taken = await box.store.jobs.begin("run:run_1:0")
        assert taken is not None
        beginning = asyncio.ensure_future(box.jobs.begin(taken.id))
        await asyncio.sleep(0)
        running = asyncio.ensure_future(box.jobs.run(taken))
        await beginning
        while not bench.at_once:
            await asyncio.sleep(0.01)
        held = list(box.jobs.running)
        bench.may_end.set()
        await running

    assert (held, list(box.jobs.running)) == ([taken.id], [])


async def test_a_call_whose_key_was_revoked_while_it_waited_does_not_begin(folder: Path | None) -> None:
    bench = Bench()
    async with working(bench, folder, runs=False) as box:
        made = {
            run_id: await create_caller_key(box, run_id, ANN, ["call"], by=str(ANN)) for run_id in ("run_1", "run_2")
        }
        for run_id, (key, _) in made.items():
            waiting = job(run_id)
            await box.engine.enqueue(replace(waiting, body={**waiting.body, "caller": f"{KEY_ID}{key.id}"}))
        assert await revoke_caller_key(box, made["run_2"][0].id, by=str(ANN))
        async with box.engine.run(box.jobs):
            outcomes = [await outcome_of(box, run_id) for run_id in made]

    assert isinstance(outcomes[0], Completed)
    assert isinstance(outcomes[1], Failed)
    assert outcomes[1].error.error_code == "key_revoked"
    assert bench.calls == ["run_1"]


@pytest.mark.req("SCALE-02")
async def test_an_answer_waits_for_a_store_that_is_unavailable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.runtime.jobs._STORE_RETRY_S", 0.01)
    bench = Bench()
    async with working(bench, tmp_path) as box:
        await box.engine.enqueue(job("run_1", "drop"))
        paused = await outcome_of(box, "run_1")
        assert isinstance(paused, Paused)
        await _ended(box, "call")
        take_claim, failures = box.store.pending.take_claim, 2

        async def fail_at_first(pending_id: str) -> Any:
            nonlocal failures
            if failures:
                failures -= 1
                raise StoreError("the database does not answer")
            return await take_claim(pending_id)

        monkeypatch.setattr(box.store.pending, "take_claim", fail_at_first)
        approved = await box.approve(paused.pending_id, by="acme:boss")
        continued = await _ended(box, "answer")

    assert isinstance(approved, Completed)
    assert (failures, continued.status, bench.calls) == (0, "done", ["run_1"])


@pytest.mark.req("SCALE-01")
async def test_a_call_that_a_shutdown_stopped_before_it_began_is_made_by_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench, stopped = Bench(), asyncio.Event()

    async def stop(name: str, *_: Any, run_id: str, **__: Any) -> Outcome:
        stopped.set()
        return Failed("call_1", run_id, name, ToolCancelledError("the process has stopped", code="stopped"))

    async with working(bench, tmp_path, runs=False) as box:
        await box.engine.enqueue(job("run_1"))
        monkeypatch.setattr(box.router, "call", stop)
        async with box.engine.run(box.jobs):
            await stopped.wait()
        left = await box.store.jobs.of_run("run_1", tenant="acme")
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")

    assert left is not None
    assert not left.has_ended
    assert isinstance(outcome, Completed)
    assert bench.calls == ["run_1"]


@pytest.mark.req("SCALE-01")
async def test_a_call_with_effects_that_a_shutdown_stopped_is_not_made_again(tmp_path: Path) -> None:
    bench = Bench()
    async with working(bench, tmp_path) as box:
        await box.engine.enqueue(job("run_1", "push"))
        while not bench.calls:
            await asyncio.sleep(0.01)
        await box.router.park(within_s=0)
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")
        ended = await _ended(box, "call")

    assert isinstance(outcome, Failed)
    assert (outcome.error.error_code, ended.attempts, bench.calls) == ("stopped", 2, ["run_1"])


@pytest.mark.req("SCALE-01")
async def test_a_job_that_cannot_be_recorded_does_not_hold_a_shutdown_and_is_left_to_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    bench, tried = Bench(), asyncio.Event()

    async def fail(*_: Any, **__: Any) -> bool:
        tried.set()
        raise StoreError("the disk is full")

    async with working(bench, tmp_path) as box:
        monkeypatch.setattr(box.store.jobs, "finish", fail)
        await box.engine.enqueue(job("run_1"))
        await tried.wait()
        await box.router.park(within_s=0)
        await box.jobs.leave(within_s=0)
    async with working(bench, tmp_path) as box:
        outcome = await outcome_of(box, "run_1")
        ended = await _ended(box, "call")

    assert isinstance(outcome, Completed)
    assert (ended.status, ended.attempts, bench.calls) == ("done", 2, ["run_1"])
    assert "left to another process because the store is unavailable: 1" in caplog.text


async def test_a_defect_that_stops_background_work_is_logged(
    folder: Path | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: Any, **__: Any) -> Any:
        raise ValueError("a defect")

    async with working(Bench(), folder, runs=False) as box:
        monkeypatch.setattr(box.store.jobs, "take", fail)
        async with box.engine.run(box.jobs):
            while "background work has stopped" not in caplog.text:
                await asyncio.sleep(0.01)

    assert "a defect" in caplog.text
