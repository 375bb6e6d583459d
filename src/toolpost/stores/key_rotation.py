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

_BEGINNING = 16  # so much of what is sealed tells its key
_KEYED = (("pending", "action"), ("journal", "call"), ("tokens", "body"), ("state", "body"), ("ledger", "key"))


def check_key(db: sqlite3.Connection, sealer: Sealer, path: Path) -> None:
    """StoreError when all that was sealed lately was sealed with keys that are not here."""
    knows: Callable[[bytes], bool] | None = getattr(sealer, "knows", None)
    if knows is None:
        return
    beginnings = {bytes(found) for table, column in _KEYED for found in _lately(db, table, column)}
    if beginnings and not any(map(knows, beginnings)):
        msg = f"the data at {str(path)!r} does not open: another key sealed it"
        raise StoreError(f"{msg}; put that key back, or begin with an empty folder")


def _lately(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {_BEGINNING}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [found for (found,) in db.execute(sql)]


# Few enough that other writes do not wait long behind one step.
ROWS_A_STEP = 200


class _Sealed(NamedTuple):
    """A column that is sealed, and the columns whose values its row is named by."""

    table: str
    column: str
    named_by: tuple[str, ...]
    suffix: tuple[str, ...]

    @classmethod
    def of(cls, table: str, column: str, *named_by: str) -> _Sealed:
        """A column that is part of the row's name, as nearly all are."""
        return cls(table, column, named_by, (column,))


_SEALED = (
    _Sealed.of("journal", "call", "tenant", "user", "call_id", "step"),
    _Sealed.of("journal", "result", "tenant", "user", "call_id", "step"),
    _Sealed.of("pending", "action", "tenant", "user", "id"),
    _Sealed.of("pending", "answer", "tenant", "user", "id"),
    _Sealed.of("pending", "outcome", "tenant", "user", "id"),
    _Sealed.of("keys", "outcome", "tenant", "user", "key"),
    _Sealed.of("tokens", "body", "tenant", "user", "issuer", "resource", "client", "version"),
    _Sealed.of("ledger", "key", "id"),
    _Sealed("state", "body", ("kind", "key", "item"), ()),
)


class Resealer:
    """Looks for what is sealed with older keys beside the writer, and changes it in small transactions.

    What was done stays done, so a pass that was interrupted just begins again.
    """

    def __init__(self, writer: Writer, reader: Reader, sealer: RowSealer, files: ContentFiles) -> None:
        self._writer = writer
        self._reader = reader
        self._sealer = sealer
        self._files = files

    async def rotate(self, *, retire: bool) -> dict[str, int]:
        """Create a key and seal everything with it; delete the older keys if asked to and nothing is unreadable."""
        await asyncio.to_thread(self._sealer.rotate)
        counts = Counter(await self.reseal())
        if retire and not counts["unreadable"]:
            counts.update(await self.reseal())  # what others sealed with the older key while the first pass ran
            await asyncio.to_thread(self._sealer.retire)
        return dict(counts)

    async def reseal(self) -> dict[str, int]:
        """How many values of each table were sealed anew, and how many do not open (`unreadable`)."""
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
        """Seal the contents of artifacts anew; those that an older version left unsealed are sealed, too."""
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
        """Reads again within the transaction: a row may have been changed since it was found."""
        table, column = sealed.table, sealed.column
        read = f"SELECT {column}, {', '.join(sealed.named_by)} FROM {table} WHERE rowid = ?"  # noqa: S608
        write = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        done = 0
        unreadable = 0
        for rowid in rowids:
            body, *names = db.execute(read, (rowid,)).fetchone() or (None,)
            if body is None:
                continue
            try:
                anew = self._sealer.reseal(body, table, *map(str, names), *sealed.suffix)
            except StoreError:
                unreadable += 1
                continue
            db.execute(write, (anew, rowid))
            done += 1
        return {table: done, "unreadable": unreadable}
