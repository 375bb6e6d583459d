"""Many waiters of one process cost one poll."""

import asyncio
from collections.abc import Collection

import pytest

from toolpost.contracts.errors import StoreError
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import question


class Counted:
    """States of topics, and how often they were read."""

    def __init__(self) -> None:
        self.states: dict[Topic, int] = {}
        self.reads: list[int] = []
        self.polls = 0
        self.version = 0

    async def read(self, topics: Collection[Topic]) -> dict[Topic, int]:
        self.reads.append(len(topics))
        return {topic: self.states.get(topic, 0) for topic in topics}

    async def read_version(self) -> int:
        self.polls += 1
        return self.version


async def test_four_hundred_waiters_poll_together() -> None:
    store = Counted()
    changes = Changes(store.read, store.read_version, poll_s=0.01)
    topics: list[Topic] = [("pending", str(number)) for number in range(400)]
    waiting = [asyncio.create_task(changes.wait({topic: 0}, timeout_s=30)) for topic in topics]
    await asyncio.sleep(0.2)

    assert store.reads == [1] * 400 + [400]  # each once when it begins, and one poll for all
    assert store.polls <= 20

    store.states[topics[7]], store.version = 1, 1
    assert await waiting[7] == {topics[7]: 1}
    assert sum(task.done() for task in waiting) == 1
    assert store.reads[401:] == [400, 1]
    for task in waiting:
        task.cancel()


async def test_nothing_is_polled_when_no_one_waits() -> None:
    store = Counted()
    changes = Changes(store.read, store.read_version, poll_s=0.01)
    assert await changes.wait({("a",): 0}, timeout_s=0.03) == {("a",): 0}
    await asyncio.sleep(0.03)
    polls = store.polls
    await asyncio.sleep(0.05)

    assert store.polls == polls
    assert changes.waiters == {}


async def test_a_notice_wakes_without_a_poll() -> None:
    store = Counted()
    changes = Changes(store.read)
    waiting = asyncio.create_task(changes.wait({("a",): 0, ("b",): 0}, timeout_s=30))
    await asyncio.sleep(0.01)
    changes.notify([("b",)])  # without a change: the waiter reads again, and goes on waiting
    await asyncio.sleep(0.01)
    assert not waiting.done()
    store.states["b",] = 1
    await asyncio.to_thread(changes.notify, [("b",)])

    assert await waiting == {("a",): 0, ("b",): 1}


async def test_who_waits_learns_that_the_store_was_closed(sqlite: SQLiteStore) -> None:
    await sqlite.pending.add(question())
    state = await sqlite.pending.wait(["ask_1"])
    waiting = asyncio.create_task(sqlite.pending.wait(["ask_1"], state, timeout_s=30))
    await asyncio.sleep(0.05)
    await sqlite.close()

    with pytest.raises(StoreError, match="is closed"):
        await waiting
