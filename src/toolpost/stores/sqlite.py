"""The SQLite store: its parts, the journal, keys and cancel requests, and key rotation."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Self

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import (
    ArtifactStore,
    CallerKeyStore,
    CancelRequest,
    CancelStore,
    EventLog,
    Journal,
    JournalEntry,
    KeyRecord,
    KeyStore,
    PendingStore,
    Retention,
    Sealer,
    TokenRows,
    WebhookStore,
)
from toolpost.files.durable import make_private_folder
from toolpost.stores.agent_files import AgentFiles
from toolpost.stores.agent_folders import rename_older_folders
from toolpost.stores.artifacts import ContentFiles, SQLiteArtifactStore
from toolpost.stores.caller_keys import SQLiteCallerKeys
from toolpost.stores.database import Reader, open_writable, store_error, truncate_wal
from toolpost.stores.event_appender import EventAppender, Ledger
from toolpost.stores.event_log import SQLiteEventLog
from toolpost.stores.liveness import Liveness
from toolpost.stores.old_logs import open_ledger
from toolpost.stores.pending import SQLitePendingStore
from toolpost.stores.retention import Forgetter, Pruner
from toolpost.stores.row_authentication import CALL_RECORDS, SealedColumn
from toolpost.stores.sealing import UNREADABLE, RowSealer, readable_rows
from toolpost.stores.state import SealedStateStore, SQLiteStateTable
from toolpost.stores.tokens import SQLiteTokenRows
from toolpost.stores.webhooks import SQLiteWebhookStore
from toolpost.stores.writer import TransactionRunner, Writer

_COLUMNS = "call_id, step, run_id, tool_name, tenant, user, at, owner, call, result"

_RESERVE = """
INSERT INTO keys (tenant, user, key, call_id, tool_name, arguments_hash, at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_HOLDER = """
SELECT call_id, tool_name, arguments_hash, outcome, owner FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""
_CALL_OF_KEY = """
SELECT key, call_id, tool_name, arguments_hash, outcome, owner FROM keys WHERE tenant = ? AND user = ? AND call_id = ?
"""
_SETTLE = "UPDATE keys SET outcome = ?, at = ? WHERE tenant = ? AND user = ? AND key = ?"
_RELEASE = "DELETE FROM keys WHERE tenant = ? AND user = ? AND key = ? AND outcome IS NULL AND ? IN ('', call_id)"
_OWNERS = """
SELECT tenant FROM runs WHERE run_id = :id UNION SELECT tenant FROM journal WHERE call_id = :id
UNION SELECT tenant FROM pending WHERE call_id = :id
"""
_NAME_OF_INTENT = """
SELECT tenant, user, call_id, step, run_id, tool_name FROM journal WHERE call_id = ? AND step = ?
"""
_NAME_OF_KEY = """
SELECT tenant, user, key, call_id, tool_name, arguments_hash FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""
_REQUEST = "INSERT OR REPLACE INTO cancels (target_id, tenant, requested_by, at) VALUES (?, ?, ?, ?)"
_REQUESTED = "SELECT target_id, at, tenant FROM cancels WHERE target_id IN (SELECT value FROM json_each(?))"


class SQLiteJournal:
    """Intents and results of calls; an intent is owned by the process that wrote it until that process dies."""

    def __init__(self, writer: Writer, reader: Reader, *, sealer: RowSealer, liveness: Liveness) -> None:
        self._writer = writer
        self._reader = reader
        self._sealer = sealer
        self._liveness = liveness

    async def begin(self, entry: JournalEntry) -> None:
        tenant, user = entry.principal
        name = ("journal", tenant, user, entry.call_id, entry.step, entry.run_id, entry.tool_name)
        call = self._sealer.seal(dict(entry.call), *name, "call")
        row = (entry.call_id, entry.step, entry.run_id, entry.tool_name, tenant, user, entry.at)
        sql = f"INSERT OR REPLACE INTO journal ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, NULL)"  # noqa: S608 - constants
        await self._writer.submit(lambda db: db.execute(sql, (*row, self._liveness.owner_id, call)).close())

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        await self._writer.submit(lambda db: self._finish(db, call_id, step, result))

    async def forget(self, call_id: str, step: str) -> None:
        sql = "DELETE FROM journal WHERE call_id = ? AND step = ?"
        await self._writer.submit(lambda db: db.execute(sql, (call_id, step)).close())

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        sql = f"SELECT {_COLUMNS} FROM journal WHERE call_id = ? AND step = ?"  # noqa: S608 - constants
        row = await self._reader.query(lambda db: db.execute(sql, (call_id, step)).fetchone())
        return self._entry(row) if row else None

    async def inner(self, call_id: str) -> list[JournalEntry]:
        sql = f"SELECT {_COLUMNS} FROM journal WHERE call_id > ? AND call_id < ? AND step = '' ORDER BY at, rowid"  # noqa: S608 - constants
        rows = await self._reader.query(lambda db: db.execute(sql, (f"{call_id}.", f"{call_id}/")).fetchall())
        return readable_rows(rows, self._entry, lambda row: f"the intent of call {row[0]!r}")

    async def adopt_orphans(self) -> list[JournalEntry]:
        return await self._writer.submit(self._adopt)

    def _finish(self, db: sqlite3.Connection, call_id: str, step: str, result: Any) -> None:
        found = db.execute(_NAME_OF_INTENT, (call_id, step)).fetchone()
        if found is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        sealed = self._sealer.seal(result, "journal", *found, "result")
        db.execute("UPDATE journal SET result = ? WHERE call_id = ? AND step = ?", (sealed, call_id, step))

    def _adopt(self, db: sqlite3.Connection) -> list[JournalEntry]:
        """Take over the intents of dead owners in one transaction: each goes to one process. Skip damaged ones."""
        unfinished = "result IS NULL AND step = ''"
        owners = db.execute(f"SELECT DISTINCT owner FROM journal WHERE {unfinished}").fetchall()  # noqa: S608 - constants
        sql = f"UPDATE journal SET owner = ? WHERE owner = ? AND {unfinished} RETURNING {_COLUMNS}"  # noqa: S608 - constants
        rows: list[tuple[Any, ...]] = []
        for (owner,) in owners:
            if not self._liveness.alive(owner):
                rows += db.execute(sql, (self._liveness.owner_id, owner)).fetchall()
        self._liveness.sweep()
        return readable_rows(rows, self._entry, lambda row: f"the intent of call {row[0]!r}")

    def _entry(self, row: tuple[Any, ...]) -> JournalEntry:
        call_id, step, run_id, tool_name, tenant, user, at, owner, call, result = row
        name = ("journal", tenant, user, call_id, step, run_id, tool_name)
        return JournalEntry(
            call_id=call_id,
            step=step,
            run_id=run_id,
            tool_name=tool_name,
            principal=Principal(tenant, user),
            call=_open_record(self._sealer, call, *name, "call"),
            at=at,
            owner=owner,
            done=result is not None,
            result=None if result is None else _open_record(self._sealer, result, *name, "result"),
        )


class SQLiteKeyStore:
    """Idempotency keys by user: reserved by one statement, stored with the outcome of their call."""

    def __init__(
        self, writer: Writer, reader: Reader, *, sealer: RowSealer, liveness: Liveness, clock: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._sealer = sealer
        self._liveness = liveness
        self._clock = clock

    async def reserve(self, principal: Principal, key: str, record: KeyRecord) -> KeyRecord | None:
        row = (*principal, key, record.call_id, record.tool_name, record.arguments_hash)

        def work(db: sqlite3.Connection) -> tuple[Any, ...] | None:
            if db.execute(_RESERVE, (*row, self._clock(), self._liveness.owner_id)).rowcount == 1:
                return None
            holder: tuple[Any, ...] = db.execute(_HOLDER, (*principal, key)).fetchone()
            return holder

        holder = await self._writer.submit(work)
        return None if holder is None else self._record(principal, key, holder)

    async def find(self, principal: Principal, call_id: str) -> KeyRecord | None:
        row = await self._reader.query(lambda db: db.execute(_CALL_OF_KEY, (*principal, call_id)).fetchone())
        return None if row is None else self._record(principal, row[0], row[1:])

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        def work(db: sqlite3.Connection) -> None:
            found = db.execute(_NAME_OF_KEY, (*principal, key)).fetchone()
            if found is not None:
                sealed = self._sealer.seal(dict(outcome), "keys", *found, "outcome")
                db.execute(_SETTLE, (sealed, self._clock(), *principal, key)).close()

        await self._writer.submit(work)

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        values = (*principal, key, call_id)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).close())

    def _record(self, principal: Principal, key: str, row: tuple[Any, ...]) -> KeyRecord:
        call_id, tool_name, arguments_hash, outcome, owner = row
        name = ("keys", *principal, key, call_id, tool_name, arguments_hash, "outcome")
        return KeyRecord(
            call_id=call_id,
            tool_name=tool_name,
            arguments_hash=arguments_hash,
            outcome=None if outcome is None else _open_record(self._sealer, outcome, *name),
            owner_alive=self._liveness.alive(owner),
        )


def _open_record(sealer: RowSealer, sealed: bytes, *row: str) -> Any:
    """Open what is recorded of a call; one that was changed is an error that says so, and is not used."""
    try:
        return sealer.open(sealed, *row)
    except StoreError as error:
        if error.error_code != UNREADABLE:
            raise
        # Without the path of the key, because whoever makes the call reads this.
        msg = f"sealed data of {row[0]!r} does not open: it was changed outside of toolpost, or its key is gone"
        advice = "it is not used; `toolpost runs verify` names such rows"
        raise StoreError(f"{msg}; {advice}", code=UNREADABLE, cause=error) from error


class SQLiteCancelStore:
    """Cancel requests, seen by the process that runs the call; one for a target of other tenants only is ignored."""

    def __init__(self, writer: Writer, reader: Reader, *, appender: EventAppender, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._reader = reader
        self._appender = appender
        self._clock = clock

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        def work(db: sqlite3.Connection) -> None:
            self._appender.save_heads(db)  # a run that began in this very transaction has a tenant, too
            owners = {owner for (owner,) in db.execute(_OWNERS, {"id": target_id})}
            if tenant is None or not owners or tenant in owners:
                db.execute(_REQUEST, (target_id, tenant or "", by, self._clock()))

        await self._writer.submit(work)

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = json.dumps(list(target_ids))
        found = await self._reader.query(lambda db: db.execute(_REQUESTED, (wanted,)).fetchall())
        wishes: dict[str, list[CancelRequest]] = {}
        for target_id, at, tenant in found:
            wishes.setdefault(target_id, []).append(CancelRequest(at, tenant or None))
        return wishes


_PREFIX = 16  # so many bytes of a sealed value identify its key
_CHECKED = (("pending", "action"), ("journal", "call"), ("tokens", "body"), ("state", "body"), ("ledger", "key"))

# Few enough that other writes do not wait long behind one step.
ROWS_A_STEP = 200
_PENDING = ("tenant", "user", "id")
_TOKENS = ("tenant", "user", "issuer", "resource", "client", "version")


def check_key(db: sqlite3.Connection, sealer: Sealer, path: Path) -> None:
    """Raise StoreError when none of the newest sealed values was sealed with a key at hand.

    A single damaged row says nothing about the key.
    """
    prefixes = {bytes(prefix) for table, column in _CHECKED for prefix in _newest_prefixes(db, table, column)}
    if prefixes and not any(map(sealer.knows, prefixes)):
        msg = f"the data at {str(path)!r} does not open: another key sealed it"
        raise StoreError(f"{msg}; put that key back, or begin with an empty folder")


def _newest_prefixes(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {_PREFIX}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [prefix for (prefix,) in db.execute(sql)]


_SEALED = (
    *CALL_RECORDS,
    SealedColumn("pending", "action", _PENDING, ("action",)),
    SealedColumn("pending", "answer", _PENDING, ("answer",)),
    SealedColumn("pending", "outcome", _PENDING, ("outcome",)),
    SealedColumn("tokens", "body", _TOKENS, ("body",)),
    SealedColumn("ledger", "key", ("id",), ("key",)),
    SealedColumn("state", "body", ("kind", "key", "item"), ()),
)


class KeyRotation:
    """Creates a sealing key and seals existing values with it, in small transactions that can be repeated."""

    def __init__(self, writer: Writer, reader: Reader, sealer: Sealer, files: ContentFiles) -> None:
        self._writer = writer
        self._reader = reader
        self._sealer = sealer
        self._rows = RowSealer(sealer)
        self._files = files

    async def rotate(self, *, retire: bool) -> dict[str, int]:
        """Create a key and seal everything with it; with `retire` delete older keys unless a value is unreadable."""
        await asyncio.to_thread(self._sealer.rotate)
        counts = Counter(await self.reseal())
        if retire and not counts["unreadable"]:
            counts.update(await self.reseal())  # what others sealed with the older key while the first pass ran
            await asyncio.to_thread(self._sealer.retire)
        return dict(counts)

    async def reseal(self) -> dict[str, int]:
        """Seal values of older keys anew; return their number by table, and how many do not open (`unreadable`)."""
        await self._writer.flush()
        counts = Counter({"unreadable": 0, **{sealed.table: 0 for sealed in _SEALED}})
        for sealed in _SEALED:
            after = -(2**63)
            while rowids := await self._reader.query(partial(self._older, sealed=sealed, after=after)):
                counts.update(await self._writer.submit(partial(self._step, sealed=sealed, rowids=rowids)))
                after = rowids[-1]
        counts.update(await self._reseal_files())
        return dict(counts)

    async def _reseal_files(self) -> dict[str, int]:
        """Seal the contents of artifacts anew, also those that an older version left unsealed."""
        counts = {"artifacts": 0, "unreadable": 0}
        sql = "SELECT DISTINCT sha256, size FROM artifacts"
        for sha256, size in await self._reader.query(lambda db: db.execute(sql).fetchall()):
            try:
                counts["artifacts"] += await asyncio.to_thread(self._files.reseal, sha256, size)
            except StoreError:
                counts["unreadable"] += 1
        return counts

    def _older(self, db: sqlite3.Connection, *, sealed: SealedColumn, after: int) -> list[int]:
        mark = self._sealer.mark()
        table, column = sealed.table, sealed.column
        sql = f"""
            SELECT rowid FROM {table} WHERE rowid > ? AND {column} IS NOT NULL
            AND substr({column}, 1, ?) <> ? ORDER BY rowid LIMIT {ROWS_A_STEP}
        """  # noqa: S608 - constants, here and below
        return [rowid for (rowid,) in db.execute(sql, (after, len(mark), mark))]

    def _step(self, db: sqlite3.Connection, *, sealed: SealedColumn, rowids: list[int]) -> dict[str, int]:
        table, column = sealed.table, sealed.column
        read = f"SELECT {column}, {', '.join(sealed.named_by)} FROM {table} WHERE rowid = ?"  # noqa: S608
        write = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        done = 0
        unreadable = 0
        for rowid in rowids:
            # Read again within the transaction: another process may have changed the row.
            body, *names = db.execute(read, (rowid,)).fetchone() or (None,)
            if body is None:
                continue
            try:
                anew = self._rows.reseal(body, table, *map(str, names), *sealed.suffix)
            except StoreError:
                unreadable += 1
                continue
            db.execute(write, (anew, rowid))
            done += 1
        return {table: done, "unreadable": unreadable}


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
    rename_older_folders(data_dir)
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
        self._key = ledger.key
        self._pruner = Pruner(writer, reader, appender=appender, files=files)
        self._forgetter = Forgetter(
            writer,
            appender=appender,
            pruner=self._pruner,
            liveness=liveness,
            truncate_wal=partial(truncate_wal, path, busy_s=busy_s),
        )
        self._agent_files = AgentFiles(data_dir)
        self._key_rotation = KeyRotation(writer, reader, sealer, files)
        self.events: EventLog = SQLiteEventLog(writer, reader, appender=appender, liveness=liveness, sealer=rows)
        self.journal: Journal = SQLiteJournal(writer, reader, sealer=rows, liveness=liveness)
        self.pending: PendingStore = SQLitePendingStore(writer, reader, key=ledger.key, sealer=rows, liveness=liveness)
        self.keys: KeyStore = SQLiteKeyStore(writer, reader, sealer=rows, liveness=liveness, clock=clock)
        self.caller_keys: CallerKeyStore = SQLiteCallerKeys(writer, reader, key=ledger.key)
        self.webhooks: WebhookStore = SQLiteWebhookStore(writer, reader, liveness=liveness)
        self.cancels: CancelStore = SQLiteCancelStore(writer, reader, appender=appender, clock=clock)
        self.artifacts: ArtifactStore = SQLiteArtifactStore(writer, reader, files)
        self.tokens: TokenRows = SQLiteTokenRows(writer, reader, sealer=rows, liveness=liveness, clock=clock)
        self.state = SealedStateStore(
            SQLiteStateTable(writer, reader), rows, owner_id=liveness.owner_id, is_alive=liveness.alive
        )

    @property
    def owner_id(self) -> str:
        """The owner of this store's intents, claims and keys."""
        return self._liveness.owner_id

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._key.mac(kind, message)

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        removed = await self._pruner.prune(retention, now=now)
        if retention.max_age_s is None:
            return removed
        return {**removed, **await asyncio.to_thread(self._agent_files.prune, now - retention.max_age_s)}

    async def forget(self, principal: Principal) -> dict[str, int]:
        files = await asyncio.to_thread(self._agent_files.forget, principal)
        rows = await self._forgetter.forget(principal)
        return {**rows, **files, "under_way": rows["under_way"] + files["under_way"]}

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

    async def __aexit__(self, *_: object) -> None:
        await self.close()


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
