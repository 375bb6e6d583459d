"""Idempotency keys in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

from msgspec.structs import replace

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import IdempotencyRecord
from toolpost.stores.encryption import copy_json


class MemoryIdempotencyStore:
    """Idempotency keys by user, each with the time of its last change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.records: dict[tuple[Principal, str], tuple[IdempotencyRecord, float]] = {}

    async def reserve(self, principal: Principal, key: str, record: IdempotencyRecord) -> IdempotencyRecord | None:
        with self._lock:
            held = self.records.get((principal, key))
            if held is None:
                self.records[principal, key] = (replace(record, outcome=None), self._clock())
                return None
        return replace(held[0], outcome=copy_json(held[0].outcome, "keys"))

    async def find(self, principal: Principal, call_id: str) -> IdempotencyRecord | None:
        for (who, _), (held, _at) in list(self.records.items()):
            if who == principal and held.call_id == call_id:
                return replace(held, outcome=copy_json(held.outcome, "keys"))
        return None

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        outcome_copy = copy_json(dict(outcome), "keys")
        with self._lock:
            if held := self.records.get((principal, key)):
                self.records[principal, key] = (replace(held[0], outcome=outcome_copy), self._clock())

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        with self._lock:
            held = self.records.get((principal, key))
            if held and held[0].outcome is None and call_id in ("", held[0].call_id):
                del self.records[principal, key]
