"""Idempotency keys in SQLite: reserved by one statement, kept with the outcome they led to."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Mapping
from typing import Any

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import KeyRecord
from toolpost.stores.liveness import Liveness
from toolpost.stores.sealing import RowSealer
from toolpost.stores.writer import Writer

_RESERVE = """
INSERT INTO keys (tenant, user, key, call_id, tool_name, arguments_hash, at, owner) VALUES (?, ?, ?, ?, ?, ?, ?, ?)
ON CONFLICT DO NOTHING
"""
_HOLDER = """
SELECT call_id, tool_name, arguments_hash, outcome, owner FROM keys WHERE tenant = ? AND user = ? AND key = ?
"""
_SETTLE = "UPDATE keys SET outcome = ?, at = ? WHERE tenant = ? AND user = ? AND key = ?"
_RELEASE = "DELETE FROM keys WHERE tenant = ? AND user = ? AND key = ? AND outcome IS NULL AND ? IN ('', call_id)"


class SQLiteKeyStore:
    """The keys of every user, apart from each other."""

    def __init__(self, writer: Writer, *, sealer: RowSealer, liveness: Liveness, clock: Callable[[], float]) -> None:
        self._writer = writer
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

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        sealed = self._sealer.seal(dict(outcome), "keys", *principal, key, "outcome")
        values = (sealed, self._clock(), *principal, key)
        await self._writer.submit(lambda db: db.execute(_SETTLE, values).close())

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        values = (*principal, key, call_id)
        await self._writer.submit(lambda db: db.execute(_RELEASE, values).close())

    def _record(self, principal: Principal, key: str, row: tuple[Any, ...]) -> KeyRecord:
        call_id, tool_name, arguments_hash, outcome, owner = row
        return KeyRecord(
            call_id=call_id,
            tool_name=tool_name,
            arguments_hash=arguments_hash,
            outcome=None if outcome is None else self._sealer.open(outcome, "keys", *principal, key, "outcome"),
            owner_alive=self._liveness.alive(owner),
        )
