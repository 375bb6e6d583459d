"""Tests of rates, slots, breakers and gates."""

import asyncio

from toolpost.contracts.limits import BreakerStatus, Rate, Troubles
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFactory, StoreFixtures

_COOLDOWN_S = 0.5  # a claim to probe lasts as long
SLOW = Rate(interval_s=3600.0, burst=3)  # no token comes back during a test


class LimitTests(StoreFixtures):
    """Tests of `Store.limits`."""

    async def test_a_bucket_has_as_many_tokens_as_its_burst(self, store: Store) -> None:
        waits = [await store.limits.take("a", SLOW) for _ in range(5)]

        assert waits[:3] == [0.0, 0.0, 0.0]
        assert all(3000 < wait_s <= 3600 for wait_s in waits[3:])
        assert await store.limits.take("b", SLOW) == 0.0

    async def test_tokens_come_back_with_time(self, store: Store) -> None:
        rate = Rate(interval_s=0.01, burst=2)
        taken = 0
        async with asyncio.timeout(30):
            while taken < 10:
                wait_s = await store.limits.take("a", rate)
                taken += not wait_s
                assert wait_s <= rate.interval_s + 1e-6
                await asyncio.sleep(wait_s)

    async def test_tokens_that_are_put_back_can_be_taken_again(self, store: Store) -> None:
        for _ in range(3):
            await store.limits.take("a", SLOW)

        assert await store.limits.take("a", SLOW, returned=0.5) > 0
        assert await store.limits.take("a", SLOW, returned=1) == 0.0
        assert await store.limits.take("a", SLOW, returned=100) == 0.0  # never above the burst
        assert [bool(await store.limits.take("a", SLOW)) for _ in range(3)] == [False, False, True]

    async def test_several_tokens_are_taken_together_or_not_at_all(self, store: Store) -> None:
        limits = store.limits

        assert await limits.take("a", SLOW, count=2) == 0.0
        assert 3000 < await limits.take("a", SLOW, count=2) <= 3600
        assert await limits.take("a", SLOW) == 0.0
        assert await limits.take("a", SLOW, count=2, returned=2) == 0.0
        assert await limits.take("a", SLOW) > 0

    async def test_a_slot_can_be_taken_again_after_it_was_returned(self, store: Store) -> None:
        limits = store.limits
        assert [await limits.enter("tool x", 2) for _ in range(3)] == [True, True, False]
        assert await limits.enter("tool y", 2)

        limits.leave("tool x")
        async with asyncio.timeout(30):
            while not await limits.enter("tool x", 2):
                await limits.slot_freed(timeout_s=0.05)

        assert not await limits.enter("tool x", 2)

    async def test_a_breaker_opens_after_failures_in_a_row(self, store: Store) -> None:
        limits = store.limits
        for number in range(2):
            await limits.fail("api", threshold=3, streak=number + 1)
        assert not await limits.succeed("api")
        counts = [await limits.fail("api", threshold=3, streak=number + 1) for number in range(4)]

        assert [(status.failures, status.open_for_s is None, opened) for status, opened in counts] == [
            (1, True, False),
            (2, True, False),
            (3, False, True),
            (4, False, False),
        ]
        (status,) = (await limits.read_troubles()).breakers
        assert (status.name, status.failures, status.open_for_s is None) == ("api", 4, False)
        assert await limits.succeed("api")
        assert not await limits.succeed("api")

    async def test_one_probe_is_admitted_after_the_cooldown(self, store: Store) -> None:
        limits = store.limits
        assert not await limits.claim_probe("api", cooldown_s=0)  # it is closed
        await limits.fail("api", threshold=1, streak=1)

        assert not await limits.claim_probe("api", cooldown_s=3600)  # it has just opened
        await _probe(store)
        assert not await limits.claim_probe("api", cooldown_s=_COOLDOWN_S)
        await limits.abandon_probe("api")
        assert await limits.claim_probe("api", cooldown_s=_COOLDOWN_S)

    async def test_a_probe_that_fails_opens_the_breaker_again(self, store: Store) -> None:
        limits = store.limits
        for number in range(2):
            await limits.fail("api", threshold=2, streak=number + 1)
        await _probe(store)

        status, opened = await limits.fail("api", threshold=2, streak=1)

        assert (status.failures, opened) == (3, False)
        assert not await limits.claim_probe("api", cooldown_s=3600)

    async def test_a_gate_stays_closed_for_the_longest_time(self, store: Store) -> None:
        limits = store.limits
        assert await limits.read_troubles() == Troubles()
        await limits.close_gate("api", wait_s=3600)
        await limits.close_gate("api", wait_s=10)

        (gate,) = (await limits.read_troubles(within_s=60)).gates
        assert gate.name == "api"
        assert 3000 < gate.wait_s <= 3600


class SharedLimitTests(StoreFixtures):
    """Tests of `Store.limits` of several processes."""

    async def test_processes_share_rates(self, store: Store, other: Store) -> None:
        waits = [await each.limits.take("a", SLOW) for each in (store, other, store, other, store)]

        assert [wait_s == 0.0 for wait_s in waits] == [True, True, True, False, False]

    async def test_processes_share_slots(self, store: Store, other: Store) -> None:
        assert [await each.limits.enter("x", 3) for each in (store, other, store, other)] == [True, True, True, False]

        store.limits.leave("x")
        await _enter(other, 3)

        assert not await store.limits.enter("x", 3)

    async def test_a_waiting_process_with_fewer_slots_is_first(self, store: Store, other: Store) -> None:
        for _ in range(3):
            assert await store.limits.enter("x", 3)
        assert not await other.limits.enter("x", 3, waiting=1)

        store.limits.leave("x")

        assert not await store.limits.enter("x", 3, waiting=5)
        await _enter(other, 3)

    async def test_the_slots_of_a_process_that_ended_are_free(self, store: Store, store_factory: StoreFactory) -> None:
        ended = await store_factory()
        for _ in range(2):
            assert await ended.limits.enter("x", 2)
        assert not await store.limits.enter("x", 2)
        await ended.close()

        await _enter(store, 2)

    async def test_processes_share_a_breaker(self, store: Store, other: Store) -> None:
        for each in (store, other, store):
            await each.limits.fail("api", threshold=3, streak=1)
        (before,) = (await other.limits.read_troubles(within_s=60)).breakers
        await store.limits.fail("api", threshold=3, streak=3)

        (status,) = (await other.limits.read_troubles(within_s=60)).breakers
        assert (before.failures, before.open_for_s) == (3, None)  # others may have had successes between them
        assert (status.failures, status.open_for_s is None) == (4, False)
        await _probe(store)
        assert not await other.limits.claim_probe("api", cooldown_s=_COOLDOWN_S)
        assert await other.limits.succeed("api")
        assert (await store.limits.read_troubles(within_s=60)).breakers == (BreakerStatus("api"),)

    async def test_failures_of_several_processes_open_a_breaker_in_time(self, store: Store, other: Store) -> None:
        async with asyncio.timeout(30):
            while not any([(await each.limits.fail("api", threshold=3, streak=1))[1] for each in (store, other)]):
                await store.limits.slot_freed(timeout_s=0.05)

        assert (await other.limits.read_breaker("api")).open_for_s is not None

    async def test_processes_share_gates(self, store: Store, other: Store) -> None:
        await store.limits.close_gate("api", wait_s=3600)

        assert [gate.name for gate in (await other.limits.read_troubles()).gates] == ["api"]


async def _enter(store: Store, limit: int) -> None:
    """Wait for a slot as a waiting process does."""
    async with asyncio.timeout(30):
        while not await store.limits.enter("x", limit, waiting=1):
            await store.limits.slot_freed(timeout_s=0.1)


async def _probe(store: Store) -> None:
    """Wait for the end of the cooldown, and become the process that probes."""
    async with asyncio.timeout(30):
        while not await store.limits.claim_probe("api", cooldown_s=_COOLDOWN_S):
            await store.limits.slot_freed(timeout_s=_COOLDOWN_S / 10)
