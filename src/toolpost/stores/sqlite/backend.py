"""The backend `sqlite`: one database in the data folder."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.storage import IdKind, Store
from toolpost.stores.registry import StoreCheck, StoreOptions
from toolpost.stores.sqlite import store
from toolpost.stores.sqlite.database import MIGRATIONS, open_readable
from toolpost.stores.sqlite.ids import find_ids


class SQLiteBackend:
    """Opens, reads and checks the database of a data folder."""

    async def open(self, options: StoreOptions) -> Store:
        folder = _folder(options)
        cipher = options.make_cipher(folder)
        return store.open_sqlite_store(folder, cipher=cipher, queue_limit=options.event_queue)

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        path = _folder(options) / store.DATABASE
        try:
            if not path.exists():
                return []
            with closing(open_readable(path, busy_s=0.2)) as db:
                return find_ids(db, kind, prefix, tenant=tenant, limit=limit)
        except (OSError, sqlite3.Error):
            return []

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        path = _folder(options) / store.DATABASE
        if not path.exists():
            yield StoreCheck("ok", "not made yet")
            return
        try:
            with closing(open_readable(path, busy_s=1.0)) as db:
                version = int(db.execute("PRAGMA user_version").fetchone()[0])
        except sqlite3.Error as error:
            yield StoreCheck("broken", f"{path}: {error}")
            return
        newest = len(list(MIGRATIONS.glob("*.sql")))
        if version > newest:
            yield StoreCheck("broken", f"version {version}, newer than this toolpost knows ({newest}); upgrade it")
        else:
            yield StoreCheck("ok", f"version {version} of {newest}, {path.stat().st_size // 1024} KB")


def _folder(options: StoreOptions) -> Path:
    if options.database != "sqlite":
        raise ConfigError("database: sqlite takes no address; the database is in the folder data_dir")
    if options.data_dir is None:
        raise ConfigError("database: sqlite needs a data folder; set data_dir, or use memory")
    return options.data_dir
