"""Owners on PostgreSQL: leases, processes that lost theirs, and who takes over."""

import asyncio
import os
import signal
import time
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.postgres.stores import asking, end_lease, open_judge, open_store, until
from tests.warm import Program
from toolpost.contracts.clock import Clock
from toolpost.contracts.errors import StoreError, TakenOverError
from toolpost.testing.stores.base import emit
from toolpost.testing.stores.samples import APPROVE, COMPLETED, REQUESTED, call_ref, event, intent, question, whole_run

pytestmark = pytest.mark.programs


@pytest.mark.req("SCALE-21")
async def test_the_records_of_a_process_that_lost_its_lease_are_adopted_by_exactly_one_of_eight(
    postgres_url: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        lost = await stack.enter_async_context(open_store(postgres_url, tmp_path))
        for number in range(20):
            await lost.journal.begin(intent(f"call_{number}"))
        judges = [await stack.enter_async_context(open_judge(postgres_url, tmp_path)) for _ in range(8)]
        assert await asyncio.gather(*(judge.journal.adopt_orphans() for judge in judges)) == [[]] * 8
        end_lease(postgres_url, lost.owner_id)

        adopted = await asyncio.gather(*(judge.journal.adopt_orphans() for judge in judges))

        assert sorted(map(len, adopted)) == [0] * 7 + [20]


@pytest.mark.req("SCALE-20")
async def test_a_process_that_lost_its_lease_writes_nothing_for_its_old_calls_and_accepts_new_ones(
    postgres_url: str, tmp_path: Path
) -> None:
    async with open_store(postgres_url, tmp_path) as lost, open_judge(postgres_url, tmp_path) as judge:
        await lost.pending.add(question())
        await lost.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await lost.journal.begin(intent("call_old"))
        before = lost.owner_id
        end_lease(postgres_url, before)
        assert [entry.call_id for entry in await judge.journal.adopt_orphans()] == ["call_old"]
        assert [action.id for action in await judge.pending.adopt_claims()] == ["ask_1"]

        with pytest.raises(StoreError, match="did not renew its lease"):
            await lost.journal.finish("call_old", "", "done")
        with pytest.raises(StoreError, match="taken over by another process"):
            await lost.journal.finish("call_old", "", "done")
        with pytest.raises(StoreError, match="not claimed by this process"):
            await lost.pending.settle("ask_1", "answered")
        await lost.journal.begin(intent("call_new"))
        await lost.journal.finish("call_new", "", "done")
        await judge.journal.finish("call_old", "", "by the other")

        entries = [await judge.journal.find(name, "") for name in ("call_old", "call_new")]
        assert [entry and entry.result for entry in entries] == ["by the other", "done"]
        assert lost.owner_id != before


async def test_events_of_a_process_that_lost_its_lease_are_not_lost(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url, tmp_path) as lost, open_judge(postgres_url, tmp_path) as judge:
        await emit(lost, event(REQUESTED, call=call_ref("run_1", "call_1")))
        end_lease(postgres_url, lost.owner_id)
        assert [run.run_id for run in await judge.events.adopt_orphans()] == ["run_1"]

        lost.events.emit(event(call=call_ref("run_1", "call_1")))
        with pytest.raises(StoreError, match="did not renew its lease"):
            await lost.events.flush()
        await lost.events.flush()

        assert [one.seq for one in await judge.events.read(run_id="run_1")] == [1, 2]
        assert await judge.events.verify() == []


@pytest.mark.req("SCALE-20")
async def test_a_call_that_began_before_the_lease_was_lost_is_not_started(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url, tmp_path) as lost, open_judge(postgres_url, tmp_path) as judge:
        await lost.pending.add(question())
        claimed = await lost.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        assert claimed is not None
        assert claimed.owner == lost.owner_id
        end_lease(postgres_url, lost.owner_id)
        (adopted,) = await judge.pending.adopt_claims()
        assert adopted.owner == judge.owner_id
        with pytest.raises(StoreError, match="did not renew its lease"):
            await lost.journal.begin(intent("call_other"))

        with pytest.raises(TakenOverError, match="lost its lease after the call began"):
            await lost.journal.begin(replace(intent(claimed.call_id), owner=claimed.owner))
        with pytest.raises(TakenOverError, match="lost its lease after call"):
            await lost.pending.add(replace(question("ask_2"), owner=claimed.owner))

        await judge.pending.settle("ask_1", "answered")
        with pytest.raises(TakenOverError, match="not claimed by this process"):
            await lost.pending.settle("ask_1", "answered")
        assert await judge.pending.get("ask_2") is None


async def test_a_call_that_others_have_ended_does_not_end_again(postgres_url: str, tmp_path: Path) -> None:
    one, two, three = (call_ref("run_1", f"call_{number}") for number in range(1, 4))
    async with open_store(postgres_url, tmp_path) as lost, open_judge(postgres_url, tmp_path) as judge:
        await emit(lost, event(REQUESTED, call=one), event(REQUESTED, call=two))
        end_lease(postgres_url, lost.owner_id)
        await judge.events.adopt_orphans()
        await emit(judge, event(COMPLETED, call=one))

        for late in (
            event(COMPLETED, call=one),
            event(COMPLETED, call=two),
            event(COMPLETED, call=two),
            event(REQUESTED, call=three),
            event(COMPLETED, call=three),
        ):
            lost.events.emit(late)
        with pytest.raises(StoreError, match="did not renew its lease"):
            await lost.events.flush()
        await lost.events.flush()

        log = await judge.events.read(run_id="run_1")
        assert [(one.call_id, one.code == REQUESTED) for one in log] == [
            ("call_1", True),
            ("call_2", True),
            ("call_1", False),
            ("call_2", False),
            ("call_3", True),
            ("call_3", False),
        ]
        assert await judge.events.verify() == []


async def test_a_lease_that_ended_is_renewed_if_no_process_has_given_it_up(postgres_url: str, tmp_path: Path) -> None:
    async with open_store(postgres_url, tmp_path) as store, open_store(postgres_url, tmp_path) as newcomer:
        await store.journal.begin(intent())
        end_lease(postgres_url, store.owner_id)
        # After an outage all leases have ended: who has just come does not know since when.
        assert await newcomer.journal.adopt_orphans() == []

        await store.journal.finish("call_1", "", "done")
        async with open_judge(postgres_url, tmp_path) as judge:
            assert await judge.journal.adopt_orphans() == []


async def test_clocks_that_differ_by_minutes_end_no_lease(postgres_url: str, tmp_path: Path) -> None:
    async with AsyncExitStack() as stack:
        for minutes in (-10, 0, 10):
            clock = Clock(wall=lambda minutes=minutes: time.time() + 60 * minutes)  # type: ignore[misc]
            store = await stack.enter_async_context(open_store(postgres_url, tmp_path, clock=clock, probation_s=0.0))
            await store.journal.begin(intent(f"call_{minutes}"))
            assert await store.journal.adopt_orphans() == []


async def test_the_runs_of_all_owners_are_counted_and_a_lost_owner_is_reported(
    postgres_url: str, tmp_path: Path
) -> None:
    async with AsyncExitStack() as stack:
        one, two, lost = [await stack.enter_async_context(open_store(postgres_url, tmp_path)) for _ in range(3)]
        for number, store in enumerate((one, two, lost, one)):
            await emit(store, *whole_run(f"run_{number}"))
        assert await one.events.verify() == []

        end_lease(postgres_url, lost.owner_id)
        async with open_judge(postgres_url, tmp_path) as judge:
            await judge.journal.adopt_orphans()
            assert await judge.events.verify() == []
            with asking(postgres_url) as db:
                db.execute("DELETE FROM runs WHERE run_id = 'run_1'")
                db.execute("DELETE FROM segments WHERE run NOT IN (SELECT nr FROM runs)")
            assert await one.events.verify() == [
                "the log should contain 4 runs and contains 3: runs were removed or added"
            ]
            with asking(postgres_url) as db:  # with its part of the ledger
                db.execute("DELETE FROM owners WHERE id = %s", (two.owner_id,))
            assert await one.events.verify() == [
                "the ledger of the log was changed, so the expected number of runs is unknown"
            ]


@pytest.mark.waits
async def test_a_stopped_process_that_wakes_does_nothing_twice(postgres_url: str, tmp_path: Path) -> None:
    program = Path(__file__).with_name("sleeper.py")
    async with open_store(postgres_url, tmp_path, lease_s=1.0) as judge:
        with Program(program, postgres_url, str(tmp_path)) as sleeper:
            try:
                assert sleeper.stdout.readline() == "began\n"
                os.kill(sleeper.pid, signal.SIGSTOP)

                (entry,) = await until(judge.journal.adopt_orphans)
                await judge.journal.finish(entry.call_id, "", "by the other")
                os.kill(sleeper.pid, signal.SIGCONT)
                sleeper.stdin.write("go on\n")
                sleeper.stdin.flush()

                assert sleeper.stdout.readline() == "old call refused\n"
                assert sleeper.stdout.readline() == "new call finished\n"
            finally:
                os.kill(sleeper.pid, signal.SIGCONT)
                sleeper.kill()

        found = [await judge.journal.find(name, "") for name in ("call_old", "call_new")]
        assert [one and one.result for one in found] == ["by the other", "done"]
