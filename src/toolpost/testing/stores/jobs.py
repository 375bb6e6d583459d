"""Tests of jobs and schedules."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.contracts.errors import ToolRateLimitError
from toolpost.contracts.jobs import QUEUES, Job, QueueLimits, Schedule, TakeLimits
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import ANN, APPROVE, EVE, question

UNLIMITED = QueueLimits()


def job(run_id: str = "run_1", *, number: int = 0, who: Principal = ANN, **changes: Any) -> Job:
    """Return a job that waits in the queue `calls`."""
    made = Job(
        id=f"run:{run_id}:{number}",
        queue="calls",
        run_id=run_id,
        principal=who,
        kind="call",
        body={"tool": "mail.send", "arguments": {"to": "the-exact-words"}},
        created_at=1000.0,
    )
    return replace(made, **changes)


def schedule(name: str = "nightly", *, who: Principal = ANN) -> Schedule:
    """Return a schedule of a call."""
    return Schedule(
        name=name,
        cron="0 2 * * *",
        principal=who,
        tool_name="mail.send",
        arguments={"to": "all@example.com"},
        created_at=1000.0,
        created_by=str(who),
    )


async def _begin_all(store: Store, free: int = 10, of_tenant: int | None = None) -> list[str]:
    taken = await store.jobs.take(QUEUES, limits=TakeLimits(free=free, of_tenant=of_tenant))
    return [one.run_id for one in taken]


class JobTests(StoreFixtures):
    """Tests of the `jobs` and `schedules` of a store."""

    async def test_a_job_is_stored_once_and_begun_once(self, store: Store) -> None:
        assert [await store.jobs.add(job(), limits=UNLIMITED) for _ in range(2)] == [True, False]
        (taken,) = await store.jobs.take(QUEUES, limits=TakeLimits(free=5))

        assert (taken.body, taken.status, taken.attempts) == (job().body, "running", 1)
        assert await _begin_all(store) == []

    async def test_an_ended_job_is_not_begun_again_and_keeps_its_outcome(self, store: Store) -> None:
        await store.jobs.add(job(), limits=UNLIMITED)
        assert await store.jobs.begin("run:run_1:0") is not None
        assert await store.jobs.finish("run:run_1:0", "failed", outcome={"status": "failed"})

        assert await store.jobs.begin("run:run_1:0") is None
        assert not await store.jobs.finish("run:run_1:0", "done")
        ended = await store.jobs.of_run("run_1", tenant=ANN.tenant)
        assert ended is not None
        assert (ended.status, ended.outcome, ended.body) == ("failed", {"status": "failed"}, {})
        assert await store.jobs.of_run("run_1", tenant=EVE.tenant) is None

    async def test_jobs_are_taken_by_priority_then_age_and_tenants_in_turn(self, store: Store) -> None:
        for name, who, priority in (("a1", ANN, 5), ("a2", ANN, 5), ("a3", ANN, 5), ("e1", EVE, 5), ("a4", ANN, 1)):
            await store.jobs.add(job(name, who=who, priority=priority), limits=UNLIMITED)

        assert await _begin_all(store, free=3) == ["a4", "e1", "a1"]
        assert await _begin_all(store) == ["a2", "a3"]

    async def test_a_tenant_gets_no_more_than_its_share(self, store: Store) -> None:
        for name, who in (("a1", ANN), ("a2", ANN), ("a3", ANN), ("e1", EVE)):
            await store.jobs.add(job(name, who=who), limits=UNLIMITED)

        assert sorted(await _begin_all(store, of_tenant=2)) == ["a1", "a2", "e1"]
        assert await _begin_all(store, of_tenant=2) == []
        await store.jobs.finish("run:a1:0", "done")
        assert await _begin_all(store, of_tenant=2) == ["a3"]

    async def test_a_full_queue_takes_no_job_and_says_so(self, store: Store) -> None:
        limits = QueueLimits(waiting=2, waiting_of_tenant=1)
        await store.jobs.add(job("a1"), limits=limits)
        with pytest.raises(ToolRateLimitError, match="1 jobs of the tenant 'acme' wait") as refused:
            await store.jobs.add(job("a2"), limits=limits)
        await store.jobs.add(job("e1", who=EVE), limits=limits)
        with pytest.raises(ToolRateLimitError, match="the queue 'calls' is full: 2 jobs wait"):
            await store.jobs.add(job("b1", who=Principal("other", "bob")), limits=limits)

        assert refused.value.error_code == "queue_full"
        assert await store.jobs.add(job("a3", queue="tasks"), limits=limits)

    async def test_only_jobs_of_the_asked_queues_are_taken(self, store: Store) -> None:
        await store.jobs.add(job("a1", queue="runs"), limits=UNLIMITED)

        assert await store.jobs.take(["calls", "tasks"], limits=TakeLimits(free=5)) == []
        assert len(await store.jobs.take(["runs"], limits=TakeLimits(free=5))) == 1

    async def test_waiting_jobs_of_a_run_are_cancelled_and_running_ones_are_not(self, store: Store) -> None:
        await store.jobs.add(job("a1"), limits=UNLIMITED)
        await store.jobs.add(job("a2"), limits=UNLIMITED)
        await store.jobs.begin("run:a2:0")

        assert await store.jobs.cancel("a1", tenant=EVE.tenant) == 0
        assert await store.jobs.cancel("a1", tenant=ANN.tenant, outcome={"status": "failed"}) == 1
        assert await store.jobs.cancel("a2", tenant=ANN.tenant) == 0
        assert await store.jobs.begin("run:a1:0") is None

    async def test_a_job_that_this_process_lost_waits_again(self, store: Store) -> None:
        for name in ("a1", "a2"):
            await store.jobs.add(job(name), limits=UNLIMITED)
            await store.jobs.begin(f"run:{name}:0")

        assert await store.jobs.release_orphans(running=["run:a1:0"]) == ["run:a2:0"]
        assert await _begin_all(store) == ["a2"]

    async def test_the_depth_of_each_queue_counts_jobs_that_wait_and_run(self, store: Store) -> None:
        for name, at in (("a1", 1000.0), ("a2", 900.0), ("a3", 950.0)):
            await store.jobs.add(job(name, created_at=at), limits=UNLIMITED)
        await store.jobs.begin("run:a2:0")
        depth = {one.queue: one for one in await store.jobs.depth()}

        assert depth["calls"][1:] == (2, 1, 950.0)
        assert depth["runs"][1:] == (0, 0, None)

    async def test_a_job_is_handed_over_once_and_is_overdue_later(self, store: Store) -> None:
        await store.jobs.add(job(), limits=UNLIMITED)
        (handed,) = await store.jobs.hand_over(QUEUES, limit=10)
        await store.jobs.handed_over([handed.id])

        assert (handed.body, handed.sent) == ({}, 0)
        assert await store.jobs.hand_over(QUEUES, limit=10) == []
        assert await store.jobs.overdue(QUEUES, age_s=60.0, limit=10) == []
        (late,) = await store.jobs.overdue(QUEUES, age_s=-1.0, limit=10)
        assert late.sent == 1

    async def test_an_answer_and_the_continuation_of_its_run_are_one_commit(self, store: Store) -> None:
        await store.jobs.add(job(), limits=UNLIMITED)
        await store.pending.add(question())
        then = job(kind="answer", body={"pending_id": "ask_1"})

        claims = [
            await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0, then=then),
            await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0, then=then),
        ]
        assert [claim is None for claim in claims] == [False, True]
        continued = await store.jobs.begin("run:run_1:1")
        assert continued is not None
        assert continued.body == {"pending_id": "ask_1"}
        assert await store.jobs.begin("run:run_1:2") is None

    async def test_a_claim_that_is_left_to_a_job_is_taken_once(self, store: Store) -> None:
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0, then=job(kind="answer"))
        assert await store.pending.adopt_claims() == []

        taken = await store.pending.take_claim("ask_1")
        assert taken is not None
        assert taken.answer == APPROVE
        assert await store.pending.take_claim("ask_1") is None
        await store.pending.settle("ask_1", "answered", outcome={"status": "completed"})

    async def test_a_run_continues_after_its_first_jobs_were_pruned(self, store: Store) -> None:
        await store.jobs.add(job(number=1), limits=UNLIMITED)
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0, then=job(kind="answer"))

        continued = await store.jobs.begin("run:run_1:2")
        assert continued is not None
        assert continued.kind == "answer"

    async def test_an_answer_whose_job_waits_is_cancelled_with_its_run(self, store: Store) -> None:
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0, then=job(kind="answer"))
        assert await store.pending.cancel("run_1", tenant="evil") == []

        (cancelled,) = await store.pending.cancel("run_1", tenant="acme")
        assert cancelled.status == "cancelled"
        assert await store.pending.take_claim("ask_1") is None
        assert await store.jobs.cancel("run_1", tenant="acme", outcome={"status": "failed"}) == 1
        newest = await store.jobs.of_run("run_1", tenant="acme")
        assert newest is not None
        assert newest.outcome is None

    async def test_a_schedule_has_one_call_for_each_of_its_times(self, store: Store) -> None:
        assert [await store.schedules.put(schedule()) for _ in range(2)] == [True, False]
        assert await store.schedules.put(schedule(who=EVE))
        ticks = [await store.schedules.tick("nightly", tenant="acme", at=at) for at in (900.0, 2000.0, 2000.0, 3000.0)]

        assert [None if tick is None else tick.last_at for tick in ticks] == [None, 2000.0, None, 3000.0]
        (kept,) = await store.schedules.list(tenant="acme")
        assert kept.arguments == {"to": "all@example.com"}
        assert await store.schedules.remove("nightly", tenant="acme")
        assert not await store.schedules.remove("nightly", tenant="acme")
        assert [one.principal for one in await store.schedules.list()] == [EVE]

    async def test_data_of_a_forgotten_user_is_gone_from_jobs_and_schedules(self, store: Store) -> None:
        for who in (ANN, EVE):
            await store.jobs.add(job(f"run_{who.user}", who=who), limits=UNLIMITED)
            await store.schedules.put(schedule(who=who))
        counts = await store.forget(ANN)

        assert (counts["jobs"], counts["schedules"]) == (1, 1)
        assert await _begin_all(store) == ["run_eve"]
