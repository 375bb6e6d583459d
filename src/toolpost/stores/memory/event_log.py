"""The event log in memory."""

from __future__ import annotations

import sys
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from itertools import islice
from operator import itemgetter
from typing import Any, TypeAlias

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.events import (
    CALLER,
    CallRef,
    EventCode,
    EventFilter,
    RunDetails,
    RunEvent,
    RunFilter,
    RunSummary,
    StoredEvent,
)
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import OnProgress, WriteHealth
from toolpost.stores.chain import KEY_BYTES, LogKey, Segment
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.event_rendering import are_ascii, escape_call_ids, escape_surrogates, render_events
from toolpost.stores.retention_rules import FORGOTTEN_USER, mentions
from toolpost.stores.run_details import describe_run, fact_entry
from toolpost.stores.run_heads import FINISHED, RunHead, find_open_calls, find_second_answers

RunName: TypeAlias = tuple[str, str]  # tenant and run id
_REQUESTED = EventCode.TOOL_CALL_REQUESTED
_ENDS = (EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED)  # compared by identity: hashing a member is slow
_ALL: Topic = ()  # the topic of all events; that of a run is its tenant and id
_USUAL = 3  # requested, started, ended: with more events, a run may have started again


class MemoryEventLog:
    """Event log in memory: emitting is an append; numbering, chaining and rendering wait for a reader.

    With `max_events` the oldest finished runs are dropped whole.
    """

    def __init__(self, *, max_events: int | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.wall
        self.congested = False  # events are not queued
        self.health = WriteHealth()  # nothing is written
        self._max_events = max_events
        self._collect_at = sys.maxsize if max_events is None else max(1, max_events // 4)
        self._lock = threading.Lock()
        self._fresh: list[RunEvent] = []
        self._runs = MemoryRuns(LogKey(clock.secret_bytes(KEY_BYTES)))
        self._changes = Changes(self._newest)

    def emit(self, event: RunEvent) -> None:
        self._fresh.append(event)
        if self._changes.waiters:
            self._changes.notify((_ALL, (event.call.tenant, event.call.run_id)))
        if len(self._fresh) >= self._collect_at:
            self.collect_runs()

    def record(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        fresh = self._fresh
        fresh.append(RunEvent(code, self._now(), call, facts))
        if self._changes.waiters:
            self._changes.notify((_ALL, (call.tenant, call.run_id)))
        if len(fresh) >= self._collect_at:
            self.collect_runs()

    async def drain(self) -> None:
        """Return immediately, because events are not queued."""

    async def flush(self) -> None:
        """Return immediately: there is nothing to write."""

    async def read(
        self,
        *,
        tenant: str | None = None,
        run_id: str | None = None,
        after: int = 0,
        before: int | None = None,
        limit: int = 1000,
        only: EventFilter | None = None,
        newest: bool = False,
    ) -> list[StoredEvent]:
        runs = self.collect_runs()
        with self._lock:
            candidates = runs.events(run_id, after, tenant, newest=newest)
            if before is not None:
                candidates = (event for event in candidates if event.id < before)
            if only is not None and only.caller is not None:
                made = runs.events(run_id, 0, tenant)
                calls = {event.call_id for event in made if event.payload.get(CALLER) == only.caller}
                candidates = (event for event in candidates if event.call_id in calls)
            events = list(
                islice((event for event in candidates if only is None or _matches(event, only)), max(0, limit))
            )
        return events[::-1] if newest else events

    async def wait(self, after: int, *, timeout_s: float, run: tuple[str, str] | None = None) -> int:
        topic = _ALL if run is None else run
        newest: int = (await self._changes.wait({topic: after}, timeout_s=timeout_s))[topic]
        return newest

    async def _newest(self, topics: Collection[Topic]) -> dict[Topic, int]:
        runs = self.collect_runs()
        return {topic: runs.newest(topic[1], topic[0]) if topic else runs.last_id for topic in topics}

    async def runs(
        self,
        *,
        tenant: str | None = None,
        before: str | None = None,
        limit: int = 50,
        only: RunFilter | None = None,
    ) -> list[RunSummary]:
        heads = self._list_heads(tenant, only or RunFilter(), before)
        return [head.summary() for head in heads[: max(0, limit)]]

    async def count_runs(self, *, tenant: str | None = None, only: RunFilter | None = None) -> int:
        return len(self._list_heads(tenant, only or RunFilter()))

    def _list_heads(self, tenant: str | None, only: RunFilter, before: str | None = None) -> list[RunHead]:
        """Return the heads of matching runs, newest first."""
        newest_first = [run.head for run in reversed(self.collect_runs().by_name.values())]
        theirs = [head for head in newest_first if head.root_call and tenant in (None, head.tenant)]
        if before is not None:
            at = next((at for at, head in enumerate(theirs) if head.run_id == before), len(theirs))
            theirs = theirs[at + 1 :]
        if only.caller is not None:
            events = self.collect_runs().events(None, 0, tenant)
            called = {(one.tenant, one.run_id) for one in events if one.payload.get(CALLER) == only.caller}
            theirs = [head for head in theirs if (head.tenant, head.run_id) in called]
        return [head for head in theirs if _is_wanted(head, only)]

    async def run_details(self, runs: Sequence[RunSummary]) -> list[RunDetails]:
        return [self._describe(run) for run in runs]

    def _describe(self, run: RunSummary) -> RunDetails:
        found = self.collect_runs()
        with self._lock:
            events = [event for known in found.find_runs(run.run_id, run.tenant) for event in known.events()]
        parent = str(events[0].payload.get("correlation_id", "")) if events else ""
        is_parent = parent != run.run_id and bool(found.find_runs(parent, run.tenant))
        return describe_run(run, map(fact_entry, events), parent_run=parent if is_parent else None)

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        runs = self.collect_runs().find_runs(run_id, tenant)
        return runs[0].head.summary() if runs else None

    async def adopt_orphans(self) -> list[RunSummary]:
        """Return nothing, because no other process uses the store."""
        return []

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        runs = self.collect_runs().find_runs(run_id, tenant)
        with self._lock:
            return [call for run in runs for call in find_open_calls(run.events())]

    async def verify(
        self, run_id: str | None = None, *, tenant: str | None = None, on_progress: OnProgress | None = None
    ) -> list[str]:
        """Check the chain of runs; no other process can remove one."""
        runs = self.collect_runs()
        own = [run for (of, _), run in runs.by_name.items() if tenant in (None, of)]
        chains = own if run_id is None else runs.find_runs(run_id, tenant)
        if run_id is not None and not chains:
            return [f"there is no run {run_id!r}"]
        with self._lock:
            problems = [problem for run in chains for problem in run.find_breaks()]
        if on_progress is not None and run_id is None:
            on_progress(len(chains), len(chains))
        return problems

    def forget(self, who: Principal) -> dict[str, int]:
        """Erase a user from events and runs; return the number of each."""
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


class MemoryRuns:
    """All runs by tenant and id, in the order of their first events."""

    def __init__(self, key: LogKey) -> None:
        self.by_name: dict[RunName, MemoryRun] = {}
        self._key = key
        self.last_id = 0
        self._count = 0

    def add(self, events: Iterable[RunEvent]) -> None:
        """Number events and sort them into their runs."""
        id_, known = self.last_id, None
        ids: list[int] = []
        fresh: list[RunEvent] = []
        for event in events:
            id_ += 1
            if event.call is not known:  # most events of a call are consecutive
                known = event.call
                run = self._find_or_add(known)
                ids, fresh = run.ids, run.fresh
            ids.append(id_)
            fresh.append(event)
        self._count += id_ - self.last_id
        self.last_id = id_

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
        """Return the runs with an ID: of one tenant, or of all."""
        if tenant is not None:
            return [run for run in [self.by_name.get((tenant, run_id))] if run is not None]
        return [run for (_, name), run in self.by_name.items() if name == run_id]

    def newest(self, run_id: str, tenant: str) -> int:
        """Return the id of the newest event of a run; 0 without events."""
        return max((run.ids[-1] for run in self.find_runs(run_id, tenant)), default=0)

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
        self._turned = 0  # number of fresh events in the head

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
            _, _, seq, call_id, user, tool_name, correlation_id, text, chained, *_ = self._chain.append(
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
        """Erase the facts about a user; return the number of events that lost facts."""
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
        problems = self._key.find_breaks(unpacked, start, last_seq=self.head.seq, mac=self._key.end_mac(last))
        return [*problems, *find_second_answers(event for _, events in unpacked for event in events)]


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
        (only.tool is None or fnmatchcase(head.tool_name, only.tool))
        and (only.source is None or head.tool_name.startswith(f"{only.source}."))
        and (only.q is None or any(only.q.lower() in name.lower() for name in (head.run_id, head.tool_name, head.user)))
        and only.user in (None, head.user)
        and only.status in (None, head.status)
        and _is_within(head.started_at, only.since, only.until)
    )


def _is_within(at: float, since: float | None, until: float | None) -> bool:
    return (since is None or at >= since) and (until is None or at <= until)
