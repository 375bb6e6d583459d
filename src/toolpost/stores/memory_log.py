"""The event log in memory: emitting is an append; numbering, chaining and rendering wait until someone reads."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from toolpost.contracts.events import CallRef, RunEvent, RunSummary, StoredEvent
from toolpost.stores.chain import Fields, find_breaks, stored_event
from toolpost.stores.payloads import payload_text
from toolpost.stores.runs import FINISHED, RunHead, storable_call


class MemoryRun:
    """One run: how it stands, its events as they came, and those that were rendered."""

    __slots__ = ("chain", "fresh", "ids", "rows", "standing")

    def __init__(self, call: CallRef, at: float) -> None:
        self.standing = RunHead.of_first(call, at)
        self.chain: RunHead | None = None
        self.ids: list[int] = []
        self.fresh: list[RunEvent] = []
        self.rows: list[Fields] = []

    def add(self, id: int, event: RunEvent) -> None:
        """Take one more event, as it is."""
        self.ids.append(id)
        self.fresh.append(event)
        self.standing.seq += 1
        self.standing.updated_at = float(event.at)
        self.standing.turn(int(event.code), event.call.call_id)

    def render(self) -> list[Fields]:
        """All events, chained."""
        for event in self.fresh:
            call = storable_call(event.call)
            self.chain = self.chain or RunHead.of_first(call, event.at)
            self.rows.append(self.chain.advance(event, call, payload_text(event)))
        self.fresh.clear()
        return self.rows

    def breaks(self) -> list[str]:
        """What is wrong with the chain."""
        rows = self.render()
        return find_breaks(rows, last_seq=self.standing.seq, last_hash=self.chain.hash if self.chain else b"")


class MemoryRuns:
    """All runs, and which of them has which event."""

    def __init__(self) -> None:
        self.by_name: dict[str, MemoryRun] = {}
        self._by_id: dict[int, MemoryRun] = {}
        self._last_id = 0

    def add(self, event: RunEvent) -> None:
        """Give an event its id and its run."""
        self._last_id += 1
        call = storable_call(event.call)
        run = self.by_name.get(call.run_id)
        if run is None:
            run = self.by_name[call.run_id] = MemoryRun(call, float(event.at))
        self._by_id[self._last_id] = run
        run.add(self._last_id, event)

    def remove(self, runs: Iterable[MemoryRun]) -> None:
        """Forget whole runs."""
        for run in runs:
            del self.by_name[run.standing.run_id]
            for id_ in run.ids:
                del self._by_id[id_]

    def make_room(self, max_events: int) -> None:
        """Forget the oldest finished runs until the rest fits."""
        surplus = len(self._by_id) - max_events
        doomed: list[MemoryRun] = []
        for run in self.by_name.values() if surplus > 0 else ():
            if surplus <= 0:
                break
            if run.standing.status in FINISHED:
                doomed.append(run)
                surplus -= len(run.ids)
        self.remove(doomed)

    def events(self, run_id: str | None, after: int) -> Iterator[StoredEvent]:
        """The events with an id above `after`, of one run or of all."""
        for id_ in self._ids(run_id, after):
            run = self._by_id[id_]
            yield stored_event(id_, run.render()[bisect_left(run.ids, id_)])

    def _ids(self, run_id: str | None, after: int) -> Iterator[int]:
        if run_id is None:
            first = max(after + 1, next(iter(self._by_id), 1))
            return (id_ for id_ in range(first, self._last_id + 1) if id_ in self._by_id)
        run = self.by_name.get(run_id)
        return iter(run.ids[bisect_right(run.ids, after) :] if run else ())


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
            meant = (event for event in runs.events(run_id, after) if tenant in (None, event.tenant))
            return list(islice(meant, max(0, limit)))

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        newest_first = [run.standing for run in reversed(self.absorbed().by_name.values())]
        meant = (head for head in newest_first if tenant in (None, head.tenant))
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
            for event in batch:
                self._runs.add(event)
            if self._max_events is not None:
                self._runs.make_room(self._max_events)
        return self._runs
