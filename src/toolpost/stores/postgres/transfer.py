"""Copies of a whole PostgreSQL store: read it at one moment, or fill an empty database, both by COPY."""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.chain import LogKey
from toolpost.stores.ledger import Ledger
from toolpost.stores.postgres.database import (
    FAULTS,
    MIGRATION_LOCK,
    MIGRATIONS,
    Connection,
    Database,
    constant,
    migrate,
    read_version,
)
from toolpost.stores.postgres.event_appender import POSITION_BITS
from toolpost.stores.postgres.shared_statements import PostgresStatements
from toolpost.stores.transfer import (
    BATCH,
    COPIED,
    RENUMBERED,
    LogState,
    Migration,
    open_log,
    refuse_rows,
    refuse_users,
    refuse_version,
    rows_of_users,
    tables_of,
)

# A copy may take long, and waits for files between statements.
_PATIENT = """
SELECT set_config('statement_timeout', '0', false), set_config('idle_in_transaction_session_timeout', '0', false)
"""
_COLUMNS = """
SELECT attname, format_type(atttypid, NULL) FROM pg_attribute
WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped AND attidentity = '' ORDER BY attnum
"""
_MAIN = "SELECT last_event, last_run, runs, total, mac FROM ledger"
_OWNERS = "SELECT last_event, last_run, runs, total, mac FROM owners"
_LAST = "SELECT (SELECT coalesce(max(last_id), 0) FROM segments), (SELECT coalesce(max(nr), 0) FROM runs)"
_SAVE = "UPDATE ledger SET key = %s, last_event = %s, last_run = %s, runs = %s, total = %s, mac = %s"
_REBASE = f"UPDATE meta SET event_base = pg_current_xact_id()::text::bigint - (%s::bigint >> {POSITION_BITS}) - 2"  # noqa: S608 - constants, here and below
_LIVING = "SELECT count(*) FROM owners WHERE dead_at IS NULL AND until > toolpost.now()"
_MOVED = "SELECT to_regclass('toolpost.moved') IS NOT NULL"
_REFUSE = """
CREATE FUNCTION toolpost.refuse_moved() RETURNS trigger LANGUAGE plpgsql
    AS $$ BEGIN RAISE EXCEPTION 'the data of this database was moved'; END $$
"""


class PostgresSnapshot:
    """A connection in a transaction that reads."""

    def __init__(self, db: Connection, cipher: Cipher, place: str) -> None:
        self.schema = read_version(db)
        self._db = db
        self._types = {table: _read_types(db, table) for table in tables_of(self.schema)}
        self.log = self._read_log(cipher, place)

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table that are copied."""
        return [*self._types[table]]

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        return _count(self._db, table)

    def rows(self, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a table in batches."""
        order = COPIED[table].replace("rowid", "nr")
        selected = f"SELECT {_quoted(self.columns(table))} FROM {table} ORDER BY {order}"  # noqa: S608
        with self._db.cursor().copy(constant(f"COPY ({selected}) TO STDOUT (FORMAT BINARY)")) as copy:
            copy.set_types([*self._types[table].values()])
            rows = copy.rows()
            while batch := [*islice(rows, BATCH)]:
                yield batch

    def _read_log(self, cipher: Cipher, place: str) -> LogState:
        (key,) = self._db.execute("SELECT key FROM ledger").fetchone() or (b"",)
        ledger = _sum_ledger(self._db, open_log(key, cipher, place))
        last_event, ledger.last_run = self._db.execute(_LAST).fetchone() or (0, 0)
        ledger.last_event = max(last_event, ledger.last_event)
        return LogState.of(key, ledger)


class LockedPostgres(PostgresSnapshot):
    """A connection in a transaction that keeps all processes from writing."""

    def freeze(self, place: str) -> None:
        """Refuse every further use: processes that open the database learn where the data is, and none can write."""
        self._db.execute("CREATE TABLE moved (place text NOT NULL)")
        self._db.execute("INSERT INTO moved VALUES (%s)", (place,))
        self._db.execute(_REFUSE)
        for table in (*tables_of(self.schema), "owners"):
            before = f"BEFORE INSERT OR UPDATE OR DELETE ON {table}"
            self._db.execute(constant(f"CREATE TRIGGER moved {before} EXECUTE FUNCTION toolpost.refuse_moved()"))


class EmptyPostgres:
    """An empty database in a transaction that fills it."""

    def __init__(self, db: Connection, cipher: Cipher, place: str) -> None:
        self.statements = PostgresStatements(db)
        self._db = db
        self._cipher = cipher
        self._place = place

    def insert(self, table: str, columns: Sequence[str], batches: Iterable[Sequence[tuple[Any, ...]]]) -> int:
        """Insert rows; return their number."""
        self._db.execute(constant(f"DELETE FROM {table}"))  # noqa: S608
        types = _read_types(self._db, table)
        kinds = [types[name] for name in columns]
        converts = [_CONVERT[kind] for kind in kinds]
        count = 0
        with self._db.cursor().copy(constant(f"COPY {table} ({_quoted(columns)}) FROM STDIN (FORMAT BINARY)")) as copy:
            copy.set_types(kinds)
            for batch in batches:
                for row in batch:
                    copy.write_row([convert(value) for convert, value in zip(converts, row, strict=True)])
                count += len(batch)
        return count

    def write_log(self, log: LogState, *, position: int) -> LogKey:
        """Write the ledger; events that are written later get positions above `position`. Return the key of the log."""
        key = open_log(log.key, self._cipher, self._place)
        ledger = Ledger(key)
        ledger.last_event = max(log.last_event, log.last_run, position)
        log.fill(ledger)
        self._db.execute("DELETE FROM owners")  # of processes that have ended
        self._db.execute(_SAVE, (log.key, *ledger.columns()))
        self._db.execute(constant(_REBASE), (ledger.last_event,))
        return key


@contextmanager
def snapshot(database: Database, cipher: Cipher) -> Generator[PostgresSnapshot]:
    """Read the data of a store at one moment, which other processes may use."""
    with _connected(database) as db:
        _check_version(db, database.place)
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
        yield PostgresSnapshot(db, cipher, database.place)


@contextmanager
def lock(database: Database, cipher: Cipher) -> Generator[LockedPostgres]:
    """Read the data of a store that no process uses, and keep all from writing until the context ends."""
    with _connected(database) as db:
        _check_version(db, database.place)
        db.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        db.execute("LOCK TABLE owners IN ACCESS EXCLUSIVE MODE")  # every transaction that writes begins with this table
        _refuse_users(db, database.place)
        yield LockedPostgres(db, cipher, database.place)
        db.execute("COMMIT")


@contextmanager
def fill(database: Database, cipher: Cipher, *, schema: int) -> Generator[EmptyPostgres]:
    """Fill an empty database in one transaction."""
    place = database.place
    with _connected(database) as db:
        _refuse_version(schema, place)
        migrate(db, place, upto=schema)
        db.execute("BEGIN")
        db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))  # a process that opens it waits for the key
        refuse_moved(db, place)
        _refuse_users(db, place)
        _refuse_data(db, place)
        yield EmptyPostgres(db, cipher, place)
        db.execute("COMMIT")
        migrate(db, place)


def migrate_database(database: Database) -> Migration:
    """Apply the missing migrations."""
    with _connected(database) as db:
        refuse_moved(db, database.place)
        before = read_version(db)
        migrate(db, database.place)
        return Migration(before, read_version(db))


def clear(database: Database) -> None:
    """Delete all data."""
    with _connected(database) as db, db.transaction():
        db.execute(constant(f"TRUNCATE {', '.join(COPIED)}, owners, ledger"))
        db.execute("INSERT INTO ledger VALUES (1, '', 0, 0, 0, '', '')")
        db.execute("INSERT INTO metrics_position VALUES (0)")


def refuse_moved(db: Connection, place: str) -> None:
    """Raise StoreError if the data of a database was moved elsewhere."""
    if db.execute(_MOVED).fetchone() != (True,):
        return
    (target,) = db.execute("SELECT place FROM toolpost.moved").fetchone() or ("",)
    raise StoreError(
        f"the data of {place!r} was moved to {target}; set `database` to that address. "
        "Drop the schema toolpost when you no longer need it",
        code="database_moved",
    )


@contextmanager
def _connected(database: Database) -> Generator[Connection]:
    """Connect for statements that may take long; roll back and close at the end."""
    try:
        with closing(database.connect("check")) as db:
            db.execute(_PATIENT)
            db.silence_s = math.inf
            yield db
    except FAULTS as error:
        raise database.explain(error) from error


def _read_types(db: Connection, table: str) -> dict[str, str]:
    """Return the types of the columns of a table that are copied."""
    types: Mapping[str, str] = dict(db.execute(_COLUMNS, (f"toolpost.{table}",)).fetchall())
    return {name: kind for name, kind in types.items() if table not in RENUMBERED or name != "nr"}


def _sum_ledger(db: Connection, key: LogKey) -> Ledger:
    """Return the ledger of the whole log: the runs of processes that have ended, and of those that run."""
    total = Ledger(key)
    main: Any = db.execute(_MAIN).fetchone()
    total.read(main)
    owners: list[Any] = db.execute(_OWNERS).fetchall()
    total.is_intact = total.is_intact and total.last_run == len(owners)
    for row in owners:
        part = Ledger(key)
        part.read(row)
        total.add(part)
        total.last_event = max(total.last_event, part.last_event)
    return total


def _check_version(db: Connection, place: str) -> None:
    refuse_moved(db, place)
    version = read_version(db)
    if not version:
        raise StoreError(f"there is no data of toolpost in {place!r}; check `database`")
    _refuse_version(version, place)


def _refuse_version(version: int, place: str) -> None:
    refuse_version(version, len(list(MIGRATIONS.glob("*.sql"))), place)


def _refuse_users(db: Connection, place: str) -> None:
    (living,) = db.execute(_LIVING).fetchone() or (0,)
    refuse_users(living, place, "on it. A process that was killed counts for 15 more seconds")


def _refuse_data(db: Connection, place: str) -> None:
    counts = {table: _count(db, table) for table in rows_of_users(read_version(db))}
    refuse_rows(counts, place, "Name another database, or drop the schema toolpost if you no longer need its data")


def _count(db: Connection, table: str) -> int:
    (count,) = db.execute(constant(f"SELECT count(*) FROM {table}")).fetchone() or (0,)  # noqa: S608
    return int(count)


def _quoted(columns: Sequence[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _optional(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


# SQLite stores a whole number in a column of numbers as it came.
_CONVERT: Mapping[str, Callable[[Any], Any]] = {
    "text": _optional(str),
    "bigint": _optional(int),
    "double precision": _optional(float),
    "bytea": _optional(bytes),
}
