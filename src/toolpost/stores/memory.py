"""The store in memory: the same contract as the SQLite store, for as long as the process lives."""

from __future__ import annotations

import os
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from hashlib import sha256
from itertools import islice
from operator import itemgetter
from typing import Any, Self, TypeAlias, TypeVar

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.events import (
    CALLER,
    CallRef,
    EventCode,
    EventFilter,
    RunEvent,
    RunFilter,
    RunSummary,
    StoredEvent,
)
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.contracts.storage import ArtifactRef, CancelRequest, JournalEntry, KeyRecord, Retention, WriteHealth
from toolpost.stores.artifacts import new_artifact_id
from toolpost.stores.caller_keys import MemoryCallerKeys
from toolpost.stores.chain import (
    FINISHED,
    KEY_BYTES,
    LogKey,
    RunHead,
    Segment,
    are_ascii,
    escape_call_ids,
    escape_surrogates,
    find_open_calls,
    find_second_answers,
    render_events,
)
from toolpost.stores.pending import copy_action
from toolpost.stores.retention_rules import FORGOTTEN_USER, PRUNED, ArtifactSize, mentions, over_quota
from toolpost.stores.sealing import RowSealer, copy_json
from toolpost.stores.state import MemoryStateTable, SealedStateStore
from toolpost.stores.tokens import MemoryTokenRows
from toolpost.stores.webhooks import MemoryWebhookStore

RunName: TypeAlias = tuple[str, str]  # tenant and run id

_now = time.time
_REQUESTED = EventCode.TOOL_CALL_REQUESTED
_ENDS = (EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED)  # compared by identity: hashing a member is slow
_USUAL = 3  # requested, started, ended: in more events a run may have begun anew

Actions: TypeAlias = list[PendingAction]  # The stores' own `list` hides the builtin one.
Refs: TypeAlias = list[ArtifactRef]
K = TypeVar("K")
V = TypeVar("V")
Listed = TypeVar("Listed", PendingAction, ArtifactRef)


class MemoryRun:
    """One run: its raw events until they are rendered; its head is computed on demand."""

    __slots__ = ("_chain", "_head", "_key", "_segments", "_turned", "fresh", "ids")

    def __init__(self, key: LogKey) -> None:
        self.ids: list[int] = []
        self.fresh: list[RunEvent] = []
        self._key = key
        self._segments: list[Segment] = []  # one for each event
        self._chain: RunHead | None = None
        self._head: RunHead | None = None
        self._turned = 0  # so many of the fresh ones are in the head

    @property
    def is_finished(self) -> bool:
        """Whether the run has ended; for most runs its first and its last event show that."""
        if self._head is None and len(self.fresh) <= _USUAL:
            first, last = self.fresh[0], self.fresh[-1]
            if first.code is _REQUESTED and first.call is last.call:
                return last.code in _ENDS
        return self.head.status in FINISHED

    @property
    def head(self) -> RunHead:
        """The state of the run after its last event."""
        head = self._head or RunHead.of_first(escape_call_ids(self.fresh[0].call), float(self.fresh[0].at))
        for event in self.fresh[self._turned :]:
            head.seq, head.updated_at = head.seq + 1, float(event.at)
            head.update_status(int(event.code), escape_call_ids(event.call).call_id)
        self._head, self._turned = head, len(self.fresh)
        return head

    def render(self) -> list[Segment]:
        """Number, chain and render the new events; return a segment for each event."""
        _ = self.head  # afterwards there are only segments
        for id_, event in zip(self.ids[len(self._segments) :], self.fresh, strict=True):
            call = escape_call_ids(event.call)
            self._chain = self._chain or RunHead.of_first(call, event.at)
            *_, seq, call_id, user, tool_name, correlation_id, text, chained = self._chain.append(
                call, render_events(call, [event]), id_, self._key
            )
            names = (seq, call_id, user, tool_name, correlation_id)
            run_id, tenant = self._chain.run_id, self._chain.tenant
            self._segments.append(Segment(id_, run_id, tenant, *names, text, bytes(chained)))
        self.fresh.clear()
        self._turned = 0
        return self._segments

    def events(self) -> list[StoredEvent]:
        """Return all events as they are stored."""
        return [event for segment in self.render() for event in segment.unpack()]

    def forget(self, who: Principal) -> int:
        """Remove what the events tell of a person; return how many lost it."""
        segments, forgotten = self.render(), 0
        previous = self._chain.chain_start if self._chain else b""
        for at, segment in enumerate(segments):
            if (segment.tenant, segment.user) == who or mentions(f"{segment.correlation_id} {segment.events}", who):
                segments[at], lost = self._key.forget(segment, previous, who)
                forgotten += lost
            previous = segment.hash
        return forgotten

    def find_breaks(self) -> list[str]:
        """Return the problems of the chain."""
        segments, chain = self.render(), self._chain
        start, last = (chain.chain_start, chain.hash) if chain else (b"", b"")
        unpacked = [(segment, segment.unpack()) for segment in segments]
        problems = self._key.find_breaks(unpacked, start, last_seq=self.head.seq, seal=self._key.seal_end(last))
        return [*problems, *find_second_answers(event for _, events in unpacked for event in events)]


class MemoryRuns:
    """All runs by tenant and id, in the order of their first events."""

    def __init__(self, key: LogKey) -> None:
        self.by_name: dict[RunName, MemoryRun] = {}
        self._key = key
        self._last_id = 0
        self._count = 0

    def add(self, events: Iterable[RunEvent]) -> None:
        """Number events and sort them into their runs."""
        id_, known = self._last_id, None
        ids: list[int] = []
        fresh: list[RunEvent] = []
        for event in events:
            id_ += 1
            if event.call is not known:  # the events of a call mostly come one after the other
                known = event.call
                run = self._find_or_add(known)
                ids, fresh = run.ids, run.fresh
            ids.append(id_)
            fresh.append(event)
        self._count += id_ - self._last_id
        self._last_id = id_

    def _find_or_add(self, call: CallRef) -> MemoryRun:
        name = (call.tenant, call.run_id)
        run = self.by_name.get(name)
        if run is None and not are_ascii(*name):
            name = (escape_surrogates(call.tenant), escape_surrogates(call.run_id))
            run = self.by_name.get(name)
        if run is None:
            run = self.by_name[name] = MemoryRun(self._key)
        return run

    def find_runs(self, run_id: str, tenant: str | None = None) -> list[MemoryRun]:
        """Return the runs of an id: of one tenant, or of each that has one."""
        if tenant is not None:
            return [run for run in [self.by_name.get((tenant, run_id))] if run is not None]
        return [run for (_, name), run in self.by_name.items() if name == run_id]

    def remove(self, names: Iterable[RunName]) -> None:
        """Remove whole runs."""
        for name in names:
            self._count -= len(self.by_name.pop(name).ids)

    def make_room(self, max_events: int) -> None:
        """Remove the oldest finished runs until at most `max_events` are left."""
        surplus = self._count - max_events
        doomed: list[RunName] = []
        for name, run in self.by_name.items() if surplus > 0 else ():
            if surplus <= 0:
                break
            if run.is_finished:
                doomed.append(name)
                surplus -= len(run.ids)
        self.remove(doomed)

    def events(
        self, run_id: str | None, after: int, tenant: str | None, *, newest: bool = False
    ) -> Iterator[StoredEvent]:
        """Yield the events with an id above `after`, of one run or of all, of one tenant or of all."""
        runs = self.by_name.values() if run_id is None else self.find_runs(run_id, tenant)
        positions = [
            (id_, at, run) for run in runs if run.ids[-1] > after for at, id_ in enumerate(run.ids) if id_ > after
        ]
        for _, at, run in sorted(positions, key=itemgetter(0), reverse=newest):
            segment = run.render()[at]
            if tenant in (None, segment.tenant):
                yield from segment.unpack()


class MemoryEventLog:
    """Event log in memory: emitting is an append; numbering, chaining and rendering wait for a reader.

    With `max_events` the oldest finished runs are dropped whole.
    """

    def __init__(self, *, max_events: int | None = None) -> None:
        self.congested = False  # there is no queue
        self.health = WriteHealth()  # nothing is written
        self._max_events = max_events
        self._collect_at = sys.maxsize if max_events is None else max(1, max_events // 4)
        self._lock = threading.Lock()
        self._fresh: list[RunEvent] = []
        self._runs = MemoryRuns(LogKey(secrets.token_bytes(KEY_BYTES)))

    def emit(self, event: RunEvent) -> None:
        self._fresh.append(event)
        if len(self._fresh) >= self._collect_at:
            self.collect_runs()

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        fresh = self._fresh
        fresh.append(RunEvent(code, _now(), call, facts))
        if len(fresh) >= self._collect_at:
            self.collect_runs()

    async def drain(self) -> None:
        """Return at once: there is no queue."""

    async def flush(self) -> None:
        """Return at once: there is nothing to write."""

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        runs = self.collect_runs()
        with self._lock:
            candidates = runs.events(run_id, after, tenant, newest=newest)
            if only is not None and only.caller is not None:
                made = runs.events(run_id, 0, tenant)
                calls = {event.call_id for event in made if event.payload.get(CALLER) == only.caller}
                candidates = (event for event in candidates if event.call_id in calls)
            events = list(
                islice((event for event in candidates if only is None or _matches(event, only)), max(0, limit))
            )
        return events[::-1] if newest else events

    async def runs(
        self,
        *,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
    ) -> list[RunSummary]:
        only = only or RunFilter()
        newest_first = [run.head for run in reversed(self.collect_runs().by_name.values())]
        theirs = [head for head in newest_first if head.root_call and tenant in (None, head.tenant)]
        if before is not None:
            at = next((at for at, head in enumerate(theirs) if head.run_id == before), len(theirs))
            theirs = theirs[at + 1 :]
        if only.caller is not None:
            events = self.collect_runs().events(None, 0, tenant)
            called = {(one.tenant, one.run_id) for one in events if one.payload.get(CALLER) == only.caller}
            theirs = [head for head in theirs if (head.tenant, head.run_id) in called]
        heads = (head for head in theirs if _is_wanted(head, only))
        return [head.summary() for head in islice(heads, max(0, limit))]

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        runs = self.collect_runs().find_runs(run_id, tenant)
        return runs[0].head.summary() if runs else None

    async def adopt_orphans(self) -> list[RunSummary]:
        """Return nothing: there is no other process."""
        return []

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        runs = self.collect_runs().find_runs(run_id, tenant)
        with self._lock:
            return [call for run in runs for call in find_open_calls(run.events())]

    async def verify(self, run_id: str | None = None, *, tenant: str | None = None) -> list[str]:
        """Check the chain of runs; no other process can remove one."""
        runs = self.collect_runs()
        own = [run for (of, _), run in runs.by_name.items() if tenant in (None, of)]
        chains = own if run_id is None else runs.find_runs(run_id, tenant)
        if run_id is not None and not chains:
            return [f"there is no run {run_id!r}"]
        with self._lock:
            return [problem for run in chains for problem in run.find_breaks()]

    def forget(self, who: Principal) -> dict[str, int]:
        """Remove a person's payloads from events and name from runs; return how many of each."""
        runs = list(self.collect_runs().by_name.values())
        with self._lock:
            events = sum(run.forget(who) for run in runs)
            theirs = [run.head for run in runs if (run.head.tenant, run.head.user) == who]
            for head in theirs:
                head.user = FORGOTTEN_USER
        return {"events": events, "runs": len(theirs)}

    def collect_runs(self) -> MemoryRuns:
        """Sort emitted events into their runs, make room, and return the runs."""
        with self._lock:
            batch = self._fresh[:]
            del self._fresh[: len(batch)]
            self._runs.add(batch)
            if self._max_events is not None:
                self._runs.make_room(self._max_events)
        return self._runs


def _matches(event: StoredEvent, only: EventFilter) -> bool:
    if only.codes and event.code not in only.codes:
        return False
    if not _is_within(event.at, only.since, only.until):
        return False
    if only.user is not None and event.user != only.user:
        return False
    return only.tool is None or fnmatchcase(str(event.payload.get("tool_name", "")), only.tool)


def _is_wanted(head: RunHead, only: RunFilter) -> bool:
    return (
        only.user in (None, head.user)
        and only.status in (None, head.status)
        and _is_within(head.started_at, only.since, only.until)
    )


def _is_within(at: float, since: float | None, until: float | None) -> bool:
    return (since is None or at >= since) and (until is None or at <= until)


class MemoryJournal:
    """Intents and results in a dict; the owner is this process, so none is ever orphaned."""

    def __init__(self, owner_id: str) -> None:
        self._owner_id = owner_id
        self.entries: dict[tuple[str, str], JournalEntry] = {}

    async def begin(self, entry: JournalEntry) -> None:
        call = copy_json(dict(entry.call), "journal")
        intent = replace(entry, call=call, owner=self._owner_id, done=False, result=None)
        self.entries[entry.call_id, entry.step] = intent

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


def _behind(items: Sequence[Listed], before: str | None) -> Sequence[Listed]:
    """Return the items behind the one with this id, none where it is not among them; for no id all."""
    if before is None:
        return items
    return items[next((at for at, item in enumerate(items, 1) if item.id == before), len(items)) :]


def _outer_ids(call_id: str) -> Iterator[str]:
    """Yield the ids of the calls that a call is inside of."""
    while call_id := call_id.rpartition(".")[0]:
        yield call_id


class MemoryPendingStore:
    """Pending actions in a dict; a lock makes claims atomic between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.actions: dict[str, PendingAction] = {}
        self._newest: dict[str, str] = {}  # the id of the newest action, by its `same_call`

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        with self._lock:
            waiting = self._waiting(action.same_call, action.created_at) if unless_waiting else None
            if waiting is not None:
                return copy_action(waiting)
            if action.id in self.actions:
                raise StoreError(f"question {action.id!r} is there already; every question needs an id of its own")
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
        self._newest.pop(same_call, None)  # it was answered, or is gone
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
    ) -> Actions:
        theirs = [action for action in reversed(self.actions.values()) if tenant in (None, action.asked_by.tenant)]
        newest_first = _behind(sorted(theirs, key=lambda action: action.created_at, reverse=True), before)
        actions = (
            action
            for action in newest_first
            if user in (None, action.asked_by.user)
            and status in (None, action.status)
            and call_id in (None, action.call_id)
        )
        return [copy_action(action) for action in islice(actions, max(0, limit))]

    async def count_open(self) -> int:
        call_ids = [action.call_id for action in self.actions.values() if action.status == "open"]
        outer = {outer_id for call_id in call_ids for outer_id in _outer_ids(call_id)}
        return sum(call_id not in outer for call_id in call_ids)

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

    async def find(self, principal: Principal, call_id: str) -> KeyRecord | None:
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


class MemoryCancelStore:
    """Cancel requests; one for a target of other tenants only is ignored."""

    def __init__(self, tenants_of: Callable[[str], set[str]], clock: Callable[[], float]) -> None:
        self._tenants_of = tenants_of
        self._clock = clock
        self.wishes: dict[tuple[str, str | None], CancelRequest] = {}

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        owners = self._tenants_of(target_id)
        if tenant is None or not owners or tenant in owners:
            self.wishes[target_id, tenant] = CancelRequest(self._clock(), tenant)

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = set(target_ids)
        requests: dict[str, list[CancelRequest]] = {}
        for (target_id, _), wish in self.wishes.items():
            if target_id in wanted:
                requests.setdefault(target_id, []).append(wish)
        return requests


class MemoryArtifactStore:
    """Artifact contents by hash, references by id."""

    def __init__(self) -> None:
        self.contents: dict[str, bytes] = {}
        self.refs: dict[str, ArtifactRef] = {}

    async def put(self, data: bytes, ref: ArtifactRef) -> ArtifactRef:
        digest = sha256(data).hexdigest()
        stored_ref = replace(ref, id=new_artifact_id(), sha256=digest, size=len(data))
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
    ) -> Refs:
        theirs = [r for r in reversed(self.refs.values()) if tenant in (None, r.tenant) and user in (None, r.user)]
        newest_first = _behind(sorted(theirs, key=lambda ref: ref.created_at, reverse=True), before)
        return list(islice((ref for ref in newest_first if run_id in (None, ref.run_id)), max(0, limit)))


class MemoryStore:
    """Everything that one Toolbox stores, gone with the process.

    With `max_events` the oldest finished runs make room for new events.
    """

    def __init__(self, *, max_events: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.owner_id = f"own_{os.urandom(12).hex()}"
        self._key = LogKey(secrets.token_bytes(KEY_BYTES))
        self.events = MemoryEventLog(max_events=max_events)
        self.journal = MemoryJournal(self.owner_id)
        self.pending = MemoryPendingStore()
        self.keys = MemoryKeyStore(clock)
        self.caller_keys = MemoryCallerKeys()
        self.webhooks = MemoryWebhookStore()
        self.cancels = MemoryCancelStore(self._tenants_of, clock)
        self.artifacts = MemoryArtifactStore()
        self.tokens = MemoryTokenRows(clock)
        self._state_table = MemoryStateTable()
        self.state = SealedStateStore(
            self._state_table, RowSealer(NoSealer()), owner_id=self.owner_id, is_alive=self.owner_id.__eq__
        )

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._key.mac(kind, message)

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
        run_states = runs.by_name
        runs.remove(old)
        alone = {run_id for _, run_id in old} - {run_id for _, run_id in run_states}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or bool(entry.step)  # a step that was cut off is over when its run is

        def is_old(name: tuple[str, str], at: float) -> bool:
            return name in old or (at < cutoff and name not in run_states)

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
        running = {(run.head.tenant, run.head.run_id) for run in all_runs if run.head.status == "running"}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or (bool(entry.step) and _run_of(entry) not in running)

        removed = {
            "tokens": _drop(self.tokens.rows, lambda key, _: key[:2] == who),
            "pending": _drop(actions, lambda _, each: each.asked_by == who and each.status != "claimed"),
            "journal": _drop(entries, lambda _, entry: entry.principal == who and is_over(entry)),
            "keys": _drop(self.keys.records, lambda key, held: key[0] == who and held[0].outcome is not None),
            "caller_keys": _drop(self.caller_keys.keys, lambda _, key: key.principal == who),
            "state": self._state_table.remove(runs=runs, owner=str(who)),
            "artifacts": _drop(
                self.artifacts.refs,
                lambda _, ref: (
                    ref.tenant == who.tenant and (ref.user == who.user or ref.run_id in runs or ref.call_id in calls)
                ),
            ),
        }
        under_way = sum(entry.principal == who for entry in entries.values())
        under_way += sum(action.asked_by == who for action in actions.values())
        for action in list(actions.values()):
            if action.answered_by == str(who):
                actions[action.id] = replace(action, answered_by=FORGOTTEN_USER)
        files = self._drop_unnamed_contents()
        event_counts = self.events.forget(who)
        return {
            **removed,
            "under_way": under_way,
            "files": files,
            **event_counts,
            "tasks": 0,
            "sessions": 0,
            "memory": 0,
        }

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Do nothing: nothing is sealed in memory."""
        return {}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
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

    def knows(self, sealed: bytes) -> bool:
        return True

    def seal(self, data: bytes, *, row: str) -> bytes:
        return data

    def open(self, sealed: bytes, *, row: str) -> bytes:
        return sealed

    def rotate(self) -> None:
        """There is no key."""

    def retire(self) -> None:
        """There is no key."""
