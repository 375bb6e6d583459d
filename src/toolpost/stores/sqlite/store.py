"""The SQLite store: opens the database and puts its parts together."""

from __future__ import annotations

import sqlite3
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Self

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import RunEvent
from toolpost.contracts.ids import IdMaker
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
    PendingStore,
    Retention,
    TokenRows,
    WebhookStore,
)
from toolpost.stores.changes import Changes
from toolpost.stores.durable_files import make_private_folder
from toolpost.stores.encryption import RowCipher
from toolpost.stores.sqlite.artifacts import ContentFiles, SQLiteArtifactStore
from toolpost.stores.sqlite.caller_keys import SQLiteCallerKeys
from toolpost.stores.sqlite.cancels import SQLiteCancelStore
from toolpost.stores.sqlite.changes import EVENTS, read_states, run_topic
from toolpost.stores.sqlite.database import Reader, open_writable, store_error, truncate_wal
from toolpost.stores.sqlite.erasure import Forgetter
from toolpost.stores.sqlite.event_appender import EventAppender, Ledger, open_ledger
from toolpost.stores.sqlite.event_log import SQLiteEventLog
from toolpost.stores.sqlite.idempotency import SQLiteIdempotencyStore
from toolpost.stores.sqlite.ids import find_ids
from toolpost.stores.sqlite.journal import SQLiteJournal
from toolpost.stores.sqlite.key_rotation import KeyRotation, check_key
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.sqlite.pending import SQLitePendingStore
from toolpost.stores.sqlite.pruning import Pruner
from toolpost.stores.sqlite.state import SQLiteStateTable
from toolpost.stores.sqlite.tokens import SQLiteTokenRows
from toolpost.stores.sqlite.webhooks import SQLiteWebhookStore
from toolpost.stores.sqlite.writer import Item, TransactionRunner, Writer
from toolpost.stores.state import EncryptedStateStore

DATABASE = "toolpost.db"
OWNERS = "owners"
ARTIFACTS = "artifacts"


def open_sqlite_store(
    data_dir: Path,
    *,
    cipher: Cipher,
    clock: Callable[[], float] = time.time,
    queue_limit: int = 50_000,
    busy_s: float = 5.0,
    ids: IdMaker | None = None,
) -> SQLiteStore:
    """Open the store in a folder, created if missing; StoreError says why it cannot be opened and what to do.

    `queue_limit` is how many events may wait before emitters are asked to drain; `busy_s` how long another process may
    hold the database.
    """
    _make_folder(data_dir)
    liveness = Liveness(data_dir / OWNERS)
    try:
        db, ledger = _open_database(data_dir / DATABASE, cipher, busy_s)
    except StoreError:
        liveness.release()
        raise
    return SQLiteStore(
        data_dir,
        db,
        ledger,
        liveness=liveness,
        cipher=cipher,
        clock=clock,
        queue_limit=queue_limit,
        busy_s=busy_s,
        ids=ids or IdMaker(),
    )


def _open_database(path: Path, cipher: Cipher, busy_s: float) -> tuple[sqlite3.Connection, Ledger]:
    db = open_writable(path, busy_s=busy_s)
    try:
        check_key(db, cipher, path)
        return db, open_ledger(db, RowCipher(cipher))
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
        cipher: Cipher,
        clock: Callable[[], float],
        queue_limit: int,
        busy_s: float,
        ids: IdMaker,
    ) -> None:
        path = data_dir / DATABASE
        appender = EventAppender(liveness.owner_id, ledger)
        reader = Reader(path, busy_s=busy_s)
        changes = Changes(lambda topics: reader.query(lambda db: read_states(db, topics)), reader.data_version)
        writer = Writer(
            TransactionRunner(db, appender, path=path), limit=queue_limit, committed=partial(_notify_events, changes)
        )
        self._changes = changes
        files = ContentFiles(data_dir / ARTIFACTS, cipher)
        rows = RowCipher(cipher)
        self._writer = writer
        self._reader = reader
        self._liveness = liveness
        self._key = ledger.key
        self._pruner = Pruner(writer, reader, appender=appender, files=files)
        self._forgetter = Forgetter(
            writer,
            appender=appender,
            pruner=self._pruner,
            liveness=liveness,
            truncate_wal=partial(truncate_wal, path, busy_s=busy_s),
        )
        self._key_rotation = KeyRotation(writer, reader, cipher, files)
        self.events: EventLog = SQLiteEventLog(
            writer, reader, appender=appender, liveness=liveness, cipher=rows, changes=changes
        )
        self.journal: Journal = SQLiteJournal(writer, reader, cipher=rows, liveness=liveness)
        self.pending: PendingStore = SQLitePendingStore(
            writer, reader, key=ledger.key, cipher=rows, liveness=liveness, changes=changes
        )
        self.idempotency: IdempotencyStore = SQLiteIdempotencyStore(
            writer, reader, cipher=rows, liveness=liveness, clock=clock
        )
        self.caller_keys: CallerKeyStore = SQLiteCallerKeys(writer, reader, key=ledger.key)
        self.webhooks: WebhookStore = SQLiteWebhookStore(writer, reader, liveness=liveness)
        self.cancels: CancelStore = SQLiteCancelStore(writer, reader, appender=appender, changes=changes, clock=clock)
        self.artifacts: ArtifactStore = SQLiteArtifactStore(writer, reader, files, ids)
        self.tokens: TokenRows = SQLiteTokenRows(writer, reader, cipher=rows, liveness=liveness, clock=clock)
        self.state = EncryptedStateStore(
            SQLiteStateTable(writer, reader), rows, owner_id=liveness.owner_id, is_alive=self._is_alive
        )

    @property
    def owner_id(self) -> str:
        """The owner of this store's intents, claims and keys."""
        return self._liveness.owner_id

    async def _is_alive(self, owner_id: str) -> bool:
        return self._liveness.alive(owner_id)

    async def find_ids(self, kind: IdKind, prefix: str, *, tenant: str | None = None, limit: int = 50) -> list[str]:
        await self._writer.flush()
        return await self._reader.query(lambda db: find_ids(db, kind, prefix, tenant=tenant, limit=limit))

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._key.mac(kind, message)

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
            self._changes.close()
            await self._reader.close()
            self._liveness.release()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()


def _notify_events(changes: Changes, batch: Sequence[Item]) -> None:
    """Wake those who wait for the events of a batch, which is durable."""
    if changes.waiters:
        calls = [item.call for item in batch if isinstance(item, RunEvent)]
        changes.notify({EVENTS, *(run_topic(call.tenant, call.run_id) for call in calls)} if calls else ())


def _make_folder(path: Path) -> None:
    try:
        make_private_folder(path)
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
