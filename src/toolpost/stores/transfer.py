"""Copies of a whole store: into another database, and between a database and an archive.

A database that supports copies implements `PortableBackend`. All databases have the same tables and columns, so rows
are copied unchanged: hashes and MACs stay valid, and encrypted values are not decrypted.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from importlib.metadata import version
from typing import Any, NamedTuple, Protocol, TypeAlias, runtime_checkable

from msgspec import Struct

from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.chain import DIGEST_BYTES, LogKey
from toolpost.stores.encrypted_columns import wrong_key
from toolpost.stores.encryption import RowCipher
from toolpost.stores.ledger import Ledger, read_log_key
from toolpost.stores.registry import StoreBackend, StoreOptions, find_backend
from toolpost.stores.sql.database import Statements

Batches: TypeAlias = Iterable[Sequence[tuple[Any, ...]]]

_BY_INSERTION = "rowid"
COPIED: Mapping[str, str] = {
    "runs": "nr",
    "segments": "last_id",
    "journal": _BY_INSERTION,
    "pending": _BY_INSERTION,
    "keys": 'tenant, "user", key',
    "cancels": "nr",
    "artifacts": _BY_INSERTION,
    "state": "kind, key, item",
    "tokens": 'tenant, "user", issuer, resource, client',
    "caller_keys": "created_at, id",
    "webhooks": "name",
    "jobs": _BY_INSERTION,
    "schedules": "tenant, name",
    "metrics": "tenant, dimension, width, begin, key",
    "metrics_position": "position",
    "contents": "object",
}
"""The tables that are copied, with the order of their rows. The ledger is copied separately, as a `LogState`."""
SINCE: Mapping[str, int] = {"jobs": 2, "schedules": 2, "contents": 3}
"""The versions of the schema that added tables; the others are in every version."""
NOT_BACKED_UP = frozenset({"contents"})
"""Tables that a backup does not contain: a restored database has new objects, and deletes no others."""
RENUMBERED = frozenset({"journal", "pending", "cancels", "artifacts", "jobs"})
"""Tables whose rows get new numbers in the same order."""
_ALWAYS_ONE_ROW = "metrics_position"
BATCH = 1000
NOT_EMPTY = "database_not_empty"  # the code of the error


class LogState(Struct, frozen=True, kw_only=True):
    """The ledger of a whole log; `key` is its encrypted key, and `total` the sum of the MACs of its runs."""

    key: bytes
    last_event: int
    last_run: int
    runs: int
    total: bytes
    is_intact: bool

    @classmethod
    def of(cls, key: bytes, ledger: Ledger) -> LogState:
        """Return the state of a ledger."""
        return cls(
            key=key,
            last_event=ledger.last_event,
            last_run=ledger.last_run,
            runs=ledger.runs,
            total=ledger.total.to_bytes(DIGEST_BYTES, "big"),
            is_intact=ledger.is_intact,
        )

    def fill(self, ledger: Ledger) -> None:
        """Set the runs of a new ledger."""
        ledger.runs, ledger.total, ledger.is_intact = self.runs, int.from_bytes(self.total, "big"), self.is_intact


class Snapshot(Protocol):
    """The data of a store at one moment."""

    @property
    def schema(self) -> int: ...
    @property
    def log(self) -> LogState: ...

    def columns(self, table: str) -> list[str]:
        """Return the columns of a table that are copied."""
        ...

    def count(self, table: str) -> int:
        """Return the number of rows of a table."""
        ...

    def rows(self, table: str) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the rows of a table in batches."""
        ...


class LockedSnapshot(Snapshot, Protocol):
    """The data of a store that no other process uses."""

    def freeze(self, place: str) -> None:
        """Refuse all further use of the database, whose data was moved to a place."""
        ...


class EmptyStore(Protocol):
    """A database without data, which is filled in one transaction."""

    @property
    def statements(self) -> Statements:
        """The transaction, for statements that all databases share."""
        ...

    def insert(self, table: str, columns: Sequence[str], batches: Batches) -> int:
        """Insert rows; return their number."""
        ...

    def write_log(self, log: LogState, *, position: int) -> LogKey:
        """Write the ledger; events that are written later get positions above `position`. Return the key of the log.

        Raise StoreError if the key of the data is missing.
        """
        ...


class Migration(NamedTuple):
    """The versions of a schema before and after a migration; 0 stands for a missing database."""

    before: int
    after: int


@runtime_checkable
class PortableBackend(StoreBackend, Protocol):
    """A database that can be migrated, backed up, restored and moved."""

    def describe(self, options: StoreOptions) -> str:
        """Return the place of the database, without a password."""
        ...

    def migrate(self, options: StoreOptions) -> Migration:
        """Apply the missing migrations."""
        ...

    def snapshot(self, options: StoreOptions) -> AbstractContextManager[Snapshot]:
        """Read the data of a store at one moment, which other processes may use."""
        ...

    def lock(self, options: StoreOptions) -> AbstractContextManager[LockedSnapshot]:
        """Read the data of a store that no process uses; StoreError if one does. None can write in the meantime."""
        ...

    def fill(self, options: StoreOptions, *, schema: int) -> AbstractContextManager[EmptyStore]:
        """Fill a database in one transaction, which is rolled back if the context raises.

        The rows are those of the version `schema`; afterwards the newest one is in place. Raise StoreError for a
        database with data, with the code NOT_EMPTY, and for a version that is not known.
        """
        ...

    def clear(self, options: StoreOptions) -> None:
        """Delete all data, after a copy that failed."""
        ...


def find_portable(options: StoreOptions) -> PortableBackend:
    """Return the backend of a database; ConfigError if it does not support copies."""
    backend = find_backend(options.database)
    if isinstance(backend, PortableBackend):
        return backend
    name = options.database.partition(":")[0]
    raise ConfigError(f"database: {name} has nothing that could be migrated, backed up or moved")


def tables_of(schema: int) -> list[str]:
    """Return the copied tables that a version of the schema has."""
    return [table for table in COPIED if SINCE.get(table, 1) <= schema]


def rows_of_users(schema: int) -> list[str]:
    """Return the tables that are empty in a new database."""
    return [table for table in tables_of(schema) if table != _ALWAYS_ONE_ROW]


def count_rows_of_users(rows: Mapping[str, int]) -> int:
    """Return the number of rows of users from the numbers by table, which may be those of an earlier version."""
    return sum(count for table, count in rows.items() if table != _ALWAYS_ONE_ROW)


def open_log(key: bytes, cipher: Cipher, place: str) -> LogKey:
    """Decrypt the key of a log; StoreError if the encryption key of the data is another."""
    if not key:
        raise StoreError(f"the database {place!r} was never used; it has nothing to copy")
    log_key = read_log_key(key, RowCipher(cipher))
    if log_key is None:
        raise wrong_key(f"the data of {place!r}", cipher)
    return log_key


def refuse_missing(tables: Collection[str], schema: int, place: str) -> None:
    """Raise StoreError if a database lacks a table of its version."""
    missing = [table for table in (*tables_of(schema), "ledger") if table not in tables]
    if missing:
        raise StoreError(f"tables of {place!r} are missing: {', '.join(missing)}; restore a backup")


def refuse_version(version: int, newest: int, place: str) -> None:
    """Raise StoreError for data of a version that is not known."""
    if version > newest:
        raise StoreError(
            f"the data for {place!r} has version {version}, this toolpost knows versions up to {newest}; "
            "upgrade toolpost (pip install --upgrade toolpost)"
        )


def refuse_other_versions(versions: Collection[str | None], place: str) -> None:
    """Raise StoreError if processes of other versions of toolpost use a database that is to be migrated."""
    others = sorted({one for one in versions if one not in (None, "", version("toolpost"))})
    if others:
        raise StoreError(
            f"the tables of {place!r} have to be changed for toolpost {version('toolpost')}, but processes of "
            f"{', '.join(others)} use them; stop these processes first"
        )


def refuse_users(living: int, place: str, advice: str) -> None:
    """Raise StoreError if processes use a database."""
    if living:
        processes = "1 process uses" if living == 1 else f"{living} processes use"
        raise StoreError(f"{processes} the database {place!r}; stop `toolpost up` and other programs {advice}")


def refuse_rows(counts: Mapping[str, int], place: str, advice: str) -> None:
    """Raise StoreError with NOT_EMPTY if a database has rows, which are counted by table."""
    if found := ", ".join(f"{count} of {table}" for table, count in counts.items() if count):
        raise StoreError(f"the database {place!r} is not empty: it contains {found}. {advice}", code=NOT_EMPTY)


def copy_rows(source: Snapshot, target: EmptyStore) -> dict[str, int]:
    """Copy all rows; return their number by table. StoreError if the numbers differ."""
    return {
        table: target.insert(table, source.columns(table), source.rows(table)) for table in tables_of(source.schema)
    }


def count_rows(source: Snapshot) -> dict[str, int]:
    """Return the number of rows by table."""
    return {table: source.count(table) for table in tables_of(source.schema)}
