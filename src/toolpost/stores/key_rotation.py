"""Sealing keys: check that the key fits the data, and seal everything anew with the newest key."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.errors import StoreError
from toolpost.stores.artifacts import ContentFiles
from toolpost.stores.database import Reader
from toolpost.stores.sealing import RowSealer
from toolpost.stores.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from toolpost.contracts.storage import Sealer

_PREFIX = 16  # so many bytes of a sealed value identify its key
_CHECKED = (("pending", "action"), ("journal", "call"), ("tokens", "body"), ("state", "body"), ("ledger", "key"))

# Few enough that other writes do not wait long behind one step.
ROWS_A_STEP = 200
_JOURNAL = ("tenant", "user", "call_id", "step")
_PENDING = ("tenant", "user", "id")
_TOKENS = ("tenant", "user", "issuer", "resource", "client", "version")


def check_key(db: sqlite3.Connection, sealer: Sealer, path: Path) -> None:
    """Raise StoreError when none of the newest sealed values was sealed with a key at hand.

    A single damaged row says nothing about the key.
    """
    knows: Callable[[bytes], bool] | None = getattr(sealer, "knows", None)
    if knows is None:
        return
    prefixes = {bytes(prefix) for table, column in _CHECKED for prefix in _newest_prefixes(db, table, column)}
    if prefixes and not any(map(knows, prefixes)):
        msg = f"the data at {str(path)!r} does not open: another key sealed it"
        raise StoreError(f"{msg}; put that key back, or begin with an empty folder")


def _newest_prefixes(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {_PREFIX}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [prefix for (prefix,) in db.execute(sql)]


class _Sealed(NamedTuple):
    """A sealed column, and the columns that name its row; `suffix` ends the name."""

    table: str
    column: str
    named_by: tuple[str, ...]
    suffix: tuple[str, ...]


_SEALED = (
    _Sealed("journal", "call", _JOURNAL, ("call",)),
    _Sealed("journal", "result", _JOURNAL, ("result",)),
    _Sealed("pending", "action", _PENDING, ("action",)),
    _Sealed("pending", "answer", _PENDING, ("answer",)),
    _Sealed("pending", "outcome", _PENDING, ("outcome",)),
    _Sealed("keys", "outcome", ("tenant", "user", "key"), ("outcome",)),
    _Sealed("tokens", "body", _TOKENS, ("body",)),
    _Sealed("ledger", "key", ("id",), ("key",)),
    _Sealed("state", "body", ("kind", "key", "item"), ()),
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

    def _older(self, db: sqlite3.Connection, *, sealed: _Sealed, after: int) -> list[int]:
        mark = self._sealer.mark()
        table, column = sealed.table, sealed.column
        sql = f"""
            SELECT rowid FROM {table} WHERE rowid > ? AND {column} IS NOT NULL
            AND substr({column}, 1, ?) <> ? ORDER BY rowid LIMIT {ROWS_A_STEP}
        """  # noqa: S608 - constants, here and below
        return [rowid for (rowid,) in db.execute(sql, (after, len(mark), mark))]

    def _step(self, db: sqlite3.Connection, *, sealed: _Sealed, rowids: list[int]) -> dict[str, int]:
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
