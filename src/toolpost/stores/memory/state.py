"""Planner state in memory."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from toolpost.stores.state import OF_RUNS, StateRecord


class MemoryStateTable:
    """State records in a dict."""

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

    def remove(self, *, runs: Collection[str] = (), owner: str = "", before: float = float("-inf")) -> int:
        """Delete the records of these runs or of this owner, or that expired before a time; return how many."""
        doomed = [
            name
            for name, records in self._records.items()
            if (name[0] in OF_RUNS and name[1] in runs)
            or any((owner and each.owner == owner) or _is_over(each, before) for each in records.values())
        ]
        return sum(len(self._records.pop(name)) for name in doomed)


def _is_over(record: StateRecord, before: float) -> bool:
    return record.until is not None and record.until < before
