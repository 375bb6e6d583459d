"""The parts of the store in memory, except the event log."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import islice
from typing import Any, TypeVar

from msgspec.structs import replace

from toolpost.contracts.callers import CallerKey
from toolpost.contracts.errors import StoreError
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.jobs import Job
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.contracts.storage import (
    ArtifactRef,
    CancelRequest,
    IdempotencyRecord,
    JournalEntry,
    TokenKey,
    TokenRow,
    TokenStatus,
    WebhookProgress,
)
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.encryption import copy_json
from toolpost.stores.memory.jobs import MemoryJobStore
from toolpost.stores.records import copy_action, next_version
from toolpost.stores.state import OF_RUNS, StateRecord

Listed = TypeVar("Listed", PendingAction, ArtifactRef)


class MemoryPendingStore:
    """Pending actions by ID; a lock makes claims atomic between threads."""

    def __init__(self, journal: MemoryJournal, jobs: MemoryJobStore) -> None:
        self._lock = threading.Lock()
        self._journal = journal
        self._jobs = jobs
        self._unowned = set[str]()  # claimed, and left to a job
        self.actions: dict[str, PendingAction] = {}
        self._changes = Changes(self._statuses)
        self._newest: dict[str, str] = {}  # the id of the newest action, by its `same_call`

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        with self._lock:
            self._journal.end_intent(action.call_id)
            waiting = self._waiting(action.same_call, action.created_at) if unless_waiting else None
            if waiting is not None:
                return copy_action(waiting)
            if action.id in self.actions:
                raise StoreError(f"question {action.id!r} exists already; every question needs a unique id")
            self.actions[action.id] = copy_action(action)
            if action.same_call:
                self._newest[action.same_call] = action.id
        return None

    @property
    def may_wait(self) -> bool:
        return bool(self._newest)

    async def find_waiting(self, same_call: str, *, at: float) -> PendingAction | None:
        with self._lock:
            waiting = self._waiting(same_call, at)
        return None if waiting is None else copy_action(waiting)

    def _waiting(self, same_call: str, at: float) -> PendingAction | None:
        action = self.actions.get(self._newest.get(same_call, ""))
        if action is not None and action.status == "open" and action.expires_at > at:
            return action
        self._newest.pop(same_call, None)  # it has been closed
        return None

    async def renew(self, pending_id: str, question: Question) -> None:
        self._change(lambda action: action.id == pending_id and action.status == "open", question=question)

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        action = self.actions.get(pending_id)
        return copy_action(action) if action and tenant in (None, action.asked_by.tenant) else None

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[PendingAction]:
        theirs = [action for action in reversed(self.actions.values()) if tenant in (None, action.asked_by.tenant)]
        newest_first = _page_after(sorted(theirs, key=lambda action: action.created_at, reverse=True), before)
        actions = (
            action
            for action in newest_first
            if user in (None, action.asked_by.user)
            and status in (None, action.status)
            and call_id in (None, action.call_id)
        )
        return [copy_action(action) for action in islice(actions, max(0, limit))]

    async def wait(self, pending_ids: Sequence[str], known: object = None, *, timeout_s: float = 0.0) -> object:
        return await self._changes.wait_for([(id_,) for id_ in pending_ids], known, timeout_s=timeout_s)

    async def _statuses(self, topics: Collection[Topic]) -> dict[Topic, Any]:
        found = {topic: self.actions.get(topic[0]) for topic in topics}
        return {topic: action and (action.status, action.outcome is not None) for topic, action in found.items()}

    def asked(self) -> Sequence[PendingAction]:
        """Return the open actions, except those of calls that wait for a nested call."""
        open_actions = [action for action in self.actions.values() if action.status == "open"]
        outer = {outer_id for action in open_actions for outer_id in _outer_ids(action.call_id)}
        return [action for action in open_actions if action.call_id not in outer]

    async def claim(
        self, pending_id: str, answer: Answer, *, by: str, at: float, then: Job | None = None
    ) -> PendingAction | None:
        def is_open(action: PendingAction) -> bool:
            return action.id == pending_id and action.status == "open" and action.expires_at > at

        claimed = self._change(is_open, status="claimed", answer=answer, answered_by=by, answered_at=at)
        if claimed and then is not None:
            self._unowned.add(pending_id)
            self._jobs.add_continuation(then)
        return claimed[0] if claimed else None

    async def take_claim(self, pending_id: str) -> PendingAction | None:
        if pending_id not in self._unowned:
            return None
        self._unowned.discard(pending_id)
        return await self.get(pending_id)

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        allowed = {"claimed"} if reopen else {"claimed", status}
        changes: dict[str, Any] = {"status": status, "outcome": outcome}
        if reopen:
            changes = {"status": "open", "answer": None, "answered_by": None, "answered_at": None}
        if not self._change(lambda action: action.id == pending_id and action.status in allowed, **changes):
            raise StoreError(f"question {pending_id!r} is not claimed, so it cannot be settled as {status!r}")

    async def expire(self, at: float) -> Sequence[PendingAction]:
        return self._change(lambda action: action.status == "open" and action.expires_at <= at, status="expired")

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Sequence[PendingAction]:
        def is_meant(action: PendingAction) -> bool:
            is_waiting = action.status == "open" or action.id in self._unowned
            mine = tenant in (None, action.asked_by.tenant)
            return mine and is_waiting and call_id in (action.call_id, action.run_id)

        cancelled = self._change(is_meant, status="cancelled")
        self._unowned.difference_update(action.id for action in cancelled)
        return cancelled

    async def adopt_claims(self) -> Sequence[PendingAction]:
        return []

    def _change(self, condition: Callable[[PendingAction], bool], **changes: Any) -> Sequence[PendingAction]:
        with self._lock:
            changed = [copy_action(replace(action, **changes)) for action in self.actions.values() if condition(action)]
            self.actions.update({action.id: action for action in changed})
        self._changes.notify((action.id,) for action in changed)
        return [copy_action(action) for action in changed]


def _outer_ids(call_id: str) -> Iterator[str]:
    """Yield the IDs of the parent calls of a call, the nearest first."""
    while call_id := call_id.rpartition(".")[0]:
        yield call_id


class MemoryArtifactStore:
    """Contents of artifacts by hash, and references by ID."""

    def __init__(self, ids: IdMaker) -> None:
        self._ids = ids
        self.contents: dict[str, bytes] = {}
        self.refs: dict[str, ArtifactRef] = {}

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = sha256(data).hexdigest()
        stored_ref = replace(ref, id=self._ids.make("art"), sha256=digest, size=len(data))
        self.contents.setdefault(digest, bytes(data))
        self.refs[stored_ref.id] = stored_ref
        return stored_ref

    async def info(self, artifact_id: str, *, tenant: str | None, user: str | None = None) -> ArtifactRef | None:
        ref = self.refs.get(artifact_id)
        return ref if ref and tenant in (None, ref.tenant) and user in (None, ref.user) else None

    async def read(
        self,
        artifact_id: str,
        *,
        tenant: str | None,
        user: str | None = None,
        offset: int = 0,
        limit: int | None = None,
    ) -> bytes:
        ref = await self.info(artifact_id, tenant=tenant, user=user)
        if ref is None:
            raise KeyError(artifact_id)
        start = max(0, offset)
        return self.contents[ref.sha256][start : None if limit is None else start + max(0, limit)]

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        run_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> list[ArtifactRef]:
        theirs = [r for r in reversed(self.refs.values()) if tenant in (None, r.tenant) and user in (None, r.user)]
        newest_first = _page_after(sorted(theirs, key=lambda ref: ref.created_at, reverse=True), before)
        return list(islice((ref for ref in newest_first if run_id in (None, ref.run_id)), max(0, limit)))


class MemoryJournal:
    """Intents and results; their owner is this process, so none is an orphan."""

    def __init__(self, owner_id: str) -> None:
        self.owner_id = owner_id
        self.entries: dict[tuple[str, str], JournalEntry] = {}

    async def is_alive(self, owner_id: str) -> bool:
        return owner_id == self.owner_id

    async def begin(self, entry: JournalEntry) -> None:
        call = copy_json(dict(entry.call), "journal")
        intent = replace(entry, call=call, owner=self.owner_id, done=False, result=None)
        self.entries[entry.call_id, entry.step] = intent

    async def finish(self, call_id: str, step: str, result: Any) -> None:
        entry = self.entries.get((call_id, step))
        if entry is None:
            raise StoreError(f"call {call_id!r}, step {step!r}: a result without an intent; `begin` comes first")
        self.entries[call_id, step] = replace(entry, done=True, result=copy_json(result, "journal"))

    async def forget(self, call_id: str, step: str) -> None:
        self.entries.pop((call_id, step), None)

    def end_intent(self, call_id: str) -> None:
        """Remove the intent of a call that has no result."""
        entry = self.entries.get((call_id, ""))
        if entry is not None and not entry.done:
            del self.entries[call_id, ""]

    async def find(self, call_id: str, step: str) -> JournalEntry | None:
        entry = self.entries.get((call_id, step))
        return None if entry is None else _copy_entry(entry)

    async def inner(self, call_id: str) -> list[JournalEntry]:
        nested = f"{call_id}."
        return [_copy_entry(one) for (id_, step), one in self.entries.items() if id_.startswith(nested) and not step]

    async def adopt_orphans(self) -> list[JournalEntry]:
        return []


def _copy_entry(entry: JournalEntry) -> JournalEntry:
    return replace(entry, call=copy_json(entry.call, "journal"), result=copy_json(entry.result, "journal"))


class MemoryIdempotencyStore:
    """Idempotency keys of each user, with the time of the last change."""

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


class MemoryTokenRows:
    """Token rows by key; a lock makes each change atomic between threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self.rows: dict[TokenKey, TokenRow] = {}

    async def get(self, key: TokenKey) -> TokenRow | None:
        row = self.rows.get(key)
        return _detached(row) if row else None

    async def list(self, *, tenant: str | None = None, user: str | None = None) -> list[TokenRow]:
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


class MemoryStateTable:
    """Records of planner state by kind and key."""

    def __init__(self) -> None:
        self._records: dict[tuple[str, str], dict[str, StateRecord]] = {}

    async def put(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        self._records.setdefault((kind, key), {})[item] = record

    async def add(self, kind: str, key: str, item: str, record: StateRecord) -> bool:
        return self._records.setdefault((kind, key), {}).setdefault(item, record) is record

    async def all(self, kind: str, key: str) -> list[tuple[str, bytes]]:
        return sorted((item, record.body) for item, record in self._records.get((kind, key), {}).items())

    async def delete(self, kind: str, keys: Sequence[str]) -> None:
        for key in keys:
            self._records.pop((kind, key), None)

    async def replace(self, kind: str, key: str, item: str, record: StateRecord) -> None:
        records = self._records.get((kind, key), {})
        if item in records:
            records[item] = record

    async def of_kind(self, kind: str) -> list[tuple[str, str, bytes]]:
        return [
            (key, item, record.body)
            for (of, key), records in self._records.items()
            if of == kind
            for item, record in records.items()
        ]

    async def drop_expired(self, kinds: Sequence[str], *, before: float) -> None:
        for name, records in list(self._records.items()):
            if name[0] in kinds and any(_is_over(record, before) for record in records.values()):
                del self._records[name]

    def remove(self, *, runs: Collection[str] = (), owner: str = "", before: float = float("-inf")) -> int:
        """Delete records of runs, of an owner, or that expired before a time; return their number."""
        doomed = [
            name
            for name, records in self._records.items()
            if (name[0] in OF_RUNS and name[1] in runs)
            or any((owner and each.owner == owner) or _is_over(each, before) for each in records.values())
        ]
        return sum(len(self._records.pop(name)) for name in doomed)


def _is_over(record: StateRecord, before: float) -> bool:
    return record.until is not None and record.until < before


class MemoryCancelStore:
    """Cancel requests; a request for a target that only other tenants have is ignored."""

    def __init__(self, tenants_of: Callable[[str], set[str]], clock: Callable[[], float]) -> None:
        self._tenants_of = tenants_of
        self._clock = clock
        self._count = 0
        self._changes = Changes(self._counts)
        self.requests: dict[tuple[str, str | None], CancelRequest] = {}

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        owners = self._tenants_of(target_id)
        if tenant is None or not owners or tenant in owners:
            self.requests[target_id, tenant] = CancelRequest(self._clock(), tenant)
            self._count += 1
            self._changes.notify(((),))

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = set(target_ids)
        found: dict[str, list[CancelRequest]] = {}
        for (target_id, _), request in self.requests.items():
            if target_id in wanted:
                found.setdefault(target_id, []).append(request)
        return found

    async def wait(self, after: int, *, timeout_s: float) -> int:
        newest: int = (await self._changes.wait({(): after}, timeout_s=timeout_s))[()]
        return newest

    async def _counts(self, topics: Collection[Topic]) -> dict[Topic, int]:
        return dict.fromkeys(topics, self._count)


class MemoryCallerKeys:
    """Keys of the gateway's callers."""

    def __init__(self) -> None:
        self.keys: dict[str, CallerKey] = {}

    async def add(self, key: CallerKey) -> None:
        self.keys[key.id] = key

    async def find(self, key_id: str) -> CallerKey | None:
        return self.keys.get(key_id)

    async def list(self, *, tenant: str | None = None) -> list[CallerKey]:
        keys = [key for key in self.keys.values() if tenant is None or key.principal.tenant == tenant]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        key = self.keys.get(key_id)
        if key is None or key.principal.tenant != tenant:
            return False
        del self.keys[key_id]
        return True


class MemoryWebhookStore:
    """Progress of webhooks."""

    def __init__(self) -> None:
        self._rows: dict[str, WebhookProgress] = {}

    async def take(self, name: str, *, begin: int) -> WebhookProgress | None:
        return self._rows.setdefault(name, WebhookProgress(name=name, position=begin))

    async def save(self, progress: WebhookProgress) -> bool:
        self._rows[progress.name] = replace(progress)
        return True

    async def release(self, name: str) -> None:
        """Do nothing, because no other process can send."""

    async def list(self) -> list[WebhookProgress]:
        return [self._rows[name] for name in sorted(self._rows)]


def _page_after(items: Sequence[Listed], before: str | None) -> Sequence[Listed]:
    """Return the items after the one with an ID, none if it is missing; without an ID, return all."""
    if before is None:
        return items
    return items[next((at for at, item in enumerate(items, 1) if item.id == before), len(items)) :]
