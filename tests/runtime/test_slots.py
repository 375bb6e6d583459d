"""Slots that processes share: order, cancellation, and a store that cannot be reached."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Store
from toolpost.runtime.concurrency import BackgroundTasks
from toolpost.runtime.slots import SharedSlots, WaitingLine
from toolpost.stores.memory.store import MemoryStore

PATIENCE_S = 30.0


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Store]:
    opened: Store = open_store(tmp_path) if request.param == "sqlite" else MemoryStore()
    yield opened
    await opened.close()


def slots_of(store: Store, limit: int = 1) -> SharedSlots:
    return SharedSlots("tool x", limit, WaitingLine(store.limits, BackgroundTasks()))


async def settled() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def test_waiting_calls_get_slots_in_their_order(store: Store) -> None:
    slots, order = slots_of(store, 2), list[int]()

    async def use(number: int) -> None:
        await slots.acquire()
        order.append(number)
        await asyncio.sleep(0)
        slots.release()

    async with asyncio.timeout(PATIENCE_S):
        await asyncio.gather(*(use(number) for number in range(20)))

    assert order == list(range(20))


async def test_a_cancelled_call_keeps_no_slot_whenever_it_is_cancelled(store: Store) -> None:
    slots = slots_of(store)
    for turns in range(8):  # before, while and after the slot comes
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await settled()
        slots.release()
        for _ in range(turns):
            await asyncio.sleep(0)
        waiting.cancel()
        if not (await asyncio.gather(waiting, return_exceptions=True))[0]:
            slots.release()

    async with asyncio.timeout(PATIENCE_S):
        await slots.acquire()


async def test_a_slot_that_another_process_returns_ends_a_wait(tmp_path: Path) -> None:
    async with open_store(tmp_path) as mine, open_store(tmp_path) as other:
        assert await other.limits.enter("tool x", 1)
        waiting = asyncio.create_task(slots_of(mine).acquire())
        await settled()
        assert not waiting.done()
        other.limits.leave("tool x")

        async with asyncio.timeout(PATIENCE_S):
            await waiting


async def test_another_process_gets_a_slot_that_is_no_longer_used(tmp_path: Path) -> None:
    async with open_store(tmp_path) as mine, open_store(tmp_path) as other:
        slots, theirs = slots_of(mine), slots_of(other)
        for _ in range(3):
            await slots.acquire()
            slots.release()

        async with asyncio.timeout(PATIENCE_S):
            await theirs.acquire()
        assert not await mine.limits.enter("tool x", 1)


async def test_another_process_gets_its_turn_while_calls_of_this_one_wait(tmp_path: Path) -> None:
    async with open_store(tmp_path) as mine, open_store(tmp_path) as other:
        slots, theirs = slots_of(mine), slots_of(other)

        async def use() -> None:
            while True:
                await slots.acquire()
                await asyncio.sleep(0.001)
                slots.release()

        users = [asyncio.create_task(use()) for _ in range(5)]
        async with asyncio.timeout(PATIENCE_S):
            await theirs.acquire()
        theirs.release()
        for user in users:
            user.cancel()
        await asyncio.gather(*users, return_exceptions=True)


async def test_a_wait_fails_when_the_store_cannot_be_reached(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        slots = slots_of(store)
        await slots.acquire()
        waiting = asyncio.create_task(slots.acquire())
        await settled()

    async with asyncio.timeout(PATIENCE_S):
        with pytest.raises(StoreError, match="cannot be checked") as refused:
            await waiting
    assert refused.value.is_retryable
