"""Tests of the status of a store for operators, and of its users."""

from toolpost.contracts.jobs import QUEUES, QueueLimits, TakeLimits
from toolpost.contracts.storage import Store
from toolpost.contracts.store_status import FLOW_S, SILENT_S, SLOW_QUEUE_S, status_problems
from toolpost.contracts.users import UserSummary
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.jobs import job
from toolpost.testing.stores.samples import (
    ANN,
    BOB,
    EVE,
    PAUSED,
    REQUESTED,
    call_ref,
    caller_key,
    event,
    question,
    token_key,
    whole_run,
)


class StatusTests(StoreFixtures):
    """Tests of `Store.status` and `Store.users`."""

    async def test_an_empty_store_has_this_process_and_no_work(self, store: Store) -> None:
        status = await store.status()

        assert [(owner.is_alive, owner.unfinished) for owner in status.owners] == [(True, 0)]
        assert (status.pending, status.oldest_pending_s, status.running, status.paused) == (0, 0.0, 0, 0)
        assert (status.event_lag_s, list(status.silent)) == (0.0, [])

    async def test_unfinished_work_of_all_tenants_is_counted(self, store: Store) -> None:
        waiting, slow = call_ref("run_2", "call_2"), call_ref("run_3", "call_3", who=EVE, tool="shop.pay")
        now = (await store.status()).at
        await emit(
            store,
            *whole_run("run_1"),
            event(REQUESTED, call=waiting, at=now),
            event(PAUSED, call=waiting, at=now),
            event(REQUESTED, call=slow, at=now),
        )
        for id_, created_at in (("ask_1", now - 60.0), ("ask_2", now - 5.0)):
            await store.pending.add(question(id_, call_id=f"call_of_{id_}", created_at=created_at, expires_at=now + 9))
        status = await store.status()

        assert (status.running, status.paused, status.pending) == (1, 1, 2)
        assert status.oldest_pending_at == now - 60.0
        assert status.oldest_pending_s >= 60.0
        assert [owner.unfinished for owner in status.owners] == [1]
        assert list(status.silent) == []

    async def test_a_running_call_without_events_is_silent_after_a_while(self, store: Store) -> None:
        now = (await store.status()).at
        old, new = call_ref("run_1", tool="shop.pay"), call_ref("run_2", "call_2")
        paused = call_ref("run_3", "call_3")
        await emit(store, event(REQUESTED, call=old, at=now - SILENT_S - 60.0), event(REQUESTED, call=new, at=now))
        await emit(store, *(event(code, call=paused, at=now - SILENT_S - 60.0) for code in (REQUESTED, PAUSED)))

        found = (await store.status()).silent
        assert [(one.run_id, one.tenant, one.tool_name, one.updated_at) for one in found] == [
            ("run_1", ANN.tenant, "shop.pay", now - SILENT_S - 60.0)
        ]

    async def test_events_that_no_metric_contains_are_the_lag(self, store: Store) -> None:
        now = (await store.status()).at
        await emit(store, *whole_run("run_1", at=now - 30.0))
        before = await store.status()
        while await store.metrics.count():
            pass
        after = await store.status()

        assert before.uncounted_since == now - 30.0
        assert before.event_lag_s >= 30.0
        assert (after.uncounted_since, after.event_lag_s) == (None, 0.0)

    async def test_jobs_are_counted_by_queue(self, store: Store) -> None:
        now = (await store.status()).at
        for number, created_at in enumerate((now - FLOW_S - 60.0, now - 30.0, now - 20.0)):
            await store.jobs.add(job(f"run_{number}", created_at=created_at), limits=QueueLimits())
        (taken,) = await store.jobs.take(["calls"], limits=TakeLimits(free=1))
        before = {one.queue: one for one in (await store.status()).queues}["calls"]
        await store.jobs.finish(taken.id, "done")
        after = {one.queue: one for one in (await store.status()).queues}["calls"]

        assert [len((await store.status()).queues), taken.run_id] == [len(QUEUES), "run_0"]
        assert tuple(before) == ("calls", 2, 1, now - 30.0, 2, 0)
        assert (after.waiting, after.running, after.ended) == (2, 0, 1)

    async def test_a_queue_with_an_old_job_is_a_problem(self, store: Store) -> None:
        now = (await store.status()).at
        await store.jobs.add(job(created_at=now - SLOW_QUEUE_S - 60.0), limits=QueueLimits())
        (problem,) = status_problems(await store.status())

        assert problem.startswith("queue 'calls' grows: 1 jobs wait, the oldest for 6 min, and 0 are running")

    async def test_users_are_listed_with_what_the_store_has_of_them(self, store: Store) -> None:
        for number in range(3):
            await emit(store, *whole_run(f"run_{number}", who=ANN, at=1000.0 + number))
        await emit(store, *whole_run("run_eve", who=EVE, at=900.0))
        await store.caller_keys.add(caller_key("bot", BOB))
        await store.tokens.put(token_key(ANN), {"access": "token"})
        await store.pending.add(question(who=ANN))

        ann = UserSummary(principal=ANN, last_run_at=1002.0, accounts=1, pending=1)
        bob, eve = UserSummary(principal=BOB, keys=1), UserSummary(principal=EVE, last_run_at=900.0)
        assert await store.users() == [ann, bob, eve]
        assert await store.users(tenant=ANN.tenant) == [ann, bob]
        assert await store.users(tenant="none") == []
        await store.forget(ANN)
        assert await store.users(tenant=ANN.tenant) == [bob]
