"""Metrics of calls and questions in memory."""

from __future__ import annotations

from collections.abc import Callable

from toolpost.contracts.metrics import HOUR_S, Dimension, MetricRow
from toolpost.stores.memory.event_log import MemoryEventLog
from toolpost.stores.metric_counting import COUNTED, CountedFacts, MetricCounter, RowKey, is_old_minute


class MemoryMetricStore:
    """Metrics of calls and questions."""

    def __init__(self, events: MemoryEventLog, asked_at: Callable[[str], float | None]) -> None:
        self.rows: dict[RowKey, MetricRow] = {}
        self._events = events
        self._asked_at = asked_at
        self._position = 0

    async def count(self, *, limit: int = 500) -> int:
        events = await self._events.read(after=self._position, limit=limit)
        counter = MetricCounter(self._asked_at)
        for event in events:
            if int(event.code) in COUNTED:
                shown = event.payload
                facts = CountedFacts(**{name: shown.get(name) for name in CountedFacts.__struct_fields__})
                call = (event.tenant, event.user, str(shown.get("tool_name", "")))
                counter.count(call, int(event.code), event.at, facts)
        for name, row in counter.rows().items():
            self.rows[name] = self.rows[name].merge(row) if name in self.rows else row
        if events:
            self._position = events[-1].id
        return len(events)

    async def read(
        self,
        dimension: Dimension,
        *,
        tenant: str | None,
        width: int,
        since: float,
        until: float,
        key: str | None = None,
    ) -> list[MetricRow]:
        found = (
            row
            for row in self.rows.values()
            if (row.dimension, row.width) == (dimension, width)
            and tenant in (None, row.tenant)
            and since <= row.begin < until
            and key in (None, row.key)
        )
        return sorted(found, key=lambda row: (row.begin, row.key))

    async def begin(self, *, tenant: str) -> int | None:
        hours = [row.begin for row in self.rows.values() if (row.tenant, row.width) == (tenant, HOUR_S)]
        return min(hours, default=None)

    async def uncounted_since(self) -> float | None:
        """Return the time of the first event that is not counted yet."""
        events = await self._events.read(after=self._position, limit=1)
        return events[0].at if events else None

    def prune(self, *, cutoff: float, now: float) -> int:
        """Delete rows of minutes after some days, and rows before the cutoff; return the number of rows."""
        gone = [name for name, row in self.rows.items() if is_old_minute(name, now) or row.begin < cutoff]
        for name in gone:
            del self.rows[name]
        return len(gone)

    def forget(self, tenant: str, user: str) -> None:
        """Delete the rows of a user; the user's calls stay in the other rows, which name no user."""
        for name in [name for name in self.rows if name[:3] == (tenant, "user", user)]:
            del self.rows[name]
