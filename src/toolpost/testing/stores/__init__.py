"""Tests of the Store Protocol, for every backend: subclass `StoreTests` and define the fixture `store_factory`.

    class TestMyStore(StoreTests, SharedStoreTests):
        @pytest.fixture
        def store_factory(self, tmp_path: Path) -> StoreFactory:
            async def open_store() -> Store:
                return await MyStore.open(tmp_path)

            return open_store

Each call of the factory opens the same data again, as another process does. A store that no other process can open
omits `SharedStoreTests`. The tests need pytest and pytest-asyncio: `pip install 'toolpost[testing]'`.
"""

import pytest

_PARTS = (
    "artifacts",
    "calls",
    "erasure",
    "events",
    "jobs",
    "limits",
    "metrics",
    "pending",
    "pruning",
    "sessions",
    "shared",
    "state",
    "status",
    "tokens",
    "waits",
)
pytest.register_assert_rewrite(*(f"{__name__}.{part}" for part in _PARTS))

from toolpost.testing.stores.suite import SharedStoreTests, StoreFactory, StoreTests  # noqa: E402 - after the line above

__all__ = ["SharedStoreTests", "StoreFactory", "StoreTests"]
