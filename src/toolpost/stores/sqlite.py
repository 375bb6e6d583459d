"""The store in one folder: a SQLite database, its lock files and its artifacts."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Self

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import (
    ArtifactStore,
    CancelStore,
    EventLog,
    Journal,
    KeyStore,
    PendingStore,
    Retention,
    Sealer,
)
from toolpost.contracts.tokens import TokenRows
from toolpost.stores.artifacts import ContentFiles, SQLiteArtifactStore
from toolpost.stores.chain import LogKey
from toolpost.stores.database import Reader, empty_wal, in_transaction, open_writable, store_error
from toolpost.stores.event_appender import EventAppender, Ledger, load_ledger, make_ledger
from toolpost.stores.event_log import SQLiteEventLog, adopt_unkeyed_log
from toolpost.stores.journal import SQLiteCancelStore, SQLiteJournal, SQLiteKeyStore
from toolpost.stores.key_rotation import Resealer, check_key
from toolpost.stores.liveness import Liveness
from toolpost.stores.pending import SQLitePendingStore
from toolpost.stores.retention import Forgetter, Pruner
from toolpost.stores.sealing import RowSealer
from toolpost.stores.state import SealedStateStore, SQLiteShelf
from toolpost.stores.tokens import SQLiteTokenRows
from toolpost.stores.writer import Transactor, Writer

DATABASE = "toolpost.db"
OWNERS = "owners"
ARTIFACTS = "artifacts"


def open_sqlite_store(
    data_dir: Path,
    *,
    sealer: Sealer,
    clock: Callable[[], float] = time.time,
    queue_limit: int = 50_000,
    busy_s: float = 5.0,
) -> SQLiteStore:
    """Open the store in a folder, made if it is not there; StoreError says why not and what to do.

    `queue_limit` is how many events may wait before emitters are asked to; `busy_s`
    how long another process may hold the database.
    """
    _make_folder(data_dir)
    liveness = Liveness(data_dir / OWNERS)
    path = data_dir / DATABASE
    sealed = RowSealer(sealer)
    try:
        db = _opened(path, sealer, busy_s)
        ledger = _opened_ledger(db, sealed, path)
    except StoreError:
        liveness.release()
        raise
    appender = EventAppender(liveness.owner_id, ledger)
    writer = Writer(Transactor(db, appender, path=path), limit=queue_limit)
    reader = Reader(path, busy_s=busy_s)
    files = ContentFiles(data_dir / ARTIFACTS, sealer)
    pruner = Pruner(writer, reader, appender=appender, files=files)
    emptying = partial(empty_wal, path, busy_s=busy_s)
    forgetter = Forgetter(writer, appender=appender, pruner=pruner, liveness=liveness, empty_wal=emptying)
    log = SQLiteEventLog(writer, reader, appender=appender, liveness=liveness)
    return SQLiteStore(
        writer,
        reader,
        log=log,
        key=ledger.key,
        pruner=pruner,
        forgetter=forgetter,
        files=files,
        sealer=sealed,
        liveness=liveness,
        clock=clock,
    )


def _opened(path: Path, sealer: Sealer, busy_s: float) -> sqlite3.Connection:
    db = open_writable(path, busy_s=busy_s)
    try:
        check_key(db, sealer, path)
    except BaseException:
        db.close()
        raise
    return db


def _opened_ledger(db: sqlite3.Connection, sealer: RowSealer, path: Path) -> Ledger:
    """The ledger of the log; a new one takes in all that was told before there was one."""
    try:
        return load_ledger(db, sealer) or in_transaction(db, lambda: _first_ledger(db, sealer))
    except sqlite3.Error as exc:
        db.close()
        raise store_error(exc, path) from exc
    except BaseException:
        db.close()
        raise


def _first_ledger(db: sqlite3.Connection, sealer: RowSealer) -> Ledger:
    found = load_ledger(db, sealer)  # Another process may have been first.
    if found is not None:
        return found
    ledger = make_ledger(db, sealer)
    if ledger.is_intact:
        adopt_unkeyed_log(db, ledger)
    return ledger


class SQLiteStore:
    """All that one Toolbox remembers, in one folder that several processes may share."""

    def __init__(
        self,
        writer: Writer,
        reader: Reader,
        *,
        log: SQLiteEventLog,
        key: LogKey,
        pruner: Pruner,
        forgetter: Forgetter,
        files: ContentFiles,
        sealer: RowSealer,
        liveness: Liveness,
        clock: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._pruner = pruner
        self._forgetter = forgetter
        self._resealer = Resealer(writer, reader, sealer, files)
        self._liveness = liveness
        self.events: EventLog = log
        self.journal: Journal = SQLiteJournal(writer, reader, sealer=sealer, liveness=liveness)
        self.pending: PendingStore = SQLitePendingStore(writer, reader, key=key, sealer=sealer, liveness=liveness)
        self.keys: KeyStore = SQLiteKeyStore(writer, sealer=sealer, liveness=liveness, clock=clock)
        self.cancels: CancelStore = SQLiteCancelStore(writer, reader, clock=clock)
        self.artifacts: ArtifactStore = SQLiteArtifactStore(writer, reader, files)
        self.tokens: TokenRows = SQLiteTokenRows(writer, reader, sealer=sealer, liveness=liveness, clock=clock)
        self.state = SealedStateStore(SQLiteShelf(writer, reader), sealer)

    @property
    def owner_id(self) -> str:
        """Under which this store's intents, claims and keys stand."""
        return self._liveness.owner_id

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return await self._pruner.prune(retention, now=now)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return await self._forgetter.forget(principal)

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        return await self._resealer.rotate(retire=retire)

    async def close(self) -> None:
        """Write what waits and let go; StoreError says what could not be written."""
        try:
            await self._writer.close()
        finally:
            await self._reader.close()
            self._liveness.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _make_folder(path: Path) -> None:
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError) as exc:
        raise StoreError(
            f"data folder {str(path)!r} is, or lies in, a file; move it away or set data_dir to another folder",
            cause=exc,
        ) from exc
    except OSError as exc:
        raise StoreError(
            f"data folder {str(path)!r} cannot be made: {exc.strerror}; "
            "give this user write permission or set data_dir to another folder",
            cause=exc,
        ) from exc
