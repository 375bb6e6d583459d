"""The PostgreSQL store: a database that several machines share, its parts, and its backend."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing
from functools import partial
from pathlib import Path
from typing import NamedTuple, Self

import psycopg

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
from toolpost.stores.postgres import transfer
from toolpost.stores.postgres.calls import PostgresCancelStore, PostgresIdempotencyStore, PostgresJournal
from toolpost.stores.postgres.changes import SLOW_POLL_S, Listener, PostgresNotifications, read_states
from toolpost.stores.postgres.checks import check_database, inspect_database
from toolpost.stores.postgres.context import PostgresContext
from toolpost.stores.postgres.database import (
    Connection,
    Database,
    PostgresReader,
    constant,
    migrate,
)
from toolpost.stores.postgres.event_appender import PostgresEventAppender, open_ledger
from toolpost.stores.postgres.event_log import PostgresEventLog, read_next_segments
from toolpost.stores.postgres.key_rotation import check_key
from toolpost.stores.postgres.limits import PostgresLimits
from toolpost.stores.postgres.liveness import LEASE_S, Leases, list_owners
from toolpost.stores.postgres.shared_statements import PostgresStatements, SharedPostgres
from toolpost.stores.postgres.transactions import PostgresTransactions
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
from toolpost.stores.state import EncryptedStateStore
from toolpost.stores.threads import DAEMON_THREADS, StoreThreads
from toolpost.stores.topics import notify_events
from toolpost.stores.transfer import EmptyStore, LockedSnapshot, Migration, Snapshot
from toolpost.stores.writer import Writer

_IDS: dict[IdKind, str] = {
    "pending": "SELECT id, tenant, created_at AS at FROM toolpost.pending",
    "open_pending": "SELECT id, tenant, created_at AS at FROM toolpost.pending WHERE status = 'open'",
    "run": "SELECT run_id AS id, tenant, started_at AS at FROM toolpost.runs",
    "call": """
        SELECT run_id AS id, tenant, started_at AS at FROM toolpost.runs
        UNION SELECT root_call, tenant, started_at FROM toolpost.runs
    """,
    "artifact": "SELECT id, tenant, created_at AS at FROM toolpost.artifacts",
    "caller_key": "SELECT id, tenant, created_at AS at FROM toolpost.caller_keys",
}


class OpenDatabase(NamedTuple):
    """A database with its threads, before the parts of the store."""

    database: Database
    shared: PostgresContext
    listener: Listener
    limits: PostgresLimits

    async def close(self) -> None:
        """Write the queue and close the connections; StoreError reports the events that could not be written."""
        self.database.hurry()
        self.listener.stop()
        try:
            await self.limits.close()
            await self.shared.writer.close()
        finally:
            self.shared.changes.close()
            await self.listener.finished()
            await self.shared.reader.close()


class PostgresStore:
    """The store of one Toolbox in a database; contents of artifacts are in a bucket, or in a folder that is shared."""

    def __init__(self, database: OpenDatabase, cipher: Cipher, places: ContentPlaces) -> None:
        self._database = database
        self._shared = shared = database.shared
        self.events: EventLog = PostgresEventLog(shared)
        self.journal: Journal = PostgresJournal(shared)
        self.idempotency: IdempotencyStore = PostgresIdempotencyStore(shared)
        self.cancels: CancelStore = PostgresCancelStore(shared)
        common = SharedPostgres(shared)
        ids = IdMaker(shared.clock, secure=True)
        contents = places.contents(common, cipher, ids)
        self.pending: PendingStore = SQLPendingStore(common, shared.changes)
        self.caller_keys: CallerKeyStore = SQLCallerKeys(common)
        self.webhooks: WebhookStore = SQLWebhookStore(common)
        self.jobs: JobStore = SQLJobStore(common, shared.changes)
        self.schedules: ScheduleStore = SQLScheduleStore(common)
        self.metrics: MetricStore = SQLMetricStore(common, read_next_segments)
        self.artifacts: ArtifactStore = SQLArtifactStore(common, contents, ids)
        self.tokens: TokenRows = SQLTokenRows(common)
        self.limits: LimitStore = database.limits
        table = SQLStateTable(common)
        self.key_uses: KeyUseStore = EncryptedKeyUses(table, shared.cipher)
        self.sessions: SessionStore = EncryptedSessionStore(table, shared.cipher)
        self.state = EncryptedStateStore(
            table, shared.cipher, owner_id=lambda: shared.owner_id, is_alive=self.journal.is_alive
        )
        self._pruner = Pruner(common, contents)
        self._forgetter = Forgetter(common, contents=contents, finish=lambda: None)
        self._key_rotation = KeyRotation(common, cipher, contents)

    @property
    def owner_id(self) -> str:
        """The ID of this process, until it loses its lease."""
        return self._shared.owner_id

    async def find_ids(self, kind: IdKind, prefix: str, *, tenant: str | None = None, limit: int = 50) -> list[str]:
        await self._shared.writer.flush()
        return await self._shared.reader.query(lambda db: _find_ids(db, kind, prefix, tenant=tenant, limit=limit))

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._shared.key.mac(kind, message)

    async def status(self) -> StoreStatus:
        at = self._shared.clock.wall()
        return await self._shared.reader.query(lambda db: read_status(PostgresStatements(db), list_owners(db), at=at))

    async def users(self, *, tenant: str | None = None) -> list[UserSummary]:
        await self._shared.writer.flush()
        return await self._shared.reader.query(lambda db: list_users(PostgresStatements(db), tenant=tenant))

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return await self._pruner.prune(retention, now=now)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return await self._forgetter.forget(principal)

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        await self._shared.writer.flush()
        return await self._key_rotation.rotate(retire=retire)

    def abandon(self) -> None:
        """Close all connections and write nothing, as if the process had been killed; its lease expires."""
        self._database.database.abandon()

    async def close(self) -> None:
        """Write the queue and close the database; StoreError reports the events that could not be written."""
        await self._database.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


class PostgresBackend:
    """Opens, reads and checks a PostgreSQL database."""

    async def open(self, options: StoreOptions) -> Store:
        folder = _folder(options)
        cipher = options.make_cipher(folder)
        return open_postgres_store(
            options.database,
            folder,
            cipher=cipher,
            clock=options.clock,
            queue_limit=options.event_queue,
            threads=options.threads,
            artifacts=options.artifacts,
        )

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        try:
            with closing(Database(options.database).connect("check")) as db:
                return _find_ids(db, kind, prefix, tenant=tenant, limit=limit)
        except (psycopg.Error, StoreError, ConfigError):
            return []

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        yield from check_database(Database(options.database), options.make_cipher, _folder(options))
        yield from check_bucket(options.artifacts)

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return inspect_database(Database(options.database), options.make_cipher, _named_folder(options), options.clock)

    def describe(self, options: StoreOptions) -> str:
        return Database(options.database).place

    def migrate(self, options: StoreOptions) -> Migration:
        return transfer.migrate_database(Database(options.database))

    def snapshot(self, options: StoreOptions) -> AbstractContextManager[Snapshot]:
        return transfer.snapshot(Database(options.database), options.make_cipher(_folder(options)))

    def lock(self, options: StoreOptions) -> AbstractContextManager[LockedSnapshot]:
        return transfer.lock(Database(options.database), options.make_cipher(_folder(options)))

    def fill(self, options: StoreOptions, *, schema: int) -> AbstractContextManager[EmptyStore]:
        return transfer.fill(Database(options.database), options.make_cipher(_folder(options)), schema=schema)

    def clear(self, options: StoreOptions) -> None:
        transfer.clear(Database(options.database))


def open_postgres_store(
    url: str,
    data_dir: Path,
    *,
    cipher: Cipher,
    clock: Clock = SYSTEM_CLOCK,
    queue_limit: int = 50_000,
    threads: StoreThreads = DAEMON_THREADS,
    lease_s: float = LEASE_S,
    probation_s: float | None = None,
    artifacts: str | None = None,
) -> PostgresStore:
    """Open the store in a database; StoreError contains the reason and the remedy.

    If more than `queue_limit` events are queued, emitters have to drain. A process that does not renew its lease for
    `lease_s` is considered terminated by processes that have held a lease for `probation_s` (None: `lease_s`).
    `artifacts` is the bucket of the contents of artifacts; None is the data folder.
    """
    places = ContentPlaces.of(data_dir, cipher, artifacts)
    database = open_database(
        url,
        cipher=cipher,
        clock=clock,
        queue_limit=queue_limit,
        threads=threads,
        lease_s=lease_s,
        probation_s=probation_s,
        artifacts=artifacts,
    )
    return PostgresStore(database, cipher, places)


def open_database(
    url: str,
    *,
    cipher: Cipher,
    clock: Clock = SYSTEM_CLOCK,
    queue_limit: int = 50_000,
    threads: StoreThreads = DAEMON_THREADS,
    lease_s: float = LEASE_S,
    probation_s: float | None = None,
    artifacts: str | None = None,
) -> OpenDatabase:
    """Connect to a database, migrate it, and register this process; StoreError contains the reason and the remedy."""
    database, rows = Database(url), RowCipher(cipher)
    make_leases = partial(Leases, clock=clock, lease_s=lease_s, probation_s=probation_s)
    db, leases = _connect(database, cipher, make_leases, artifacts)
    appender = PostgresEventAppender(leases)
    reader = PostgresReader(database)
    notifications = PostgresNotifications()
    changes = Changes(lambda topics: reader.query(lambda db: read_states(db, topics)), _unknown, poll_s=SLOW_POLL_S)
    transactions = PostgresTransactions(
        database, appender, leases, notifications, db=db, clock=clock, before_commit=threads.before_commit
    )
    writer = Writer[Connection](
        transactions, limit=queue_limit, committed=partial(notify_events, changes), threads=threads
    )
    listener = Listener(database, leases, changes, clock=clock)
    listener.start(threads)
    shared = PostgresContext(writer, reader, appender, rows, leases, changes, notifications, clock, leases.own.key)
    limits = PostgresLimits(database, reader, leases, clock, threads)
    return OpenDatabase(database, shared, listener, limits)


async def _unknown() -> object:
    """Return a new version at every poll; notifications report the writes of other processes."""
    return object()


def _connect(
    database: Database, cipher: Cipher, make_leases: Callable[[Ledger], Leases], artifacts: str | None
) -> tuple[Connection, Leases]:
    db = database.connect("writer")
    try:
        migrate(db, database.place)
        transfer.refuse_moved(db, database.place)
        check_key(db, cipher, database.place)
        refuse_other_place(PostgresStatements(db), artifacts)
        leases = make_leases(open_ledger(db, RowCipher(cipher)))
        leases.register(db)
    except psycopg.Error as error:
        db.close()
        raise database.explain(error) from error
    except BaseException:
        db.close()
        raise
    return db, leases


def _folder(options: StoreOptions) -> Path:
    """Return the data folder, which is created if it is missing."""
    folder = _named_folder(options)
    try:
        make_private_folder(folder)
    except OSError as exc:
        raise StoreError(
            f"data folder {str(folder)!r} cannot be made: {exc.strerror}; "
            "give this user write permission or set data_dir to another folder",
            cause=exc,
        ) from exc
    return folder


def _named_folder(options: StoreOptions) -> Path:
    if options.data_dir is None:
        raise ConfigError(
            "database: postgresql needs a data folder for the contents of artifacts, which all processes share; "
            "set data_dir"
        )
    return options.data_dir


def _find_ids(db: Connection, kind: IdKind, prefix: str, *, tenant: str | None, limit: int) -> list[str]:
    """Return the IDs with a prefix, newest first."""
    of_tenant = "AND tenant = %(tenant)s" if tenant is not None else ""
    # A range uses the index of the IDs; a pattern does not.
    sql = f"""
        SELECT id FROM ({_IDS[kind]}) AS named WHERE id >= %(prefix)s AND id < %(prefix)s || chr(1114111)
        {of_tenant} ORDER BY at DESC LIMIT %(limit)s
    """  # noqa: S608 - constants
    return [row[0] for row in db.execute(constant(sql), {"prefix": prefix, "tenant": tenant, "limit": limit})]
