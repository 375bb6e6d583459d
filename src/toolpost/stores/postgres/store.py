"""The PostgreSQL store: a database that several machines share, its parts, and its backend."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

import psycopg

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.storage import Cipher
from toolpost.stores.changes import Changes
from toolpost.stores.encryption import RowCipher
from toolpost.stores.postgres.changes import SLOW_POLL_S, Listener, read_states
from toolpost.stores.postgres.context import PostgresContext
from toolpost.stores.postgres.database import Connection, Database, Reader, migrate
from toolpost.stores.postgres.event_appender import EventAppender, open_ledger
from toolpost.stores.postgres.key_rotation import check_key
from toolpost.stores.postgres.liveness import LEASE_S, Leases
from toolpost.stores.postgres.transactions import TransactionRunner
from toolpost.stores.threads import DAEMON_THREADS, StoreThreads
from toolpost.stores.topics import notify_events
from toolpost.stores.writer import Writer


class OpenDatabase(NamedTuple):
    """A database with its threads, before the parts of the store."""

    shared: PostgresContext
    listener: Listener

    async def close(self) -> None:
        """Write the queue and close the connections; StoreError reports the events that could not be written."""
        self.listener.stop()
        try:
            await self.shared.writer.close()
        finally:
            self.shared.changes.close()
            await self.listener.finished()
            await self.shared.reader.close()


def open_database(
    url: str,
    *,
    cipher: Cipher,
    clock: Clock = SYSTEM_CLOCK,
    queue_limit: int = 50_000,
    threads: StoreThreads = DAEMON_THREADS,
    lease_s: float = LEASE_S,
) -> OpenDatabase:
    """Connect to a database, migrate it, and register this process; StoreError contains the reason and the remedy."""
    database, rows = Database(url), RowCipher(cipher)
    db, leases = _connect(database, cipher, clock, lease_s)
    appender = EventAppender(leases)
    reader = Reader(database)
    changes = Changes(lambda topics: reader.query(lambda db: read_states(db, topics)), _unknown, poll_s=SLOW_POLL_S)
    transactions = TransactionRunner(
        database, appender, leases, db=db, clock=clock, before_commit=threads.before_commit
    )
    writer = Writer[Connection](
        transactions, limit=queue_limit, committed=partial(notify_events, changes), threads=threads
    )
    listener = Listener(database, leases, changes, clock=clock)
    listener.start(threads)
    shared = PostgresContext(writer, reader, appender, rows, leases, changes, clock, leases.own.key)
    return OpenDatabase(shared, listener)


async def _unknown() -> object:
    """Return a new version at every poll: whether another process has written is told by notifications."""
    return object()


def _connect(database: Database, cipher: Cipher, clock: Clock, lease_s: float) -> tuple[Connection, Leases]:
    db = database.connect("writer")
    try:
        migrate(db, database.place)
        check_key(db, cipher, database.place)
        leases = Leases(open_ledger(db, RowCipher(cipher)), clock=clock, lease_s=lease_s)
        leases.register(db)
    except psycopg.Error as error:
        db.close()
        raise database.explain(error) from error
    except BaseException:
        db.close()
        raise
    return db, leases
