"""The store in memory: the same promises as on disk, for as long as the process lives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any, TypeAlias

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus
from toolpost.contracts.storage import (
    ArtifactRef,
    ArtifactStore,
    CancelStore,
    EventLog,
    Journal,
    JournalEntry,
    KeyRecord,
    KeyStore,
    PendingStore,
    Retention,
)
from toolpost.stores.artifacts import new_artifact_id
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.quota import Weighed, over_quota
from toolpost.stores.records import detached, detached_action
from toolpost.stores.sealing import RowSealer
from toolpost.stores.state import MemoryShelf, SealedStateStore

Actions: TypeAlias = list[PendingAction]  # The stores' own `list` hides the builtin one.
Refs: TypeAlias = list[ArtifactRef]
UNSETTLED = frozenset({"open", "claimed"})


class MemoryJournal:
    """Intents and results; the owner lives as long as they do, so none is ever orphaned."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self.entries: dict[tuple[str, str], JournalEntry] = {}

    async def begin(self, entry: JournalEntry) -> None:
        call = detached(dict(entry.call), "journal")
        kept = replace(entry, call=call, owner=self._owner_id, done=False, result=None)
        self.entries[entry.call_id, entry.step] = kept

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        self.entries[call_id, step] = replace(entry, done=True, result=detached(result, "journal"))

    async def forget(self, call_id: str, step: str) -> None:
        self.entries.pop((call_id, step), None)

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            return None
        return replace(entry, call=detached(entry.call, "journal"), result=detached(entry.result, "journal"))

    async def adopt_orphans(self) -> list[JournalEntry]:
        return []


class MemoryPendingStore:
    """Questions; the lock makes a claim atomic between threads too."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.actions: dict[str, PendingAction] = {}

    async def add(self, action: PendingAction) -> None:
        if action.id in self.actions:
            raise StoreError(f"question {action.id!r} is there already; every question needs an id of its own")
        self.actions[action.id] = detached_action(action)

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        action = self.actions.get(pending_id)
        return detached_action(action) if action and tenant in (None, action.asked_by.tenant) else None

    async def list(
        self, *, tenant: str | None = None, status: PendingStatus | None = "open", limit: int = 100
    ) -> Actions:
        found = [
            action
            for action in reversed(self.actions.values())
            if tenant in (None, action.asked_by.tenant) and status in (None, action.status)
        ]
        newest_first = sorted(found, key=lambda action: action.created_at, reverse=True)
        return [detached_action(action) for action in newest_first[: max(0, limit)]]

    async def claim(self, pending_id: str, answer: Answer, *, by: str, at: float) -> PendingAction | None:
        def is_open(action: PendingAction) -> bool:
            return action.id == pending_id and action.status == "open" and action.expires_at > at

        claimed = self._change(is_open, status="claimed", answer=answer, answered_by=by, answered_at=at)
        return claimed[0] if claimed else None

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        allowed = {"claimed"} if reopen else {"claimed", status}
        changes: dict[str, Any] = {"status": status, "outcome": outcome}
        if reopen:
            changes = {"status": "open", "answer": None, "answered_by": None, "answered_at": None}
        if not self._change(lambda action: action.id == pending_id and action.status in allowed, **changes):
            raise StoreError(f"question {pending_id!r} is not claimed, so it cannot be settled as {status!r}")

    async def expire(self, at: float) -> Actions:
        return self._change(lambda action: action.status == "open" and action.expires_at <= at, status="expired")

    async def cancel(self, call_id: str) -> Actions:
        def is_meant(action: PendingAction) -> bool:
            return action.status == "open" and call_id in (action.call_id, action.run_id)

        return self._change(is_meant, status="cancelled")

    async def adopt_claims(self) -> Actions:
        return []

    def _change(self, condition: Callable[[PendingAction], bool], **changes: Any) -> Actions:
        with self._lock:
            changed = [
                detached_action(replace(action, **changes)) for action in self.actions.values() if condition(action)
            ]
            self.actions.update({action.id: action for action in changed})
        return [detached_action(action) for action in changed]


class MemoryKeyStore:
    """The keys of every user, apart from each other; with the time of the last change."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.records: dict[tuple[Principal, str], tuple[KeyRecord, float]] = {}

    async def reserve(self, principal: Principal, key: str, record: KeyRecord) -> KeyRecord | None:
        with self._lock:
            held = self.records.setdefault((principal, key), (replace(record, outcome=None), self._clock()))[0]
        if held.call_id == record.call_id and held.outcome is None and held is not record:
            return None
        return replace(held, outcome=detached(held.outcome, "keys"))

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        kept = detached(dict(outcome), "keys")
        with self._lock:
            if held := self.records.get((principal, key)):
                self.records[principal, key] = (replace(held[0], outcome=kept), self._clock())

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        with self._lock:
            held = self.records.get((principal, key))
            if held and held[0].outcome is None and call_id in ("", held[0].call_id):
                del self.records[principal, key]
