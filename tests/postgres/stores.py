"""Stores on PostgreSQL, as several processes have them."""

import asyncio
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg

from toolpost.auth.keys import FileCipher
from toolpost.stores.postgres.database import Connection, Database
from toolpost.stores.postgres.store import PostgresStore, open_postgres_store


def open_store(url: str, folder: Path, **options: Any) -> PostgresStore:
    return open_postgres_store(url, folder, cipher=FileCipher(folder / "key"), **options)


def open_judge(url: str, folder: Path) -> PostgresStore:
    """A store that takes others for dead as soon as their leases have ended."""
    return open_store(url, folder, probation_s=0.0)


@contextmanager
def asking(url: str) -> Generator[Connection]:
    """A connection of the test."""
    with Database(url).connect("check") as db:
        yield db


def end_lease(url: str, owner_id: str) -> None:
    """Do what happens when a process does not renew its lease."""
    with asking(url) as db:
        assert db.execute("UPDATE owners SET until = 0 WHERE id = %s", (owner_id,)).rowcount == 1


def end_connections(url: str) -> int:
    """End all connections of others to the database, as a server that crashes does."""
    with psycopg.connect(url, autocommit=True) as db:
        found = db.execute(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE datname = current_database() AND pid <> pg_backend_pid()"
        )
        return len(found.fetchall())


async def until(check: Callable[[], Awaitable[Any]], *, patience_s: float = 60.0) -> Any:
    """Ask again until there is an answer."""
    async with asyncio.timeout(patience_s):
        while not (answer := await check()):
            await asyncio.sleep(0.05)
        return answer
