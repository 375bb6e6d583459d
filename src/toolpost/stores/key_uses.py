"""The last uses of callers' keys, as encrypted records in the table of planner state.

The records of a user are erased with the user, like all records of that table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

from toolpost.contracts.callers import CallerKey
from toolpost.stores.encryption import readable_rows
from toolpost.stores.state import StateRecord

if TYPE_CHECKING:
    from toolpost.stores.encryption import RowCipher
    from toolpost.stores.state import StateTable

Rows: TypeAlias = list[tuple[str, bytes]]  # The store's own `list` hides the builtin one.
_KIND = "key_use"


class EncryptedKeyUses:
    """Implements `KeyUseStore` on any table."""

    def __init__(self, table: StateTable, cipher: RowCipher) -> None:
        self._table = table
        self._cipher = cipher

    async def save(self, key: CallerKey, *, at: float) -> None:
        stored = self._read([(key.id, body) for _, body in await self._table.all(_KIND, key.id)])
        if stored.get(key.id, 0.0) < at:
            body = self._cipher.encrypt({"at": at}, "state", _KIND, key.id, "")
            await self._table.put(_KIND, key.id, "", StateRecord(body, str(key.principal)))

    async def list(self) -> Mapping[str, float]:
        return self._read([(key_id, body) for key_id, _, body in await self._table.of_kind(_KIND)])

    async def remove(self, key_id: str) -> None:
        await self._table.delete(_KIND, [key_id])

    def _read(self, rows: Rows) -> dict[str, float]:
        """Return the time of each row; a row that cannot be decrypted is logged and skipped."""

        def read(row: tuple[str, bytes]) -> tuple[str, float]:
            return row[0], float(self._cipher.decrypt(row[1], "state", _KIND, row[0], "")["at"])

        return dict(readable_rows(rows, read, lambda row: f"the last use of key {row[0]!r}"))
