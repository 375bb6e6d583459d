"""Rotation of the encryption key of a store."""

from __future__ import annotations

import asyncio
from collections import Counter
from functools import partial
from typing import Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Cipher
from toolpost.stores.encrypted_columns import ENCRYPTED, PRIMARY_KEYS, EncryptedColumn
from toolpost.stores.sql.contents import ContentStore
from toolpost.stores.sql.database import SharedDatabase, SQLConnection

# Few enough that other writes do not wait long for one step.
ROWS_A_STEP = 200


class KeyRotation:
    """Creates an encryption key and encrypts existing values with it, in small transactions that can be repeated."""

    def __init__(self, shared: SharedDatabase, cipher: Cipher, contents: ContentStore) -> None:
        self._shared = shared
        self._cipher = cipher
        self._contents = contents

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
        counts = Counter({"unreadable": 0, **{encrypted.table: 0 for encrypted in ENCRYPTED}})
        for encrypted in ENCRYPTED:
            column = _Column(encrypted, self._cipher.prefix())
            after: tuple[Any, ...] = ()
            while keys := await self._shared.read(partial(column.find_older, after=after)):
                counts.update(await self._shared.write(partial(self._step, column=column, keys=keys)))
                after = keys[-1]
        counts.update(await self._contents.reencrypt())
        return dict(counts)

    def _step(self, db: SQLConnection, *, column: _Column, keys: list[tuple[Any, ...]]) -> dict[str, int]:
        done = 0
        unreadable = 0
        for key in keys:
            # Read again within the transaction: another process may have changed the row.
            body, *names = column.read(db, key) or (None,)
            if body is None:
                continue
            table, suffix = column.encrypted.table, column.encrypted.suffix
            try:
                renewed = self._shared.cipher.reencrypt(body, table, *map(str, names), *suffix)
            except StoreError:
                unreadable += 1
                continue
            column.write(db, key, renewed)
            done += 1
        return {column.encrypted.table: done, "unreadable": unreadable}


class _Column:
    """The statements of an encrypted column, whose rows are found by their primary key."""

    def __init__(self, encrypted: EncryptedColumn, mark: bytes) -> None:
        self.encrypted = encrypted
        self._mark = mark
        table, column, key = encrypted.table, encrypted.column, PRIMARY_KEYS[encrypted.table]
        columns = ", ".join(f'"{name}"' for name in key)
        places = ", ".join(f":key_{name}" for name in key)
        self._names = [f"key_{name}" for name in key]
        older = f"{column} IS NOT NULL AND substr({column}, 1, :length) <> :mark"
        self._first = f"SELECT {columns} FROM {table} WHERE {older} ORDER BY {columns} LIMIT {ROWS_A_STEP}"  # noqa: S608 - constants, here and below
        self._next = self._first.replace("WHERE", f"WHERE ({columns}) > ({places}) AND")
        self._read = f"SELECT {column}, {encrypted.names} FROM {table} WHERE ({columns}) = ({places}) FOR UPDATE"  # noqa: S608
        self._write = f"UPDATE {table} SET {column} = :renewed WHERE ({columns}) = ({places})"  # noqa: S608

    def find_older(self, db: SQLConnection, *, after: tuple[Any, ...]) -> list[tuple[Any, ...]]:
        """Return the next keys of values that another key encrypted."""
        values = {**self._key(after), "length": len(self._mark), "mark": self._mark}
        return [tuple(row) for row in db.execute(self._next if after else self._first, values)]

    def read(self, db: SQLConnection, key: tuple[Any, ...]) -> tuple[Any, ...] | None:
        """Return a value, and the names of its row."""
        row: tuple[Any, ...] | None = db.execute(self._read, self._key(key)).fetchone()
        return row

    def write(self, db: SQLConnection, key: tuple[Any, ...], renewed: bytes) -> None:
        """Replace a value."""
        db.execute(self._write, {**self._key(key), "renewed": renewed})

    def _key(self, key: tuple[Any, ...]) -> dict[str, Any]:
        return dict(zip(self._names, key, strict=False))
