"""Tests of a store that several processes have open: visibility, claims, adoption, and reading in commit order."""

import asyncio
import os
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from toolpost.contracts.events import StoredEvent
from toolpost.contracts.questions import Answer
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFactory, emit
from toolpost.testing.stores.limits import SharedLimitTests
from toolpost.testing.stores.samples import (
    ANN,
    APPROVE,
    REQUESTED,
    call_ref,
    event,
    intent,
    key_record,
    question,
    token_key,
    whole_run,
)
from toolpost.testing.stores.waits import CHANGES, LONG_S, SHORT_S


class SharedStoreTests(SharedLimitTests):
    """Tests of a store and of `other`, the same data as another process opens it."""

    @pytest_asyncio.fixture
    async def other(self, store: Store, store_factory: StoreFactory) -> AsyncIterator[Store]:
        """Open the data a second time."""
        opened = await store_factory()
        yield opened
        await opened.close()

    async def test_data_is_there_after_closing(self, store_factory: StoreFactory) -> None:
        first = await store_factory()
        first.events.emit(event())  # closing writes events that wait
        await first.journal.begin(intent())
        await first.tokens.put(token_key(), {"access": "token"})
        mac = first.mac("kind", b"message")
        await first.close()

        second = await store_factory()
        stored = (await second.events.read(), await second.journal.find("call_1", ""), await second.tokens.list())
        assert [len(stored[0]), stored[1] and stored[1].call, [row.body for row in stored[2]]] == [
            1,
            intent().call,
            [{"access": "token"}],
        ]
        assert (second.mac("kind", b"message"), await second.events.verify()) == (mac, [])
        await second.close()

    async def test_a_write_is_visible_to_others_when_it_returns(self, store: Store, other: Store) -> None:
        await emit(store, *whole_run("run_1"))
        await store.pending.add(question())
        await store.cancels.request("call_9", tenant=ANN.tenant, by="acme:ann")

        assert [one.seq for one in await other.events.read()] == [1, 2, 3]
        assert await other.pending.get("ask_1") == question()
        assert (await other.cancels.requested(["call_9"])).keys() == {"call_9"}
        assert await other.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0) is not None
        assert await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0) is None

    async def test_the_status_names_each_process(self, store: Store, other: Store) -> None:
        await emit(store, event())

        owners = (await other.status()).owners
        assert sorted((one.is_alive, one.unfinished) for one in owners) == [(True, 0), (True, 1)]
        assert {one.pid for one in owners} <= {os.getpid(), None}

    @pytest.mark.parametrize("kind", CHANGES)
    async def test_a_change_of_another_process_ends_a_wait(self, store: Store, other: Store, kind: str) -> None:
        await store.pending.add(question())
        wait, change = CHANGES[kind]
        waiting = asyncio.ensure_future(wait(store))
        await asyncio.sleep(SHORT_S)
        await change(other)

        async with asyncio.timeout(LONG_S / 2):
            assert await waiting

    async def test_two_processes_append_to_one_run(self, store: Store, other: Store) -> None:
        async def append(log: Store, name: str) -> None:
            for _ in range(20):
                await emit(log, event(call=call_ref("run_shared"), facts={"by": name}))

        await asyncio.gather(append(store, "one"), append(other, "two"))

        events = await store.events.read(run_id="run_shared")
        assert [one.seq for one in events] == list(range(1, 41))
        assert {one.payload["by"] for one in events} == {"one", "two"}
        assert await other.events.verify() == []

    async def test_a_reader_that_continues_after_the_last_id_misses_no_event(self, store: Store, other: Store) -> None:
        """A row that commits late has an ID above all rows that were read before, at any place in the queue."""
        seen: list[StoredEvent] = []

        async def write(log: Store, name: str) -> None:
            for number in range(30):
                log.events.emit(event(call=call_ref(f"run_{name}_{number}")))
                if number % 3 == 0:
                    await log.events.flush()
                await asyncio.sleep(0)
            await log.events.flush()

        async def read_new() -> None:
            seen.extend(await other.events.read(after=seen[-1].id if seen else 0, limit=7))

        writers = asyncio.gather(write(store, "one"), write(other, "two"))
        while not writers.done():
            await read_new()
        await writers
        for _ in range(10):
            await read_new()

        assert len(seen) == len({one.run_id for one in seen}) == 60
        assert seen == await store.events.read()

    async def test_one_of_many_processes_claims_each_action(self, store: Store, other: Store) -> None:
        for number in range(10):
            await store.pending.add(question(f"ask_{number}"))

        async def claim_all(claimant: Store) -> list[int]:
            claims = [await claimant.pending.claim(f"ask_{n}", APPROVE, by="acme:a", at=1500.0) for n in range(10)]
            return [number for number, claim in enumerate(claims) if claim]

        won = await asyncio.gather(claim_all(store), claim_all(other))

        assert sorted(won[0] + won[1]) == list(range(10))

    async def test_unfinished_calls_of_a_closed_process_are_adopted_once(
        self, store: Store, other: Store, store_factory: StoreFactory
    ) -> None:
        ended = await store_factory()
        await emit(ended, event(REQUESTED, call=call_ref("run_1", "call_1")), *whole_run("run_2"))
        for call_id in ("call_unfinished", "call_finished"):
            await ended.journal.begin(intent(call_id))
        await ended.journal.finish("call_finished", "", 1)
        await ended.idempotency.reserve(ANN, "k1", key_record())
        assert await store.journal.adopt_orphans() == []
        assert await store.events.adopt_orphans() == []
        await ended.close()

        both = await asyncio.gather(store.journal.adopt_orphans(), other.journal.adopt_orphans())
        runs = await asyncio.gather(store.events.adopt_orphans(), other.events.adopt_orphans())
        held = await other.idempotency.reserve(ANN, "k1", key_record("call_2"))

        assert [entry.call_id for entries in both for entry in entries] == ["call_unfinished"]
        assert [run.run_id for adopted in runs for run in adopted] == ["run_1"]
        assert held is not None
        assert not held.owner_alive

    async def test_claims_of_a_closed_process_are_adopted_once_with_their_answers(
        self, store: Store, other: Store, store_factory: StoreFactory
    ) -> None:
        ended = await store_factory()
        for number in range(4):
            await ended.pending.add(question(f"ask_{number}", call_id=f"call_{number}", run_id=f"run_{number}"))
        await ended.pending.cancel("call_0")
        await ended.pending.cancel("call_1")
        await ended.pending.settle("ask_1", "cancelled", outcome={"status": "failed"})
        denial = Answer(decision="deny", reason="no")
        await ended.pending.claim("ask_2", denial, by="acme:boss", at=1500.0)
        await ended.pending.expire(3000.0)
        await ended.close()

        both = await asyncio.gather(store.pending.adopt_claims(), other.pending.adopt_claims())

        adopted = sorted((action.id, action.status, action.answer) for actions in both for action in actions)
        assert adopted == [("ask_0", "cancelled", None), ("ask_2", "claimed", denial), ("ask_3", "expired", None)]

    async def test_a_claim_is_adopted_after_the_intent_of_its_call(
        self, store: Store, other: Store, store_factory: StoreFactory
    ) -> None:
        ended = await store_factory()
        await ended.pending.add(question())
        await ended.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await ended.journal.begin(intent("call_1"))
        await ended.close()

        (entry,) = await store.journal.adopt_orphans()
        too_early = await other.pending.adopt_claims()
        await store.journal.forget(entry.call_id, "")
        (action,) = await other.pending.adopt_claims()

        assert (list(too_early), action.call_id) == ([], entry.call_id)

    async def test_a_lease_of_a_closed_process_makes_the_row_doubtful(
        self, store: Store, store_factory: StoreFactory
    ) -> None:
        ended = await store_factory()
        row = await ended.tokens.put(token_key(), {"access": "token"})
        await ended.tokens.take(token_key(), row.version, holder="ended", lease_s=60)
        held = await store.tokens.take(token_key(), row.version, holder="next", lease_s=60)
        await ended.close()
        after = await store.tokens.take(token_key(), row.version, holder="next", lease_s=60)

        assert held is not None
        assert after is not None
        assert (held.status, held.holder, after.status) == ("live", "ended", "doubtful")

    async def test_one_process_at_a_time_sends_for_a_webhook(
        self, store: Store, other: Store, store_factory: StoreFactory
    ) -> None:
        first = await store_factory()
        progress = await first.webhooks.take("audit", begin=0)
        assert progress is not None
        assert await other.webhooks.take("audit", begin=0) is None
        assert not await other.webhooks.save(progress)
        await first.close()

        assert await other.webhooks.take("audit", begin=0) == progress
        await other.webhooks.release("audit")
        assert await store.webhooks.take("audit", begin=0) == progress

    async def test_another_process_reads_and_writes_during_a_key_rotation(self, store: Store, other: Store) -> None:
        for number in range(50):
            await store.journal.begin(intent(f"call_{number}"))
        row = await other.tokens.put(token_key(), {"access": "token"})

        rotation = asyncio.ensure_future(store.rotate_key())
        for number in range(20):
            swapped = await other.tokens.swap(token_key(), row.version, {"access": f"token-{number}"})
            assert swapped is not None
            row = swapped
            assert await other.journal.find(f"call_{number}", "") is not None

        assert (await rotation)["unreadable"] == 0
        assert await store.tokens.get(token_key()) == row
