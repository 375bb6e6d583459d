"""The tests of `toolpost.testing.stores` on stores whose contents are in object storage."""

from pathlib import Path

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.contracts.storage import Store
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.stores.sqlite.store import open_sqlite_store
from toolpost.testing.stores import SharedStoreTests, StoreFactory, StoreTests

pytestmark = pytest.mark.programs


class TestSQLiteWithObjects(StoreTests, SharedStoreTests):
    @pytest.fixture
    def store_factory(self, tmp_path: Path, place: str) -> StoreFactory:
        async def open_again() -> Store:
            return open_sqlite_store(tmp_path, cipher=FileCipher(tmp_path / "key"), artifacts=place)

        return open_again


class TestPostgresWithObjects(StoreTests, SharedStoreTests):
    @pytest.fixture
    def store_factory(self, tmp_path: Path, place: str, postgres_url: str) -> StoreFactory:
        async def open_again() -> Store:
            return open_postgres_store(postgres_url, tmp_path, cipher=FileCipher(tmp_path / "key"), artifacts=place)

        return open_again
