"""The event log in memory: emitting is an append; numbering, chaining and rendering wait until someone reads."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from itertools import islice
from operator import itemgetter

from toolpost.contracts.events import EventCode, RunEvent, RunSummary, StoredEvent
from toolpost.stores.chain import Fields, find_breaks, stored_event
from toolpost.stores.payloads import payload_text
from toolpost.stores.runs import FINISHED, RunHead, storable, storable_call

_REQUESTED = EventCode.TOOL_CALL_REQUESTED
_ENDS = (EventCode.TOOL_CALL_COMPLETED, EventCode.TOOL_CALL_FAILED)  # compared by identity: hashing a member is slow
_USUAL = 3  # requested, started, ended: in more events a run may have begun anew


class MemoryRun:
    """One run: its events as they came, until they are rendered; how it stands is worked out for who asks."""

    __slots__ = ("_chain", "_rows", "_standing", "_turned", "fresh", "ids")

    def __init__(self) -> None:
        self.ids: list[int] = []
        self.fresh: list[RunEvent] = []
        self._rows: list[Fields] = []
        self._chain: RunHead | None = None
        self._standing: RunHead | None = None
        self._turned = 0  # so many of the fresh ones are in the standing

    @property
    def is_finished(self) -> bool:
        """Whether it came to its end; nearly every run shows that by its first and its last event."""
        if self._standing is None and len(self.fresh) <= _USUAL:
            first, last = self.fresh[0], self.fresh[-1]
            if first.code is _REQUESTED and first.call is last.call:
                return last.code in _ENDS
        return self.standing.status in FINISHED

    @property
    def standing(self) -> RunHead:
        """The run as its last event left it."""
        head = self._standing or RunHead.of_first(storable_call(self.fresh[0].call), float(self.fresh[0].at))
        for event in self.fresh[self._turned :]:
            head.seq, head.updated_at = head.seq + 1, float(event.at)
            head.turn(int(event.code), storable_call(event.call).call_id)
        self._standing, self._turned = head, len(self.fresh)
        return head

    def render(self) -> list[Fields]:
        """All events, chained."""
        _ = self.standing  # afterwards there are only rows
        for event in self.fresh:
            call = storable_call(event.call)
            self._chain = self._chain or RunHead.of_first(call, event.at)
            self._rows.append(self._chain.advance(event, call, payload_text(event)))
        self.fresh.clear()
        self._turned = 0
        return self._rows

    def breaks(self) -> list[str]:
        """What is wrong with the chain."""
        rows = self.render()
        return find_breaks(rows, last_seq=self.standing.seq, last_hash=self._chain.hash if self._chain else b"")


class MemoryRuns:
    """All runs, by name and in the order in which they began."""

    def __init__(self) -> None:
        self.by_name: dict[str, MemoryRun] = {}
        self._last_id = 0
        self._count = 0

    def add(self, events: Iterable[RunEvent]) -> None:
        """Give events their ids and their runs."""
        by_name, id_ = self.by_name, self._last_id
        for event in events:
            id_ += 1
            run_id = event.call.run_id
            if not run_id.isascii():
                run_id = storable(run_id)
            run = by_name.get(run_id)
            if run is None:
                run = by_name[run_id] = MemoryRun()
            run.ids.append(id_)
            run.fresh.append(event)
        self._count += id_ - self._last_id
        self._last_id = id_

    def remove(self, names: Iterable[str]) -> None:
        """Forget whole runs."""
        for name in names:
            self._count -= len(self.by_name.pop(name).ids)

    def make_room(self, max_events: int) -> None:
        """Forget the oldest finished runs until the rest fits."""
        surplus = self._count - max_events
        doomed: list[str] = []
        for name, run in self.by_name.items() if surplus > 0 else ():
            if surplus <= 0:
                break
            if run.is_finished:
                doomed.append(name)
                surplus -= len(run.ids)
        self.remove(doomed)

    def events(self, run_id: str | None, after: int, tenant: str | None) -> Iterator[StoredEvent]:
        """The events with an id above `after`, of one run or of all, of one tenant or of all."""
        runs = self.by_name.values() if run_id is None else filter(None, [self.by_name.get(run_id)])
        meant = [(id_, at, run) for run in runs if run.ids[-1] > after for at, id_ in enumerate(run.ids) if id_ > after]
        for id_, at, run in sorted(meant, key=itemgetter(0)):
            row = run.render()[at]
            if tenant in (None, row[5]):
                yield stored_event(id_, row)


class MemoryEventLog:
    """As long as the process; with `max_events` the oldest finished runs go first, whole."""

    def __init__(self, *, max_events: int | None = None) -> None:
        self._max_events = max_events
        self._absorb_at = None if max_events is None else max(1, max_events // 4)
        self._lock = threading.Lock()
        self._fresh: list[RunEvent] = []
        self._runs = MemoryRuns()

    def emit(self, event: RunEvent) -> None:
        self._fresh.append(event)
        if self._absorb_at is not None and len(self._fresh) >= self._absorb_at:
            self.absorbed()

    @property
    def congested(self) -> bool:
        return False

    async def drain(self) -> None:
        """There is always room."""

    async def flush(self) -> None:
        """Memory is as durable as it gets."""

    async def read(
        self, *, tenant: str | None = None, run_id: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        runs = self.absorbed()
        with self._lock:
            return list(islice(runs.events(run_id, after, tenant), max(0, limit)))

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        newest_first = [run.standing for run in reversed(self.absorbed().by_name.values())]
        meant = (head for head in newest_first if head.root_call and tenant in (None, head.tenant))
        return [head.summary() for head in islice(meant, max(0, limit))]

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        run = self.absorbed().by_name.get(run_id)
        return run.standing.summary() if run and tenant in (None, run.standing.tenant) else None

    async def adopt_orphans(self) -> list[RunSummary]:
        """There is no other process."""
        return []

    async def verify(self, run_id: str) -> list[str]:
        run = self.absorbed().by_name.get(run_id)
        if run is None:
            return [f"there is no run {run_id!r}"]
        with self._lock:
            return run.breaks()

    def absorbed(self) -> MemoryRuns:
        """The runs, once what was emitted is sorted into them and there is room."""
        with self._lock:
            batch = self._fresh[:]
            del self._fresh[: len(batch)]
            self._runs.add(batch)
            if self._max_events is not None:
                self._runs.make_room(self._max_events)
        return self._runs
