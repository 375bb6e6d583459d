"""The seam below a store's threads: a commit that is prevented, and a process that is killed."""

import asyncio
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from toolpost.contracts.errors import StoreError
from toolpost.stores.threads import DaemonThreads
from toolpost.testing.stores.samples import event, intent


class FailingThreads(DaemonThreads):
    """Threads whose next commit fails with an error of the disk."""

    fails = False

    def before_commit(self) -> None:
        if self.fails:
            self.fails = False
            raise OSError("the disk is gone")


async def test_a_commit_that_is_prevented_stores_nothing_and_is_retried(tmp_path: Path) -> None:
    threads = FailingThreads()
    async with open_store(tmp_path, threads=threads) as store:
        threads.fails = True
        store.events.emit(event())
        with pytest.raises(StoreError, match="the disk is gone"):
            await store.journal.begin(intent())

        assert await store.journal.find(intent().call_id, "") is None
        async with asyncio.timeout(10):
            while not await store.events.runs():
                await asyncio.sleep(0.01)


async def test_the_intent_of_a_killed_process_is_an_orphan(tmp_path: Path) -> None:
    async with open_store(tmp_path) as killed, open_store(tmp_path) as store:
        await killed.journal.begin(intent())
        assert await store.journal.adopt_orphans() == []

        killed.abandon()

        assert [entry.call_id for entry in await store.journal.adopt_orphans()] == [intent().call_id]
