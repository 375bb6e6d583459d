"""Token rows of connected accounts, in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from msgspec.structs import replace

from toolpost.contracts.storage import TokenKey, TokenRow, TokenStatus
from toolpost.stores.encryption import copy_json
from toolpost.stores.records import next_version

Rows: TypeAlias = list[TokenRow]  # The store's own `list` hides the builtin one.


class MemoryTokenRows:
    """Token rows in a dict; a lock makes each change atomic between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.rows: dict[TokenKey, TokenRow] = {}

    async def get(self, key: TokenKey) -> TokenRow | None:
        row = self.rows.get(key)
        return _detached(row) if row else None

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> Rows:
        with self._lock:
            rows = sorted(self.rows.items())
        return [_detached(row) for key, row in rows if tenant in (None, key.tenant) and user in (None, key.user)]

    async def put(self, key: TokenKey, body: Mapping[str, Any]) -> TokenRow:
        with self._lock:
            return self._write(key, body)

    async def swap(self, key: TokenKey, version: int, body: Mapping[str, Any]) -> TokenRow | None:
        with self._lock:
            row = self.rows.get(key)
            return self._write(key, body) if row and row.version == version else None

    async def take(self, key: TokenKey, version: int, *, holder: str, lease_s: float) -> TokenRow | None:
        with self._lock:
            row, now = self.rows.get(key), self._clock()
            if row is None:
                return None
            if (row.version, row.status) == (version, "live"):
                if not row.holder:
                    row = replace(row, holder=holder, until=now + lease_s)
                elif row.until <= now:
                    row = replace(row, status="doubtful")
                self.rows[key] = row
            return _detached(row)

    async def settle(
        self,
        key: TokenKey,
        version: int,
        *,
        holder: str,
        body: Mapping[str, Any] | None = None,
        status: TokenStatus = "live",
    ) -> TokenRow | None:
        with self._lock:
            row = self.rows.get(key)
            if row is None or (row.version, row.holder) != (version, holder):
                return None
            if body is not None or status == "revoked":
                return self._write(key, body or {}, status)
            self.rows[key] = replace(row, status=status, holder="", until=0.0)
            return _detached(self.rows[key])

    async def remove(self, key: TokenKey, *, version: int | None = None) -> bool:
        with self._lock:
            row = self.rows.get(key)
            if row is None or version not in (None, row.version):
                return False
            del self.rows[key]
            return True

    def _write(self, key: TokenKey, body: Mapping[str, Any], status: TokenStatus = "live") -> TokenRow:
        now, last = self._clock(), self.rows.get(key)
        version = next_version(now, last.version if last else 0)
        body_copy = copy_json(dict(body), "tokens")
        self.rows[key] = TokenRow(key=key, version=version, status=status, body=body_copy, changed_at=now)
        return _detached(self.rows[key])


def _detached(row: TokenRow) -> TokenRow:
    return replace(row, body=copy_json(row.body, "tokens"))
