"""Idempotency keys in SQLite."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import IdempotencyRecord
from toolpost.stores.encryption import RowCipher
from toolpost.stores.sqlite.database import Reader
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.stores.sqlite.row_authentication import decrypt_record
from toolpost.stores.sqlite.writer import Writer

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
_NAME_OF_KEY = """
SELECT tenant, user, key, call_id, tool_name, arguments_hash FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""


class SQLiteIdempotencyStore:
    """Idempotency keys by user: reserved by one statement, stored with the outcome of their call."""

    def __init__(
        self, writer: Writer, reader: Reader, *, cipher: RowCipher, liveness: Liveness, clock: Callable[[], float]
    ) -> None:
        self._writer = writer
        self._reader = reader
        self._cipher = cipher
        self._liveness = liveness
        self._clock = clock

    async def reserve(self, principal: Principal, key: str, record: IdempotencyRecord) -> IdempotencyRecord | None:
        row = (*principal, key, record.call_id, record.tool_name, record.arguments_hash)

        def work(db: sqlite3.Connection) -> tuple[Any, ...] | None:
            if db.execute(_RESERVE, (*row, self._clock(), self._liveness.owner_id)).rowcount == 1:
                return None
            holder: tuple[Any, ...] = db.execute(_HOLDER, (*principal, key)).fetchone()
            return holder

        holder = await self._writer.submit(work)
        return None if holder is None else self._record(principal, key, holder)

    async def find(self, principal: Principal, call_id: str) -> IdempotencyRecord | None:
        row = await self._reader.query(lambda db: db.execute(_CALL_OF_KEY, (*principal, call_id)).fetchone())
        return None if row is None else self._record(principal, row[0], row[1:])

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        def work(db: sqlite3.Connection) -> None:
            found = db.execute(_NAME_OF_KEY, (*principal, key)).fetchone()
            if found is not None:
                encrypted = self._cipher.encrypt(dict(outcome), "keys", *found, "outcome")
                db.execute(_SETTLE, (encrypted, self._clock(), *principal, key)).close()

        await self._writer.submit(work)

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        values = (*principal, key, call_id)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).close())

    def _record(self, principal: Principal, key: str, row: tuple[Any, ...]) -> IdempotencyRecord:
        call_id, tool_name, arguments_hash, outcome, owner = row
        name = ("keys", *principal, key, call_id, tool_name, arguments_hash, "outcome")
        return IdempotencyRecord(
            call_id=call_id,
            tool_name=tool_name,
            arguments_hash=arguments_hash,
            outcome=None if outcome is None else decrypt_record(self._cipher, outcome, *name),
            owner_alive=self._liveness.alive(owner),
        )
