"""The store on disk: one folder with a SQLite database, its lock files and its artifacts."""

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
    TokenRows,
)
from toolpost.stores.artifacts import ContentFiles, SQLiteArtifactStore
from toolpost.stores.database import Reader, open_writable, store_error, truncate_wal
from toolpost.stores.event_appender import EventAppender, Ledger
from toolpost.stores.event_log import SQLiteEventLog, open_ledger
from toolpost.stores.journal import SQLiteCancelStore, SQLiteJournal, SQLiteKeyStore
from toolpost.stores.key_rotation import KeyRotation, check_key
from toolpost.stores.liveness import Liveness
from toolpost.stores.pending import SQLitePendingStore
from toolpost.stores.retention import Forgetter, Pruner
from toolpost.stores.sealing import RowSealer
from toolpost.stores.state import SealedStateStore, SQLiteStateTable
from toolpost.stores.tokens import SQLiteTokenRows
from toolpost.stores.writer import TransactionRunner, Writer

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
    """Open the store in a folder, created if missing; StoreError says why it cannot be opened and what to do.

    `queue_limit` is how many events may wait before emitters are asked to drain; `busy_s` how long another process may
    hold the database.
    """
    _make_folder(data_dir)
    liveness = Liveness(data_dir / OWNERS)
    try:
        db, ledger = _open_database(data_dir / DATABASE, sealer, busy_s)
    except StoreError:
        liveness.release()
        raise
    return SQLiteStore(
        data_dir, db, ledger, liveness=liveness, sealer=sealer, clock=clock, queue_limit=queue_limit, busy_s=busy_s
    )


def _open_database(path: Path, sealer: Sealer, busy_s: float) -> tuple[sqlite3.Connection, Ledger]:
    db = open_writable(path, busy_s=busy_s)
    try:
        check_key(db, sealer, path)
        return db, open_ledger(db, RowSealer(sealer))
    except sqlite3.Error as exc:
        db.close()
        raise store_error(exc, path) from exc
    except BaseException:
        db.close()
        raise


class SQLiteStore:
    """Everything that one Toolbox stores, in one folder that several processes may share."""

    def __init__(
        self,
        data_dir: Path,
        db: sqlite3.Connection,
        ledger: Ledger,
        *,
        liveness: Liveness,
        sealer: Sealer,
        clock: Callable[[], float],
        queue_limit: int,
        busy_s: float,
    ) -> None:
        path = data_dir / DATABASE
        appender = EventAppender(liveness.owner_id, ledger)
        writer = Writer(TransactionRunner(db, appender, path=path), limit=queue_limit)
        reader = Reader(path, busy_s=busy_s)
        files = ContentFiles(data_dir / ARTIFACTS, sealer)
        rows = RowSealer(sealer)
        self._writer = writer
        self._reader = reader
        self._liveness = liveness
        self._pruner = Pruner(writer, reader, appender=appender, files=files)
        self._forgetter = Forgetter(
            writer,
            appender=appender,
            pruner=self._pruner,
            liveness=liveness,
            truncate_wal=partial(truncate_wal, path, busy_s=busy_s),
        )
        self._key_rotation = KeyRotation(writer, reader, sealer, files)
        self.events: EventLog = SQLiteEventLog(writer, reader, appender=appender, liveness=liveness)
        self.journal: Journal = SQLiteJournal(writer, reader, sealer=rows, liveness=liveness)
        self.pending: PendingStore = SQLitePendingStore(writer, reader, key=ledger.key, sealer=rows, liveness=liveness)
        self.keys: KeyStore = SQLiteKeyStore(writer, sealer=rows, liveness=liveness, clock=clock)
        self.cancels: CancelStore = SQLiteCancelStore(writer, reader, clock=clock)
        self.artifacts: ArtifactStore = SQLiteArtifactStore(writer, reader, files)
        self.tokens: TokenRows = SQLiteTokenRows(writer, reader, sealer=rows, liveness=liveness, clock=clock)
        self.state = SealedStateStore(SQLiteStateTable(writer, reader), rows)

    @property
    def owner_id(self) -> str:
        """The owner of this store's intents, claims and keys."""
        return self._liveness.owner_id

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return await self._pruner.prune(retention, now=now)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return await self._forgetter.forget(principal)

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        return await self._key_rotation.rotate(retire=retire)

    async def close(self) -> None:
        """Write the queue and close the database; StoreError says what could not be written."""
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
