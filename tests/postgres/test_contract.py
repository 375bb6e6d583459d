"""The tests of `toolpost.testing.stores` on PostgreSQL."""

from pathlib import Path

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.contracts.storage import Store
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.testing.stores import SharedStoreTests, StoreFactory, StoreTests

pytestmark = pytest.mark.programs


class TestPostgresStore(StoreTests, SharedStoreTests):
    @pytest.fixture
    def store_factory(self, postgres_url: str, tmp_path: Path) -> StoreFactory:
        async def open_again() -> Store:
            return open_postgres_store(postgres_url, tmp_path, cipher=FileCipher(tmp_path / "key"))

        return open_again
