"""Checks of a PostgreSQL database that change nothing."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import psycopg

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.contracts.store_status import StoreInspection
from toolpost.stores.encryption import RowCipher
from toolpost.stores.ledger import read_log_key
from toolpost.stores.postgres.database import MIGRATIONS, READ_ONLY, Connection, Database, read_version
from toolpost.stores.postgres.key_rotation import check_key
from toolpost.stores.postgres.liveness import list_owners
from toolpost.stores.postgres.shared_statements import PostgresStatements
from toolpost.stores.postgres.transfer import refuse_moved
from toolpost.stores.registry import StoreCheck
from toolpost.stores.sql.status import read_status
from toolpost.stores.transfer import refuse_missing

_CHANNEL = "toolpost_check"
NOTIFIED_S = 3.0
_CLOCKS_S = 5.0
_SERVER = "SELECT split_part(version(), ' ', 2), pg_size_pretty(pg_database_size(current_database()))"
_TABLES = "SELECT tablename FROM pg_tables WHERE schemaname = 'toolpost'"
_SETTINGS = """
SELECT current_setting('fsync'), current_setting('synchronous_commit'), current_setting('transaction_read_only')
"""


def check_database(database: Database, make_cipher: Callable[[Path], Cipher], folder: Path) -> Iterator[StoreCheck]:
    """Check the version and the key of a database, its processes, notifications, durability and clock."""
    try:
        with closing(database.connect("check")) as db:
            version = _check_version(db)
            yield version
            if version.status == "broken":
                return
            yield from _check_server(db)
            yield _check_clock(db)
            yield _check_notifications(db, database)
            known = read_version(db)
            if not known:
                return
            refuse_moved(db, database.place)
            refuse_missing({name for (name,) in db.execute(_TABLES)}, known, database.place)
            check_key(db, make_cipher(folder), database.place)
            yield _check_owners(db)
    except (psycopg.Error, StoreError) as error:
        yield StoreCheck("broken", database.explain(error).message)


def inspect_database(
    database: Database, make_cipher: Callable[[Path], Cipher], folder: Path, clock: Clock = SYSTEM_CLOCK
) -> StoreInspection | None:
    """Read the status of a database; None if it is not made yet, StoreError if it cannot be read."""
    try:
        with closing(database.connect("check")) as db:
            version = _check_version(db)
            if version.status == "broken":
                raise StoreError(f"database {database.place!r} has {version.text}")
            if not read_version(db):
                return None
            refuse_moved(db, database.place)
            (encrypted,) = db.execute("SELECT key FROM ledger").fetchone() or (b"",)
            key = read_log_key(encrypted, RowCipher(make_cipher(folder)))
            if key is None:
                return None
            status = read_status(PostgresStatements(db), list_owners(db), at=clock.wall(), schema=read_version(db))
    except psycopg.Error as error:
        raise database.explain(error) from error
    return StoreInspection(status, key.mac)


def _check_version(db: Connection) -> StoreCheck:
    version, newest = read_version(db), len(list(MIGRATIONS.glob("*.sql")))
    if not version:
        return StoreCheck("ok", "not made yet")
    if version > newest:
        return StoreCheck("broken", f"version {version}, newer than this toolpost knows ({newest}); upgrade it")
    return StoreCheck("ok", f"version {version} of {newest}")


def _check_server(db: Connection) -> Iterator[StoreCheck]:
    server, size = db.execute(_SERVER).fetchone() or ("", "")
    yield StoreCheck("ok", f"PostgreSQL {server}, {size}")
    fsync, commit, read_only = db.execute(_SETTINGS).fetchone() or ("on", "on", "off")
    if read_only == "on":
        yield StoreCheck("broken", READ_ONLY)
    if fsync != "on" or commit == "off":
        setting = "fsync" if fsync != "on" else "synchronous_commit"
        yield StoreCheck("note", f"{setting} is off: a crash of the server can lose calls that were reported as done")


def _check_clock(db: Connection) -> StoreCheck:
    before = time.time()
    (there,) = db.execute("SELECT extract(epoch FROM clock_timestamp())::double precision").fetchone() or (before,)
    apart = there - (before + time.time()) / 2
    if abs(apart) < _CLOCKS_S:
        return StoreCheck("ok", "the clocks of the server and of this machine agree")
    return StoreCheck(
        "note",
        f"the clock of the server is {abs(apart):.0f} s {'ahead of' if apart > 0 else 'behind'} that of this machine: "
        "leases are not affected, but times of events and of expiry are; synchronize the clocks (NTP)",
    )


def _check_notifications(db: Connection, database: Database) -> StoreCheck:
    with closing(database.connect("listener")) as listener:
        listener.execute(f"LISTEN {_CHANNEL}")
        db.execute(f"NOTIFY {_CHANNEL}")
        for _ in listener.notifies(timeout=NOTIFIED_S, stop_after=1):
            return StoreCheck("ok", "notifications arrive")
    return StoreCheck(
        "broken",
        "notifications do not arrive: a connection pooler in transaction mode is between (PgBouncer?); "
        "use its session mode, or name the server itself in `database`",
    )


def _check_owners(db: Connection) -> StoreCheck:
    owners = list_owners(db)
    living = Counter(owner.host for owner in owners if owner.is_alive)
    ended = len(owners) - living.total()
    if not living:
        text = "no process uses it"
    else:
        hosts = ", ".join(f"{count} on {host}" for host, count in sorted(living.items(), key=str))
        text = f"{hosts} {'uses' if living.total() == 1 else 'use'} it"
    return StoreCheck("ok", f"{text}; {ended} ended without closing it" if ended else text)
