"""The event log in memory: taken as they come, numbered and chained when someone reads them."""

from __future__ import annotations

import json
from collections import deque
from typing import TYPE_CHECKING

from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.stores.chain import find_breaks
from toolpost.stores.payloads import payload_text
from toolpost.stores.runs import FINISHED, RunHead

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from toolpost.contracts.events import RunEvent, RunSummary
    from toolpost.stores.chain import Fields

_BACKLOG = 20_000  # unread events beyond this are settled, so that the oldest runs can be let go


class MemoryEventLog:
    """Append-only; `max_events` bounds it by forgetting the oldest runs that have finished."""

    def __init__(self, *, max_events: int) -> None:
        self._max_events = max_events
        self._unread: deque[RunEvent] = deque()
        self._rows: dict[str, list[tuple[int, Fields]]] = {}
        self._heads: dict[str, RunHead] = {}
        self._count = 0
        self._last_id = 0
        self.emit = self._unread.append

    @property
    def congested(self) -> bool:
        return len(self._unread) > _BACKLOG

    async def drain(self) -> None:
        self._settle()

    async def flush(self) -> None:
        self._settle()

    async def read(
        self, *, tenant: str | None = None, run_id: str | None = None, after: int = 0, limit: int = 1000
    ) -> list[StoredEvent]:
        self._settle()
        runs = self._rows.values() if run_id is None else [self._rows.get(run_id, [])]
        rows = sorted((row for run in runs for row in run if row[0] > after), key=lambda row: row[0])
        seen = (row for row in rows if tenant is None or row[1][5] == tenant)
        return [_stored(number, row) for (number, row), _ in zip(seen, range(max(0, limit)), strict=False)]

    async def runs(self, *, tenant: str | None = None, limit: int = 50) -> list[RunSummary]:
        self._settle()
        newest = (head for head in reversed(self._heads.values()) if tenant is None or head.tenant == tenant)
        return [head.summary() for head, _ in zip(newest, range(max(0, limit)), strict=False)]

    async def run(self, run_id: str, *, tenant: str | None = None) -> RunSummary | None:
        self._settle()
        head = self._heads.get(run_id)
        return head.summary() if head is not None and tenant in (None, head.tenant) else None

    async def verify(self, run_id: str) -> list[str]:
        self._settle()
        head = self._heads.get(run_id)
        if head is None:
            return [f"there is no run {run_id!r}"]
        return find_breaks((row for _, row in self._rows[run_id]), last_seq=head.seq, last_hash=head.hash)

    def finished(self, *, before: float) -> list[str]:
        """The runs that have ended and were last heard of before a time."""
        self._settle()
        return [head.run_id for head in self._heads.values() if head.status in FINISHED and head.updated_at < before]

    def drop(self, run_ids: Iterable[str]) -> int:
        """Forget whole runs; says how many events that were."""
        gone = sum(len(self._rows.pop(run_id)) for run_id in run_ids if self._heads.pop(run_id, None) is not None)
        self._count -= gone
        return gone

    def _settle(self) -> None:
        while self._unread:
            event = self._unread.popleft()
            call, payload = event.call, payload_text(event)
            head = self._heads.get(call.run_id)
            if head is None:
                head = self._heads[call.run_id] = RunHead.of_first(call, float(event.at))
            self._last_id += 1
            self._count += 1
            self._rows.setdefault(call.run_id, []).append((self._last_id, head.advance(event, call, payload)))
        if self._count > self._max_events:
            self.drop(list(self._surplus()))

    def _surplus(self) -> Iterator[str]:
        """The oldest finished runs, until the rest is within bounds."""
        over = self._count - self._max_events
        for head in self._heads.values():
            if over <= 0:
                return
            if head.status in FINISHED:
                over -= head.seq
                yield head.run_id


def _stored(number: int, row: Fields) -> StoredEvent:
    run_id, seq, code, at, call_id, tenant, payload, digest = row
    return StoredEvent(
        id=number,
        run_id=run_id,
        seq=seq,
        code=EventCode(code),
        at=at,
        call_id=call_id,
        tenant=tenant,
        payload=json.loads(payload),
        hash=digest.hex(),
    )
