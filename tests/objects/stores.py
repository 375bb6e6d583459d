"""Stores whose contents are in object storage, and what their tables and their bucket contain."""

import sqlite3
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

from tests.objects.server import ObjectStorage
from toolpost.auth.keys import FileCipher
from toolpost.contracts.clock import Clock
from toolpost.contracts.storage import Retention, Store
from toolpost.stores.sql.content_objects import GRACE_S
from toolpost.stores.sqlite.store import SQLiteStore, open_sqlite_store

NOW = 1_000_000.0


def open_store(folder: Path, place: str | None, *, at: float = NOW) -> SQLiteStore:
    return open_sqlite_store(folder, cipher=FileCipher(folder / "key"), clock=Clock(wall=lambda: at), artifacts=place)


def rows(folder: Path) -> list[tuple[Any, ...]]:
    """The names and the states of all contents."""
    with closing(sqlite3.connect(folder / "toolpost.db")) as db:
        return db.execute("SELECT object, state FROM contents ORDER BY object").fetchall()


def states(folder: Path) -> Counter[str]:
    return Counter(state for _, state in rows(folder))


def objects(storage: ObjectStorage, prefix: str) -> list[str]:
    """The names of the objects that exist, as the table has them."""
    return [name.removeprefix(f"{prefix}/") for name in storage.names(prefix)]


async def collect(store: Store, *, hours: float) -> None:
    """Prune as a process does that many hours later."""
    await store.prune(Retention(), now=NOW + hours * 3600.0)


async def collect_everything(store: Store) -> None:
    """Prune after each grace period: of uploads that were interrupted, and of what was then deleted."""
    grace_h = GRACE_S / 3600.0 + 0.1
    await collect(store, hours=grace_h)
    await collect(store, hours=2 * grace_h)
