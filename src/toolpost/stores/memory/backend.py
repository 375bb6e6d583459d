"""The backend `memory`."""

from __future__ import annotations

from collections.abc import Iterator

from toolpost.contracts.storage import IdKind, Store
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.registry import StoreCheck, StoreOptions


class MemoryBackend:
    """Opens stores in memory; the oldest finished runs make room for new events."""

    async def open(self, options: StoreOptions) -> Store:
        return MemoryStore(max_events=options.event_queue)

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        return []

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        yield StoreCheck("note", "in memory: everything is lost at the end")
