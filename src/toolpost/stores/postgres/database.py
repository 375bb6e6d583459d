"""The PostgreSQL database: connections, schema migrations, queries in threads, and errors with advice."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import Empty, LifoQueue
from typing import Any, Literal, LiteralString, TypeAlias, TypeVar, cast
from weakref import WeakSet

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg.pq import PipelineStatus, TransactionStatus

from toolpost.contracts.errors import ConfigError, StoreError
from toolpost.stores.postgres.connections import Row, WatchedConnection
from toolpost.stores.transfer import refuse_other_versions

T = TypeVar("T")
Connection: TypeAlias = WatchedConnection
Cursor: TypeAlias = psycopg.Cursor[Row]
Role: TypeAlias = Literal["writer", "reader", "listener", "limits", "check"]

SCHEMA = "toolpost"
FAULTS = (psycopg.Error, UnicodeEncodeError)  # the latter for lone surrogates
MIGRATIONS = Path(__file__).with_name("migrations")
MIGRATION_LOCK = 0x746F6F6C706F7374  # the number of an advisory lock
READERS = 2  # the second connection is opened for a query that comes while another runs
_RECONNECTS = 2

_DEFAULTS: dict[str, Any] = {
    "application_name": "toolpost",
    "connect_timeout": 10,
    # A server that vanished without closing the connection is noticed within a minute.
    "keepalives_idle": 20,
    "keepalives_interval": 10,
    "keepalives_count": 3,
    "tcp_user_timeout": 30_000,
}
_SESSION = {
    "search_path": SCHEMA,
    "client_min_messages": "warning",
    "lock_timeout": "20s",
    # A process that was stopped within a transaction keeps its locks no longer than this.
    "idle_in_transaction_session_timeout": "15s",
}
_STATEMENT_TIMEOUT_S = {"writer": 60, "reader": 600, "listener": 20, "limits": 5, "check": 20}
_SILENCE_S = 10  # longer than that: the server would have ended the statement
_LAST_SILENCE_S = 15  # of any statement of a store that closes

READ_ONLY = "it is read-only: a standby, or default_transaction_read_only; name the primary server in `database`"
# By SQLSTATE, the longest prefix first.
_ADVICE = {
    "53100": "the disk of the server is full; free some space. Running processes then resume writing automatically",
    "53300": "the server has no free connection; raise max_connections, or run fewer processes (each needs 3 to 5)",
    "53": "the server lacks memory or disk; free some. Running processes then resume writing automatically",
    "25006": READ_ONLY,
    "25P03": "the process was stopped within a transaction, which the server has ended; it was not committed",
    "28": "the server refused the user; check the name and the password in `database`, and pg_hba.conf",
    "3D000": "there is no such database; create it, or check the name in `database`",
    "42501": "permission denied; let this user create the schema toolpost, or grant it all rights on the schema",
    "57014": "a statement took too long and was cancelled; look for locks of other programs, or for missing memory",
    "55P03": "a lock was held too long by another program; close that program (a migration, a backup, a console?)",
    "57P": "the server is stopping or starting; running processes then continue automatically",
    "08": "the connection was lost; check the server and the network. Running processes then continue automatically",
    "22": "a value cannot be stored; PostgreSQL text contains no NUL character",
    "40": "it conflicted with another transaction; repeat it",
    "XX": "the server reports damaged data; restore it from a backup",
}
_UNREACHABLE = "it cannot be reached; check the address in `database`, the server and the network"
_REFUSED = "the server refused the connection"
_RUNNING_VERSIONS = "SELECT version FROM toolpost.owners WHERE dead_at IS NULL AND until > toolpost.now()"
_HAS_MIGRATIONS = "SELECT 1 FROM pg_tables WHERE schemaname = %s AND tablename = 'migrations'"


class Database:
    """A PostgreSQL database; `place` is its address without the password."""

    def __init__(self, url: str) -> None:
        try:
            self._parameters: dict[str, Any] = {**_DEFAULTS, **conninfo_to_dict(url)}
        except psycopg.Error:
            # Without the parser's message, which may contain the password.
            message = "database: the URL is not valid; write postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
            raise ConfigError(message) from None
        self.place = _describe(self._parameters)
        self._connections = WeakSet[Connection]()
        self._is_abandoned = self._is_closing = False

    def connect(self, role: Role) -> Connection:
        """Open a connection whose transactions begin explicitly."""
        if self._is_abandoned:
            raise StoreError(f"database {self.place!r}: this process has ended")
        try:
            db = WatchedConnection.connect(**self._parameters, autocommit=True)
        except (psycopg.Error, UnicodeError) as error:
            raise self.explain(error) from error
        try:
            timeout_s = _STATEMENT_TIMEOUT_S[role]
            db.silence_s = _LAST_SILENCE_S if self._is_closing else timeout_s + _SILENCE_S
            settings = {**_SESSION, "statement_timeout": f"{timeout_s}s"}
            if role == "reader":
                settings["default_transaction_read_only"] = "on"
            elif role == "limits":
                settings["synchronous_commit"] = "off"
            calls = ", ".join(["set_config(%s, %s, false)"] * len(settings))
            db.execute(constant(f"SELECT {calls}"), [text for setting in settings.items() for text in setting])
        except psycopg.Error as error:
            db.close()
            raise self.explain(error) from error
        self._connections.add(db)
        return db

    def hurry(self) -> None:
        """Wait less long for a server that has stopped answering, because the store closes."""
        self._is_closing = True
        for db in list(self._connections):
            db.silence_s = min(db.silence_s, _LAST_SILENCE_S)

    def abandon(self) -> None:
        """Roll back and close all connections, and open no others, as if the process had been killed."""
        self._is_abandoned = True
        for db in list(self._connections):
            roll_back(db)
            db.close()

    def explain(self, error: BaseException) -> StoreError:
        """Turn an error of the database into a StoreError with its place and advice, without values of rows."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, UnicodeEncodeError):
            return StoreError(f"{ascii(error.object)[:80]} cannot be stored: it contains a lone surrogate", cause=error)
        return StoreError(f"database {self.place!r}: {_describe_error(error)}; {advise(error)}", cause=error)


def advise(error: BaseException | None) -> str:
    """Return what to do about an error."""
    state = getattr(error, "sqlstate", None) or ""
    for length in (5, 3, 2):
        if len(state) >= length and state[:length] in _ADVICE:
            return _ADVICE[state[:length]]
    if isinstance(error, psycopg.OperationalError):
        return _advise_unconnected(str(error))
    if isinstance(error, psycopg.DataError):
        return _ADVICE["22"]
    return "check the log of the server"


def describe_fault(error: BaseException | None) -> str:
    """Return a short reason why a database cannot be written, without its place."""
    if not isinstance(error, psycopg.Error):
        return "the store cannot be written"
    return advise(error).partition(";")[0]


def is_lost(db: psycopg.Connection[Row]) -> bool:
    """Return whether a connection has ended."""
    return db.closed or db.broken


def roll_back(db: psycopg.Connection[Row]) -> None:
    """End a transaction, if the connection still has one; a connection that cannot end it is closed."""
    with suppress(psycopg.Error):
        # The statement alone would leave psycopg with names of statements that were never prepared.
        db.rollback()
    # A connection that the server has ended may stay in a pipeline, and does not look broken.
    if not db.closed and (
        db.pgconn.pipeline_status != PipelineStatus.OFF or db.pgconn.transaction_status != TransactionStatus.IDLE
    ):
        db.close()


def migrate(db: Connection, place: str, folder: Path = MIGRATIONS, *, upto: int | None = None) -> None:
    """Apply the missing migrations, or those up to a number, each in a transaction with its row in `migrations`.

    Of several processes one migrates, and the others wait for it.
    """
    files = sorted(folder.glob("*.sql"))
    newest = int(files[-1].name.split("_")[0])
    version = read_version(db)
    if version > newest:
        raise StoreError(
            f"database {place!r} has version {version}, this toolpost knows versions up to {newest}; "
            "upgrade toolpost (pip install --upgrade toolpost) or name another database"
        )
    for file in files[version:upto]:
        _apply(db, file, place)


def read_version(db: Connection) -> int:
    """Return the number of the last migration; 0 for a new database."""
    # Not to_regclass, which in this transaction may not know what another process has just created.
    if db.execute(_HAS_MIGRATIONS, (SCHEMA,)).fetchone() is None:
        return 0
    row = db.execute("SELECT coalesce(max(number), 0) FROM toolpost.migrations").fetchone()
    return 0 if row is None else int(row[0])


def _apply(db: Connection, file: Path, place: str) -> None:
    number = int(file.name.split("_")[0])
    with db.transaction():
        db.execute("SELECT pg_advisory_xact_lock(%s)", (MIGRATION_LOCK,))
        if read_version(db) >= number:  # another process was faster
            return
        if number == 1:
            _create_schema(db)
        else:
            refuse_other_versions([version for (version,) in db.execute(_RUNNING_VERSIONS)], place)
        db.execute(file.read_bytes())
        db.execute("INSERT INTO toolpost.migrations VALUES (%s, toolpost.now())", (number,))


def _create_schema(db: Connection) -> None:
    # Where an administrator has created it, the user needs no right to create schemas.
    if db.execute("SELECT 1 FROM pg_namespace WHERE nspname = %s", (SCHEMA,)).fetchone() is None:
        db.execute("CREATE SCHEMA toolpost")
    db.execute("CREATE TABLE toolpost.migrations (number bigint PRIMARY KEY, at double precision NOT NULL)")


def _describe(parameters: dict[str, Any]) -> str:
    user, host, port = (parameters.get(name) for name in ("user", "host", "port"))
    address = f"{user}@" if user else ""
    address += f"{host or parameters.get('hostaddr') or ''}" + (f":{port}" if port else "")
    return f"postgresql://{address}/{parameters.get('dbname') or user or ''}"


def _describe_error(error: BaseException) -> str:
    """Return the message of the server, without its detail, which contains values."""
    primary = error.diag.message_primary if isinstance(error, psycopg.Error) else None
    if primary:
        return primary
    return " ".join(str(error).split()) or type(error).__name__


def _advise_unconnected(message: str) -> str:
    """Return advice for an error without a SQLSTATE, as when no connection could be made."""
    known = {
        "password authentication failed": "28",
        "no password supplied": "28",
        "no pg_hba.conf entry": "28",
        "too many clients": "53300",
        "too many connections": "53300",
        "remaining connection slots": "53300",
        "the database system is": "57P",
        "does not exist": "3D000",
        "terminating connection": "57P",
        "server closed the connection": "08",
        "connection to server was lost": "08",
        "the server did not answer": "08",
    }
    states = [state for text, state in known.items() if text in message]
    return _ADVICE[states[0]] if states else _UNREACHABLE


def constant(sql: str) -> LiteralString:
    """Mark SQL that is put together from constants, for the type checker; values are always parameters."""
    unchecked: object = sql
    return cast("LiteralString", unchecked)


class PostgresReader:
    """Runs queries in threads, on a few connections that are opened when they are needed."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._closed = False
        self._idle: LifoQueue[Connection] = LifoQueue()
        self._threads = ThreadPoolExecutor(max_workers=READERS, thread_name_prefix="toolpost-reader")

    async def query(self, work: Callable[[Connection], T]) -> T:
        """Run `work` on a connection and return its result; after a lost connection it runs again."""
        if self._closed:
            raise StoreError(f"the store at {self._database.place!r} is closed; open it again to continue")
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, self._run, work)
        except FAULTS as exc:
            raise self._database.explain(exc) from exc

    async def close(self) -> None:
        """Finish the running queries and close the connections."""
        self._closed = True
        await asyncio.to_thread(self._threads.shutdown)
        with suppress(Empty):
            while True:
                self._idle.get_nowait().close()

    def _run(self, work: Callable[[Connection], T]) -> T:
        for attempt in range(_RECONNECTS + 1):
            db = self._take()
            try:
                return work(db)
            except psycopg.OperationalError:
                roll_back(db)
                if not is_lost(db) or attempt == _RECONNECTS:
                    raise
            finally:
                self._put(db)
        raise AssertionError("the loop returns or raises")

    def _take(self) -> Connection:
        try:
            return self._idle.get_nowait()
        except Empty:
            return self._database.connect("reader")

    def _put(self, db: Connection) -> None:
        roll_back(db)
        if not is_lost(db):
            self._idle.put(db)
