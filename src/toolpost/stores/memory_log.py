"""The event log in memory: emitting is an append; numbering, chaining and rendering wait until someone reads."""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator
from itertools import islice

from toolpost.contracts.events import RunEvent, RunSummary, StoredEvent
from toolpost.stores.chain import Fields, find_breaks, stored_event
from toolpost.stores.payloads import payload_text
from toolpost.stores.runs import FINISHED, RunHead, storable_call


class MemoryRun:
    """One run: how it stands, its events as they came, and those that were rendered."""

    __slots__ = ("chain", "fresh", "ids", "rows", "standing")

    def __init__(self, event: RunEvent) -> None:
        call = storable_call(event.call)
        self.standing = RunHead.of_first(call, float(event.at))
        self.chain = RunHead.of_first(call, float(event.at))
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
            self.rows.append(self.chain.advance(event, storable_call(event.call), payload_text(event)))
        self.fresh.clear()
        return self.rows


class MemoryEventLog:
    """As long as the process; with `max_events` the oldest finished runs go first, whole."""

    def __init__(self, *, max_events: int | None = None) -> None:
        self._max_events = max_events
        self._absorb_at = None if max_events is None else max(1, max_events // 4)
        self._lock = threading.Lock()
        self._fresh: list[RunEvent] = []
        self._runs: dict[str, MemoryRun] = {}
        self._by_id: dict[int, MemoryRun] = {}
        self._last_id = 0

    def emit(self, event: RunEvent) -> None:
        self._fresh.append(event)
        if self._absorb_at is not None and len(self._fresh) >= self._absorb_at:
            self._absorb()

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
        self._absorb()
        with self._lock:
            events = (self._event(id_) for id_ in self._ids(run_id, after))
            meant = (event for event in events if tenant in (None, event.tenant))
            return list(islice(meant, max(0, limit)))

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        self._absorb()
        heads = [run.standing for run in reversed(self._runs.values()) if tenant in (None, run.standing.tenant)]
        return [head.summary() for head in heads[: max(0, limit)]]

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        self._absorb()
        run = self._runs.get(run_id)
        return run.standing.summary() if run and tenant in (None, run.standing.tenant) else None

    async def verify(self, run_id: str) -> list[str]:
        self._absorb()
        run = self._runs.get(run_id)
        if run is None:
            return [f"there is no run {run_id!r}"]
        with self._lock:
            return find_breaks(run.render(), last_seq=run.chain.seq, last_hash=run.chain.hash)

    def run_ids(self) -> set[str]:
        """The runs that there are."""
        self._absorb()
        return set(self._runs)

    def tenants_of(self, run_id: str) -> set[str]:
        """Whose run it is."""
        self._absorb()
        run = self._runs.get(run_id)
        return {run.standing.tenant} if run else set()

    def finished_before(self, cutoff: float) -> list[MemoryRun]:
        """The finished runs that have not moved since."""
        self._absorb()
        heads = [run.standing for run in self._runs.values()]
        return [self._runs[head.run_id] for head in heads if head.status in FINISHED and head.updated_at < cutoff]

    def remove(self, runs: Iterable[MemoryRun]) -> None:
        """Forget whole runs."""
        for run in runs:
            del self._runs[run.standing.run_id]
            for id_ in run.ids:
                del self._by_id[id_]

    def _ids(self, run_id: str | None, after: int) -> Iterator[int]:
        if run_id is None:
            first = max(after + 1, next(iter(self._by_id), 1))
            return (id_ for id_ in range(first, self._last_id + 1) if id_ in self._by_id)
        run = self._runs.get(run_id)
        return iter(run.ids[bisect_right(run.ids, after) :] if run else ())

    def _event(self, id_: int) -> StoredEvent:
        run = self._by_id[id_]
        return stored_event(id_, run.render()[bisect_left(run.ids, id_)])

    def _absorb(self) -> None:
        """Sort what was emitted into runs, and make room."""
        with self._lock:
            batch = self._fresh[:]
            del self._fresh[: len(batch)]
            for event in batch:
                self._last_id += 1
                run_id = storable_call(event.call).run_id
                run = self._by_id[self._last_id] = self._runs.get(run_id) or MemoryRun(event)
                self._runs[run_id] = run
                run.add(self._last_id, event)
            self._make_room()

    def _make_room(self) -> None:
        if self._max_events is None or len(self._by_id) <= self._max_events:
            return
        for run in list(self._runs.values()):
            if len(self._by_id) <= self._max_events:
                break
            if run.standing.status in FINISHED:
                self.remove([run])
