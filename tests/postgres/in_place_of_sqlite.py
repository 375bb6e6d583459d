"""PostgreSQL in place of SQLite: each data folder of a test is a database."""

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

from tests.postgres.databases import drop_database, new_database
from tests.postgres.server import PostgreSQL
from toolpost.contracts.storage import IdKind, Store
from toolpost.contracts.store_status import StoreInspection
from toolpost.stores.postgres.store import PostgresBackend
from toolpost.stores.registry import StoreCheck, StoreOptions


class InPlaceOfSQLite:
    """The backend of `sqlite` with `--store postgres`."""

    server: ClassVar[PostgreSQL]
    urls: ClassVar[dict[Path, str]] = {}

    async def open(self, options: StoreOptions) -> Store:
        return await PostgresBackend().open(_elsewhere(options))

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        return PostgresBackend().find_ids(_elsewhere(options), kind, prefix, tenant=tenant, limit=limit)

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        return PostgresBackend().check(_elsewhere(options))

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return PostgresBackend().inspect(_elsewhere(options))

    @classmethod
    def forget(cls) -> None:
        """Drop the databases of a test."""
        for url in cls.urls.values():
            drop_database(cls.server, url)
        cls.urls.clear()


def _elsewhere(options: StoreOptions) -> StoreOptions:
    assert options.data_dir is not None
    folder = options.data_dir.resolve()
    if folder not in InPlaceOfSQLite.urls:
        InPlaceOfSQLite.urls[folder] = new_database(InPlaceOfSQLite.server)
    return options._replace(database=InPlaceOfSQLite.urls[folder])
