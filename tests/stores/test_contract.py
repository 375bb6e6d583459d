"""The tests of `toolpost.testing.stores` on each backend."""

from pathlib import Path

import pytest

from tests.stores.out_of_order_store import open_out_of_order
from toolpost.auth.keys import FileCipher
from toolpost.contracts.storage import Store
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.sqlite.store import open_sqlite_store
from toolpost.testing.stores import SharedStoreTests, StoreFactory, StoreTests


@pytest.mark.req("MISC-08", "OAUTH-24", "STATE-02")
class TestSQLiteStore(StoreTests, SharedStoreTests):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        async def open_again() -> Store:
            return open_sqlite_store(tmp_path, cipher=FileCipher(tmp_path / "key"))

        return open_again


class TestMemoryStore(StoreTests):
    @pytest.fixture
    def store_factory(self) -> StoreFactory:
        async def open_new() -> Store:
            return MemoryStore()

        return open_new


class TestOutOfOrderStore(StoreTests, SharedStoreTests):
    @pytest.fixture
    def store_factory(self, tmp_path: Path) -> StoreFactory:
        async def open_again() -> Store:
            return open_out_of_order(tmp_path)

        return open_again
