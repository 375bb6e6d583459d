"""The store in memory: the same contract as the SQLite store, for as long as the process lives."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from hashlib import sha256
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus
from toolpost.contracts.storage import (
    ArtifactRef,
    CancelWish,
    JournalEntry,
    KeyRecord,
    Retention,
)
from toolpost.stores.artifacts import new_artifact_id
from toolpost.stores.chain import FINISHED
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.pending import copy_action
from toolpost.stores.retention import FORGOTTEN_USER, PRUNED, ArtifactSize, over_quota
from toolpost.stores.sealing import RowSealer, copy_json
from toolpost.stores.state import MemoryStateTable, SealedStateStore
from toolpost.stores.tokens import MemoryTokenRows

Actions: TypeAlias = list[PendingAction]  # The stores' own `list` hides the builtin one.
Refs: TypeAlias = list[ArtifactRef]

K = TypeVar("K")
V = TypeVar("V")


class MemoryJournal:
    """Intents and results in a dict; the owner is this process, so none is ever orphaned."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self.entries: dict[tuple[str, str], JournalEntry] = {}

    async def begin(self, entry: JournalEntry) -> None:
        call = copy_json(dict(entry.call), "journal")
        kept = replace(entry, call=call, owner=self._owner_id, done=False, result=None)
        self.entries[entry.call_id, entry.step] = kept

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        self.entries[call_id, step] = replace(entry, done=True, result=copy_json(result, "journal"))

    async def forget(self, call_id: str, step: str) -> None:
        self.entries.pop((call_id, step), None)

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            return None
        return replace(entry, call=copy_json(entry.call, "journal"), result=copy_json(entry.result, "journal"))

    async def inner(self, call_id: str) -> list[JournalEntry]:
        return [
            replace(entry, call=copy_json(entry.call, "journal"), result=copy_json(entry.result, "journal"))
            for (id_, step), entry in self.entries.items()
            if id_.startswith(f"{call_id}.") and not step
        ]

    async def adopt_orphans(self) -> list[JournalEntry]:
        return []


class MemoryPendingStore:
    """Pending actions in a dict; a lock makes claims atomic between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.actions: dict[str, PendingAction] = {}

    async def add(self, action: PendingAction) -> None:
        if action.id in self.actions:
            raise StoreError(f"question {action.id!r} is there already; every question needs an id of its own")
        self.actions[action.id] = copy_action(action)

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        action = self.actions.get(pending_id)
        return copy_action(action) if action and tenant in (None, action.asked_by.tenant) else None

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
        return [copy_action(action) for action in newest_first[: max(0, limit)]]

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

    def _change(self, condition: Callable[[PendingAction], bool], **changes: Any) -> Actions:
        with self._lock:
            changed = [copy_action(replace(action, **changes)) for action in self.actions.values() if condition(action)]
            self.actions.update({action.id: action for action in changed})
        return [copy_action(action) for action in changed]


class MemoryKeyStore:
    """Idempotency keys by user, each with the time of its last change."""

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
        return replace(held[0], outcome=copy_json(held[0].outcome, "keys"))

    async def settle(self, principal: Principal, key: str, outcome: Mapping[str, Any]) -> None:
        kept = copy_json(dict(outcome), "keys")
        with self._lock:
            if held := self.records.get((principal, key)):
                self.records[principal, key] = (replace(held[0], outcome=kept), self._clock())

    async def release(self, principal: Principal, key: str, *, call_id: str = "") -> None:
        with self._lock:
            held = self.records.get((principal, key))
            if held and held[0].outcome is None and call_id in ("", held[0].call_id):
                del self.records[principal, key]


class MemoryCancelStore:
    """Cancel requests; one for a target of other tenants only is ignored."""

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
    """Artifact contents by hash, references by id."""

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


class MemoryStore:
    """Everything that one Toolbox stores, gone with the process.

    With `max_events` the oldest finished runs make room for new events.
    """

    def __init__(self, *, max_events: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.owner_id = f"own_{os.urandom(12).hex()}"
        self.events = MemoryEventLog(max_events=max_events)
        self.journal = MemoryJournal(self.owner_id)
        self.pending = MemoryPendingStore()
        self.keys = MemoryKeyStore(clock)
        self.cancels = MemoryCancelStore(self._tenants_of, clock)
        self.artifacts = MemoryArtifactStore()
        self.tokens = MemoryTokenRows(clock)
        self._state_table = MemoryStateTable()
        self.state = SealedStateStore(self._state_table, RowSealer(NoSealer()))

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        removed = dict.fromkeys(PRUNED, 0)
        if retention.max_age_s is not None:
            removed.update(self._prune_by_age(now - retention.max_age_s))
        if retention.max_artifact_bytes is not None:
            removed["artifacts"] += self._prune_over_quota(retention.max_artifact_bytes)
        removed["files"] = self._drop_unnamed_contents()
        return removed

    def _prune_by_age(self, cutoff: float) -> dict[str, int]:
        unsettled = self._unsettled_runs()
        entries = self.journal.entries.values()
        unfinished = {_run_of(entry) for entry in entries if not entry.done and not entry.step}
        runs = self.events.collect_runs()
        old = {
            name: run
            for name, run in runs.by_name.items()
            if run.head.status in FINISHED and run.head.updated_at < cutoff and name not in unsettled | unfinished
        }
        calls = {row.call_id for run in old.values() for row in run.render()}
        kept = runs.by_name
        runs.remove(old)
        alone = {run_id for _, run_id in old} - {run_id for _, run_id in kept}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or bool(entry.step)  # a step that was cut off is over when its run is

        def is_old(name: tuple[str, str], at: float) -> bool:
            return name in old or (at < cutoff and name not in kept)

        return {
            "runs": len(old),
            "events": sum(len(run.ids) for run in old.values()),
            "journal": _drop(
                self.journal.entries, lambda _, entry: is_over(entry) and is_old(_run_of(entry), entry.at)
            ),
            "pending": _drop(
                self.pending.actions,
                lambda _, action: _asked_in(action) not in unsettled and is_old(_asked_in(action), action.created_at),
            ),
            "keys": _drop(
                self.keys.records,
                lambda _, held: held[0].call_id in calls or (held[0].outcome is not None and held[1] < cutoff),
            ),
            "state": self._state_table.remove(runs=alone, before=cutoff),
            "cancels": _drop(self.cancels.wishes, lambda _, wish: wish.at < cutoff),
            "artifacts": _drop(
                self.artifacts.refs,
                lambda _, ref: ref.created_at < cutoff and (ref.tenant, ref.run_id) not in unsettled,
            ),
        }

    def _prune_over_quota(self, max_bytes: int) -> int:
        unsettled = self._unsettled_runs()
        refs = sorted(self.artifacts.refs.values(), key=lambda ref: ref.created_at)
        spared = {ref.id for ref in refs if (ref.tenant, ref.run_id) in unsettled}
        sizes = (ArtifactSize(ref.id, ref.sha256, ref.size) for ref in refs)
        gone = set(over_quota(sizes, spared=spared, max_bytes=max_bytes))
        return _drop(self.artifacts.refs, lambda id_, _: id_ in gone)

    def _unsettled_runs(self) -> set[tuple[str, str]]:
        actions = self.pending.actions.values()
        return {_asked_in(action) for action in actions if action.status in ("open", "claimed")}

    def _drop_unnamed_contents(self) -> int:
        named = {ref.sha256 for ref in self.artifacts.refs.values()}
        return _drop(self.artifacts.contents, lambda sha256, _: sha256 not in named)

    async def forget(self, principal: Principal) -> dict[str, int]:
        who = principal
        all_runs = list(self.events.collect_runs().by_name.values())
        runs = {run.head.run_id for run in all_runs if (run.head.tenant, run.head.user) == who}
        calls = {row.call_id for run in all_runs for row in run.render() if (row.tenant, row.user) == who}
        entries, actions = self.journal.entries, self.pending.actions
        removed = {
            "tokens": _drop(self.tokens.rows, lambda key, _: key[:2] == who),
            "pending": _drop(actions, lambda _, each: each.asked_by == who and each.status != "claimed"),
            "journal": _drop(entries, lambda _, entry: entry.principal == who and entry.done),
            "keys": _drop(self.keys.records, lambda key, held: key[0] == who and held[0].outcome is not None),
            "state": self._state_table.remove(runs=runs, owner=str(who)),
            "artifacts": _drop(
                self.artifacts.refs,
                lambda _, ref: ref.tenant == who.tenant and (ref.run_id in runs or ref.call_id in calls),
            ),
        }
        running = sum(entry.principal == who for entry in entries.values())
        answered = sum(action.asked_by == who for action in actions.values())
        for action in list(actions.values()):
            if action.answered_by == str(who):
                actions[action.id] = replace(action, answered_by=FORGOTTEN_USER)
        files = self._drop_unnamed_contents()
        return {**removed, "under_way": running + answered, "files": files, **self.events.forget(who)}

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Do nothing: nothing is sealed in memory."""
        return {}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def _tenants_of(self, target_id: str) -> set[str]:
        """Return the tenants that a run or a call of this id belongs to."""
        runs = {run.head.tenant for run in self.events.collect_runs().find_runs(target_id)}
        entries = {entry.principal.tenant for (id_, _), entry in self.journal.entries.items() if id_ == target_id}
        actions = {each.asked_by.tenant for each in self.pending.actions.values() if each.call_id == target_id}
        return runs | entries | actions


def _run_of(entry: JournalEntry) -> tuple[str, str]:
    return entry.principal.tenant, entry.run_id


def _asked_in(action: PendingAction) -> tuple[str, str]:
    return action.asked_by.tenant, action.run_id


def _drop(items: dict[K, V], condition: Callable[[K, V], bool]) -> int:
    """Delete the items that meet a condition; return how many."""
    doomed = [key for key, value in items.items() if condition(key, value)]
    for key in doomed:
        del items[key]
    return len(doomed)


class NoSealer:
    """A sealer without a key, for values that never leave the process."""

    def mark(self) -> bytes:
        return b""

    def seal(self, data: bytes, *, row: str) -> bytes:
        return data

    def open(self, sealed: bytes, *, row: str) -> bytes:
        return sealed

    def rotate(self) -> None:
        """There is no key."""

    def retire(self) -> None:
        """There is no key."""
