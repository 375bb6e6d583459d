"""The status of a PostgreSQL store is read without registering a process, and without the data folder."""

from pathlib import Path

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.stores.postgres.store import PostgresBackend, open_postgres_store
from toolpost.stores.registry import StoreOptions
from toolpost.testing.stores.base import emit
from toolpost.testing.stores.samples import event

pytestmark = pytest.mark.programs


async def test_a_store_is_inspected_without_being_opened(postgres_url: str, tmp_path: Path) -> None:
    def cipher(_: Path) -> FileCipher:
        return FileCipher(tmp_path / "key")

    options = StoreOptions(postgres_url, tmp_path / "none", cipher)
    empty = PostgresBackend().inspect(options)
    store = open_postgres_store(postgres_url, tmp_path, cipher=cipher(tmp_path))
    try:
        await emit(store, event())
        found = PostgresBackend().inspect(options)
    finally:
        await store.close()
    after = PostgresBackend().inspect(options)

    assert empty is None
    assert found is not None
    assert after is not None
    [owner] = found.status.owners
    assert (owner.id, owner.is_alive, owner.unfinished) == (store.owner_id, True, 1)
    assert owner.version is not None
    assert found.mac("kind", b"message") == store.mac("kind", b"message")
    assert [(one.is_alive, one.unfinished) for one in after.status.owners] == [(False, 1)]
    assert not (tmp_path / "none").exists()
