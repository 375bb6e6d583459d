"""The fixtures of the store tests."""

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TypeAlias

import pytest
import pytest_asyncio

from toolpost.contracts.events import RunEvent
from toolpost.contracts.storage import Store

StoreFactory: TypeAlias = Callable[[], Awaitable[Store]]


class StoreFixtures:
    """The store under test; the tests close the stores that they open."""

    pytestmark = pytest.mark.asyncio

    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        """Return a function that opens the data of this test, again at every call."""
        raise NotImplementedError("define the fixture `store_factory` in your test class")

    @pytest_asyncio.fixture
    async def store(self, store_factory: StoreFactory) -> AsyncIterator[Store]:
        """Open the store under test."""
        opened = await store_factory()
        yield opened
        await opened.close()


async def emit(store: Store, *events: RunEvent) -> None:
    """Emit events and wait until they are durable."""
    for event in events:
        store.events.emit(event)
    await store.events.flush()
