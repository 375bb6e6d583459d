"""The parts of the store in memory: journal, questions, keys, wishes and artifacts as dicts."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from typing import Any, TypeAlias

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus
from toolpost.contracts.storage import ArtifactRef, CancelWish, JournalEntry, KeyRecord
from toolpost.stores.artifacts import new_artifact_id
from toolpost.stores.records import detached, detached_action

Actions: TypeAlias = list[PendingAction]  # The stores' own `list` hides the builtin one.
Refs: TypeAlias = list[ArtifactRef]


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

    async def inner(self, call_id: str) -> list[JournalEntry]:
        return [
            replace(entry, call=detached(entry.call, "journal"), result=detached(entry.result, "journal"))
            for (id_, step), entry in self.entries.items()
            if id_.startswith(f"{call_id}.") and not step
        ]

    async def adopt_orphans(self) -> list[JournalEntry]:
        return []

    def tenants_of(self, call_id: str) -> set[str]:
        """Whose call it is."""
        return {entry.principal.tenant for (id_, _), entry in self.entries.items() if id_ == call_id}


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
        self,
        *,
        tenant: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        limit: int = 100,
    ) -> Actions:
        found = [
            action
            for action in reversed(self.actions.values())
            if tenant in (None, action.asked_by.tenant)
            and status in (None, action.status)
            and call_id in (None, action.call_id)
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

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Actions:
        def is_meant(action: PendingAction) -> bool:
            mine = tenant in (None, action.asked_by.tenant)
            return mine and action.status == "open" and call_id in (action.call_id, action.run_id)

        return self._change(is_meant, status="cancelled")

    async def adopt_claims(self) -> Actions:
        return []

    def tenants_of(self, call_id: str) -> set[str]:
        """Whose call it is."""
        return {action.asked_by.tenant for action in self.actions.values() if action.call_id == call_id}

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
            held = self.records.get((principal, key))
            if held is None:
                self.records[principal, key] = (replace(record, outcome=None), self._clock())
                return None
        return replace(held[0], outcome=detached(held[0].outcome, "keys"))

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


class MemoryCancelStore:
    """A wish for what is known to belong to other tenants alone is not kept."""

    def __init__(self, tenants_of: Callable[[str], set[str]], clock: Callable[[], float]) -> None:
        self._tenants_of = tenants_of
        self._clock = clock
        self.wishes: dict[tuple[str, str | None], CancelWish] = {}

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        owners = self._tenants_of(target_id)
        if tenant is None or not owners or tenant in owners:
            self.wishes[target_id, tenant] = CancelWish(self._clock(), tenant)

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelWish]]:
        wanted = set(target_ids)
        found: dict[str, list[CancelWish]] = {}
        for (target_id, _), wish in self.wishes.items():
            if target_id in wanted:
                found.setdefault(target_id, []).append(wish)
        return found


class MemoryArtifactStore:
    """Bytes by their hash, references by their id."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.refs: dict[str, ArtifactRef] = {}

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = sha256(data).hexdigest()
        kept = replace(ref, id=new_artifact_id(), sha256=digest, size=len(data))
        self.contents.setdefault(digest, bytes(data))
        self.refs[kept.id] = kept
        return kept

    async def info(self, artifact_id: str, *, tenant: str | None) -> ArtifactRef | None:
        ref = self.refs.get(artifact_id)
        return ref if ref and tenant in (None, ref.tenant) else None

    async def read(self, artifact_id: str, *, tenant: str | None, offset: int = 0, limit: int | None = None) -> bytes:
        ref = await self.info(artifact_id, tenant=tenant)
        if ref is None:
            raise KeyError(artifact_id)
        start = max(0, offset)
        return self.contents[ref.sha256][start : None if limit is None else start + max(0, limit)]

    async def list(self, *, tenant: str | None = None, run_id: str | None = None, limit: int = 100) -> Refs:
        meant = [
            ref for ref in reversed(self.refs.values()) if tenant in (None, ref.tenant) and run_id in (None, ref.run_id)
        ]
        return sorted(meant, key=lambda ref: ref.created_at, reverse=True)[: max(0, limit)]
