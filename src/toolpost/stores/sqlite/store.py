"""The SQLite store: a database in the data folder, its parts, and its backend."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import Self

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.jobs import JobStore, ScheduleStore
from toolpost.contracts.limits import LimitStore
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import (
    ArtifactStore,
    CallerKeyStore,
    CancelStore,
    Cipher,
    EventLog,
    IdempotencyStore,
    IdKind,
    Journal,
    KeyUseStore,
    MetricStore,
    PendingStore,
    Retention,
    SessionStore,
    Store,
    TokenRows,
    WebhookStore,
)
from toolpost.contracts.store_status import StoreInspection, StoreStatus
from toolpost.contracts.users import UserSummary
from toolpost.stores.changes import Changes
from toolpost.stores.durable_files import make_private_folder
from toolpost.stores.encryption import RowCipher
from toolpost.stores.key_uses import EncryptedKeyUses
from toolpost.stores.ledger import Ledger
from toolpost.stores.registry import StoreCheck, StoreOptions
from toolpost.stores.sessions import EncryptedSessionStore
from toolpost.stores.sql.artifacts import SQLArtifactStore
from toolpost.stores.sql.caller_keys import SQLCallerKeys
from toolpost.stores.sql.content_objects import ContentPlaces, check_bucket, refuse_other_place
from toolpost.stores.sql.erasure import Forgetter
from toolpost.stores.sql.jobs import SQLJobStore
from toolpost.stores.sql.key_rotation import KeyRotation
from toolpost.stores.sql.metrics import SQLMetricStore
from toolpost.stores.sql.pending import SQLPendingStore
from toolpost.stores.sql.pruning import Pruner
from toolpost.stores.sql.schedules import SQLScheduleStore
from toolpost.stores.sql.state import SQLStateTable
from toolpost.stores.sql.status import read_status
from toolpost.stores.sql.tokens import SQLTokenRows
from toolpost.stores.sql.users import list_users
from toolpost.stores.sql.webhooks import SQLWebhookStore
from toolpost.stores.sqlite import transfer
from toolpost.stores.sqlite.calls import SQLiteCancelStore, SQLiteIdempotencyStore, SQLiteJournal
from toolpost.stores.sqlite.changes import read_states
from toolpost.stores.sqlite.checks import check_folder, inspect_folder
from toolpost.stores.sqlite.context import SQLiteContext
from toolpost.stores.sqlite.database import (
    DATABASE,
    OWNERS,
    Reader,
    open_readable,
    open_writable,
    store_error,
    truncate_wal,
)
from toolpost.stores.sqlite.event_appender import EventAppender, open_ledger
from toolpost.stores.sqlite.event_log import SQLiteEventLog, read_next_segments
from toolpost.stores.sqlite.key_check import check_key
from toolpost.stores.sqlite.limits import SQLiteLimits
from toolpost.stores.sqlite.liveness import Liveness, list_owners
from toolpost.stores.sqlite.shared_statements import SharedSQLite, SQLiteStatements
from toolpost.stores.sqlite.transactions import TransactionRunner
from toolpost.stores.state import EncryptedStateStore
from toolpost.stores.threads import DAEMON_THREADS, StoreThreads
from toolpost.stores.topics import notify_events
from toolpost.stores.transfer import EmptyStore, LockedSnapshot, Migration, Snapshot
from toolpost.stores.writer import Writer

_IDS: dict[IdKind, str] = {
    "pending": "SELECT id, tenant, created_at AS at FROM pending",
    "open_pending": "SELECT id, tenant, created_at AS at FROM pending WHERE status = 'open'",
    "run": "SELECT run_id AS id, tenant, started_at AS at FROM runs",
    "call": """
        SELECT run_id AS id, tenant, started_at AS at FROM runs UNION SELECT root_call, tenant, started_at FROM runs
    """,
    "artifact": "SELECT id, tenant, created_at AS at FROM artifacts",
    "caller_key": "SELECT id, tenant, created_at AS at FROM caller_keys",
}


class SQLiteStore:
    """The store of one Toolbox in a data folder, which several processes can share."""

    def __init__(
        self,
        shared: SQLiteContext,
        cipher: Cipher,
        places: ContentPlaces,
        *,
        limits: SQLiteLimits,
        truncate: Callable[[], None],
    ) -> None:
        self.owner_id = shared.owner_id
        self.events: EventLog = SQLiteEventLog(shared)
        self.journal: Journal = SQLiteJournal(shared)
        self.idempotency: IdempotencyStore = SQLiteIdempotencyStore(shared)
        self.cancels: CancelStore = SQLiteCancelStore(shared)
        database, ids = SharedSQLite(shared), IdMaker(shared.clock, secure=True)
        contents = places.contents(database, cipher, ids)
        self.pending: PendingStore = SQLPendingStore(database, shared.changes)
        self.caller_keys: CallerKeyStore = SQLCallerKeys(database)
        self.webhooks: WebhookStore = SQLWebhookStore(database)
        self.jobs: JobStore = SQLJobStore(database, shared.changes)
        self.schedules: ScheduleStore = SQLScheduleStore(database)
        self.metrics: MetricStore = SQLMetricStore(database, read_next_segments)
        self.artifacts: ArtifactStore = SQLArtifactStore(database, contents, ids)
        self.tokens: TokenRows = SQLTokenRows(database)
        self.limits: LimitStore = limits
        table = SQLStateTable(database)
        self.key_uses: KeyUseStore = EncryptedKeyUses(table, shared.cipher)
        self.sessions: SessionStore = EncryptedSessionStore(table, shared.cipher)
        self.state = EncryptedStateStore(
            table, shared.cipher, owner_id=lambda: shared.owner_id, is_alive=self.journal.is_alive
        )
        self._shared = shared
        self._close_limits = limits.close
        self._pruner = Pruner(database, contents)
        # Other processes may keep the write-ahead log for as long as they run.
        self._forgetter = Forgetter(database, contents=contents, finish=truncate)
        self._key_rotation = KeyRotation(database, cipher, contents)

    async def find_ids(self, kind: IdKind, prefix: str, *, tenant: str | None = None, limit: int = 50) -> list[str]:
        await self._shared.writer.flush()
        return await self._shared.reader.query(lambda db: _find_ids(db, kind, prefix, tenant=tenant, limit=limit))

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._shared.key.mac(kind, message)

    async def status(self) -> StoreStatus:
        folder, at = self._shared.liveness.folder, self._shared.clock.wall()
        return await self._shared.reader.query(lambda db: read_status(SQLiteStatements(db), list_owners(folder), at=at))

    async def users(self, *, tenant: str | None = None) -> list[UserSummary]:
        await self._shared.writer.flush()
        return await self._shared.reader.query(lambda db: list_users(SQLiteStatements(db), tenant=tenant))

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return await self._pruner.prune(retention, now=now)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return await self._forgetter.forget(principal)

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        await self._shared.writer.flush()
        return await self._key_rotation.rotate(retire=retire)

    def abandon(self) -> None:
        """Release what shows that this process is alive, and write nothing, as if the process had been killed."""
        self._shared.liveness.abandon()

    async def close(self) -> None:
        """Write the queue and close the database; StoreError reports the events that could not be written."""
        try:
            await self._shared.writer.close()
        finally:
            self._shared.changes.close()
            await self._shared.reader.close()
            self._close_limits()
            self._shared.liveness.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class SQLiteBackend:
    """Opens, reads and checks the database of a data folder."""

    async def open(self, options: StoreOptions) -> Store:
        folder = _folder(options)
        cipher = options.make_cipher(folder)
        return open_sqlite_store(
            folder,
            cipher=cipher,
            clock=options.clock,
            queue_limit=options.event_queue,
            threads=options.threads,
            artifacts=options.artifacts,
        )

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        path = _folder(options) / DATABASE
        try:
            if not path.exists():
                return []
            with closing(open_readable(path, busy_s=0.2)) as db:
                return _find_ids(db, kind, prefix, tenant=tenant, limit=limit)
        except (OSError, sqlite3.Error):
            return []

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        yield from check_folder(_folder(options), options.make_cipher)
        yield from check_bucket(options.artifacts)

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return inspect_folder(_folder(options), options.make_cipher, options.clock)

    def describe(self, options: StoreOptions) -> str:
        return str(_folder(options) / DATABASE)

    def migrate(self, options: StoreOptions) -> Migration:
        folder = _folder(options)
        _make_folder(folder)
        return transfer.migrate_folder(folder)

    def snapshot(self, options: StoreOptions) -> AbstractContextManager[Snapshot]:
        folder = _folder(options)
        return transfer.snapshot(folder, options.make_cipher(folder))

    def lock(self, options: StoreOptions) -> AbstractContextManager[LockedSnapshot]:
        folder = _folder(options)
        return transfer.lock(folder, options.make_cipher(folder))

    def fill(self, options: StoreOptions, *, schema: int) -> AbstractContextManager[EmptyStore]:
        folder = _folder(options)
        return transfer.fill(folder, options.make_cipher(folder), schema=schema)

    def clear(self, options: StoreOptions) -> None:
        transfer.remove(_folder(options) / DATABASE)


def open_sqlite_store(
    data_dir: Path,
    *,
    cipher: Cipher,
    clock: Clock = SYSTEM_CLOCK,
    queue_limit: int = 50_000,
    busy_s: float = 5.0,
    threads: StoreThreads = DAEMON_THREADS,
    artifacts: str | None = None,
) -> SQLiteStore:
    """Open the store in a folder, which is created if it is missing; StoreError contains the reason and the remedy.

    If more than `queue_limit` events are queued, emitters have to drain. `busy_s` limits the wait for a database that
    another process has locked. `artifacts` is the bucket of the contents of artifacts; None is the folder.
    """
    _make_folder(data_dir)
    places = ContentPlaces.of(data_dir, cipher, artifacts)
    path, rows = data_dir / DATABASE, RowCipher(cipher)
    liveness = Liveness(data_dir / OWNERS, clock)
    try:
        db, ledger = _open_database(path, cipher, busy_s, artifacts)
    except StoreError:
        liveness.release()
        raise
    appender = EventAppender(liveness.owner_id, ledger)
    reader = Reader(path, busy_s=busy_s)
    changes = Changes(lambda topics: reader.query(lambda db: read_states(db, topics)), reader.data_version)
    transactions = TransactionRunner(db, appender, path=path, before_commit=threads.before_commit)
    notify = partial(notify_events, changes)
    writer = Writer[sqlite3.Connection](transactions, limit=queue_limit, committed=notify, threads=threads)
    return SQLiteStore(
        SQLiteContext(writer, reader, appender, rows, liveness, changes, clock, ledger.key, liveness.owner_id),
        cipher,
        places,
        limits=SQLiteLimits(data_dir, liveness, clock, threads.before_commit),
        truncate=partial(truncate_wal, path, busy_s=busy_s),
    )


def _open_database(
    path: Path, cipher: Cipher, busy_s: float, artifacts: str | None
) -> tuple[sqlite3.Connection, Ledger]:
    db = open_writable(path, busy_s=busy_s)
    try:
        transfer.refuse_moved(db, path)
        check_key(db, cipher, path)
        refuse_other_place(SQLiteStatements(db), artifacts)
        return db, open_ledger(db, RowCipher(cipher))
    except sqlite3.Error as exc:
        db.close()
        raise store_error(exc, path) from exc
    except BaseException:
        db.close()
        raise


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path)
    except (FileExistsError, NotADirectoryError) as exc:
        raise StoreError(
            f"data folder {str(path)!r} is a file, or below one; move the file or set data_dir to another folder",
            cause=exc,
        ) from exc
    except OSError as exc:
        raise StoreError(
            f"data folder {str(path)!r} cannot be made: {exc.strerror}; "
            "give this user write permission or set data_dir to another folder",
            cause=exc,
        ) from exc


def _folder(options: StoreOptions) -> Path:
    if options.database != "sqlite":
        raise ConfigError("database: sqlite takes no address; the database is in the folder data_dir")
    if options.data_dir is None:
        raise ConfigError("database: sqlite needs a data folder; set data_dir, or use memory")
    return options.data_dir


def _find_ids(db: sqlite3.Connection, kind: IdKind, prefix: str, *, tenant: str | None, limit: int) -> list[str]:
    """Return the IDs with a prefix, newest first."""
    # A range uses the index of the IDs; a pattern does not.
    sql = f"""
        SELECT id FROM ({_IDS[kind]}) WHERE id >= :prefix AND id < :prefix || char(1114111)
        AND (:tenant IS NULL OR tenant = :tenant) ORDER BY at DESC LIMIT :limit
    """  # noqa: S608 - constants
    return [row[0] for row in db.execute(sql, {"prefix": prefix, "tenant": tenant, "limit": limit})]
