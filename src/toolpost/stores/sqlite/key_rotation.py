"""Rotation of the encryption key of an SQLite store, and the check that a key is present when the store opens."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from functools import partial
from pathlib import Path

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.encrypted_columns import CHECKED, ENCRYPTED, KEY_PREFIX, EncryptedColumn, check_prefixes
from toolpost.stores.sqlite.artifacts import ContentFiles
from toolpost.stores.sqlite.context import SQLiteContext

# Few enough that other writes do not wait long for one step.
ROWS_A_STEP = 200


class KeyRotation:
    """Creates an encryption key and encrypts existing values with it, in small transactions that can be repeated."""

    def __init__(self, shared: SQLiteContext, cipher: Cipher, files: ContentFiles) -> None:
        self._shared = shared
        self._cipher = cipher
        self._files = files

    async def rotate(self, *, retire: bool) -> dict[str, int]:
        """Create a key and encrypt everything with it; with `retire` delete older keys unless a value is unreadable."""
        await asyncio.to_thread(self._cipher.rotate)
        counts = Counter(await self.reencrypt())
        if retire and not counts["unreadable"]:
            counts.update(await self.reencrypt())  # values that other processes encrypted during the first pass
            await asyncio.to_thread(self._cipher.retire)
        return dict(counts)

    async def reencrypt(self) -> dict[str, int]:
        """Re-encrypt values of older keys; return counts by table, and of undecryptable ones (`unreadable`)."""
        await self._shared.writer.flush()
        counts = Counter({"unreadable": 0, **{encrypted.table: 0 for encrypted in ENCRYPTED}})
        for encrypted in ENCRYPTED:
            after = -(2**63)
            while rowids := await self._shared.reader.query(partial(self._older, encrypted=encrypted, after=after)):
                counts.update(await self._shared.writer.submit(partial(self._step, encrypted=encrypted, rowids=rowids)))
                after = rowids[-1]
        counts.update(await self._reencrypt_files())
        return dict(counts)

    async def _reencrypt_files(self) -> dict[str, int]:
        """Re-encrypt the contents of artifacts."""
        counts = {"artifacts": 0, "unreadable": 0}
        sql = "SELECT DISTINCT sha256, size FROM artifacts"
        for sha256, size in await self._shared.reader.query(lambda db: db.execute(sql).fetchall()):
            try:
                counts["artifacts"] += await asyncio.to_thread(self._files.reencrypt, sha256, size)
            except StoreError:
                counts["unreadable"] += 1
        return counts

    def _older(self, db: sqlite3.Connection, *, encrypted: EncryptedColumn, after: int) -> list[int]:
        mark = self._cipher.prefix()
        table, column = encrypted.table, encrypted.column
        sql = f"""
            SELECT rowid FROM {table} WHERE rowid > ? AND {column} IS NOT NULL
            AND substr({column}, 1, ?) <> ? ORDER BY rowid LIMIT {ROWS_A_STEP}
        """  # noqa: S608 - constants, here and below
        return [rowid for (rowid,) in db.execute(sql, (after, len(mark), mark))]

    def _step(self, db: sqlite3.Connection, *, encrypted: EncryptedColumn, rowids: list[int]) -> dict[str, int]:
        table, column = encrypted.table, encrypted.column
        read = f"SELECT {column}, {encrypted.names} FROM {table} WHERE rowid = ?"  # noqa: S608
        write = f"UPDATE {table} SET {column} = ? WHERE rowid = ?"  # noqa: S608
        done = 0
        unreadable = 0
        for rowid in rowids:
            # Read again within the transaction: another process may have changed the row.
            body, *names = db.execute(read, (rowid,)).fetchone() or (None,)
            if body is None:
                continue
            try:
                renewed = self._shared.cipher.reencrypt(body, table, *map(str, names), *encrypted.suffix)
            except StoreError:
                unreadable += 1
                continue
            db.execute(write, (renewed, rowid))
            done += 1
        return {table: done, "unreadable": unreadable}


def check_key(db: sqlite3.Connection, cipher: Cipher, path: Path) -> None:
    """Raise StoreError if the key of the values is missing."""
    found = {table: _newest_prefixes(db, table, column) for table, column in CHECKED}
    check_prefixes(found, cipher, f"the data at {str(path)!r}")


def _newest_prefixes(db: sqlite3.Connection, table: str, column: str) -> list[bytes]:
    sql = f"SELECT substr(CAST({column} AS BLOB), 1, {KEY_PREFIX}) FROM {table} ORDER BY rowid DESC LIMIT 50"  # noqa: S608 - constants
    return [prefix for (prefix,) in db.execute(sql) if prefix]  # a new ledger has no key yet
