"""The event log in memory: emitting is an append; numbering, chaining and rendering wait until someone reads."""

from __future__ import annotations

import secrets
import threading
from collections.abc import Iterable, Iterator
from fnmatch import fnmatchcase
from itertools import islice
from operator import itemgetter
from typing import TypeAlias

from toolpost.contracts.events import EventCode, EventFilter, RunEvent, RunSummary, StoredEvent
from toolpost.contracts.principal import Principal
from toolpost.stores.chain import (
    FINISHED,
    KEY_BYTES,
    EventRow,
    LogKey,
    RunHead,
    escape_call_ids,
    escape_surrogates,
    find_open_calls,
    payload_text,
    stored_event,
)
from toolpost.stores.event_log import find_second_answers
from toolpost.stores.retention import FORGOTTEN_USER, mentions

RunName: TypeAlias = tuple[str, str]  # tenant and run id

_REQUESTED = EventCode.TOOL_CALL_REQUESTED
_ENDS = (EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED)  # compared by identity: hashing a member is slow
_USUAL = 3  # requested, started, ended: in more events a run may have begun anew


class MemoryRun:
    """One run: its raw events until they are rendered; its head is computed on demand."""

    __slots__ = ("_chain", "_head", "_key", "_rows", "_turned", "fresh", "ids")

    def __init__(self, key: LogKey) -> None:
        self.ids: list[int] = []
        self.fresh: list[RunEvent] = []
        self._key = key
        self._rows: list[EventRow] = []
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

    def render(self) -> list[EventRow]:
        """Number, chain and render the new events; return all rows."""
        _ = self.head  # afterwards there are only rows
        for id_, event in zip(self.ids[len(self._rows) :], self.fresh, strict=True):
            call = escape_call_ids(event.call)
            self._chain = self._chain or RunHead.of_first(call, event.at)
            self._rows.append(self._chain.advance(event, call, payload_text(event), id=id_, key=self._key))
        self.fresh.clear()
        self._turned = 0
        return self._rows

    def forget(self, who: Principal) -> int:
        """Remove the payloads of a person's events, and of those that name the person; return how many."""
        rows, forgotten = self.render(), 0
        for at, row in enumerate(rows):
            mine = (row.tenant, row.user) == who
            if mine or (row.forgotten is None and mentions(row.payload, who)):
                rows[at] = self._key.forget(row, user=FORGOTTEN_USER if mine else row.user)
                forgotten += 1
        return forgotten

    def find_breaks(self) -> list[str]:
        """Return the problems of the chain."""
        rows, last = self.render(), self._chain.hash if self._chain else b""
        return [*self._key.find_breaks(rows, last_seq=self.head.seq, last_hash=last), *find_second_answers(rows)]


class MemoryRuns:
    """All runs by tenant and id, in the order of their first events."""

    def __init__(self, key: LogKey) -> None:
        self.by_name: dict[RunName, MemoryRun] = {}
        self._key = key
        self._last_id = 0
        self._count = 0

    def add(self, events: Iterable[RunEvent]) -> None:
        """Number events and sort them into their runs."""
        by_name, id_ = self.by_name, self._last_id
        for event in events:
            id_ += 1
            call = event.call
            name = (call.tenant, call.run_id)
            run = by_name.get(name)
            if run is None:
                name = (escape_surrogates(call.tenant), escape_surrogates(call.run_id))
                run = by_name.get(name)
            if run is None:
                run = by_name[name] = MemoryRun(self._key)
            run.ids.append(id_)
            run.fresh.append(event)
        self._count += id_ - self._last_id
        self._last_id = id_

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
        meant = [(id_, at, run) for run in runs if run.ids[-1] > after for at, id_ in enumerate(run.ids) if id_ > after]
        for _, at, run in sorted(meant, key=itemgetter(0), reverse=newest):
            row = run.render()[at]
            if tenant in (None, row.tenant):
                yield stored_event(row)


class MemoryEventLog:
    """Event log in memory: emitting is an append; numbering, chaining and rendering wait for a reader.

    With `max_events` the oldest finished runs are dropped whole.
    """

    def __init__(self, *, max_events: int | None = None) -> None:
        self._max_events = max_events
        self._collect_at = None if max_events is None else max(1, max_events // 4)
        self._lock = threading.Lock()
        self._fresh: list[RunEvent] = []
        self._runs = MemoryRuns(LogKey(secrets.token_bytes(KEY_BYTES)))

    def emit(self, event: RunEvent) -> None:
        self._fresh.append(event)
        if self._collect_at is not None and len(self._fresh) >= self._collect_at:
            self.collect_runs()

    @property
    def congested(self) -> bool:
        return False

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
            meant = runs.events(run_id, after, tenant, newest=newest)
            found = list(islice((event for event in meant if only is None or _matches(event, only)), max(0, limit)))
        return found[::-1] if newest else found

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        newest_first = [run.head for run in reversed(self.collect_runs().by_name.values())]
        meant = (head for head in newest_first if head.root_call and tenant in (None, head.tenant))
        return [head.summary() for head in islice(meant, max(0, limit))]

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        found = self.collect_runs().find_runs(run_id, tenant)
        return found[0].head.summary() if found else None

    async def adopt_orphans(self) -> list[RunSummary]:
        """Return nothing: there is no other process."""
        return []

    async def open_calls(self, run_id: str, *, tenant: str) -> list[RunSummary]:
        runs = self.collect_runs().find_runs(run_id, tenant)
        with self._lock:
            return [call for run in runs for call in find_open_calls(run.render())]

    async def verify(self, run_id: str | None = None, *, tenant: str | None = None) -> list[str]:
        """Check the chain of runs; no other process can remove one."""
        runs = self.collect_runs()
        meant = list(runs.by_name.values()) if run_id is None else runs.find_runs(run_id, tenant)
        if run_id is not None and not meant:
            return [f"there is no run {run_id!r}"]
        with self._lock:
            return [problem for run in meant for problem in run.find_breaks()]

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
    if only.since is not None and event.at < only.since:
        return False
    return only.tool is None or fnmatchcase(str(event.payload.get("tool_name", "")), only.tool)
