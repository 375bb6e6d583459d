"""The store in memory: the same promises as on disk, for as long as the process lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from toolpost.contracts.storage import (
    ArtifactStore,
    CancelStore,
    EventLog,
    Journal,
    KeyStore,
    PendingStore,
    Retention,
)
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.memory_parts import (
    MemoryArtifactStore,
    MemoryCancelStore,
    MemoryJournal,
    MemoryKeyStore,
    MemoryPendingStore,
)
from toolpost.stores.memory_pruning import MemoryPruner
from toolpost.stores.sealing import RowSealer
from toolpost.stores.state import MemoryShelf, SealedStateStore


class MemoryStore:
    """All that one Toolbox remembers, gone with the process.

    With `max_events` the oldest finished runs make room for new events.
    """

    def __init__(self, *, max_events: int | None = None, clock: Callable[[], float] = time.time) -> None:
        self.owner_id = f"own_{os.urandom(12).hex()}"
        log = MemoryEventLog(max_events=max_events)
        journal = MemoryJournal(self.owner_id)
        pending = MemoryPendingStore()
        keys = MemoryKeyStore(clock)
        artifacts = MemoryArtifactStore()

        def tenants_of(target_id: str) -> set[str]:
            return {*_tenants_of_run(log, target_id), *journal.tenants_of(target_id), *pending.tenants_of(target_id)}

        cancels = MemoryCancelStore(tenants_of, clock)
        self._pruner = MemoryPruner(
            log, journal=journal, pending=pending, keys=keys, cancels=cancels, artifacts=artifacts
        )
        self.events: EventLog = log
        self.journal: Journal = journal
        self.pending: PendingStore = pending
        self.keys: KeyStore = keys
        self.cancels: CancelStore = cancels
        self.artifacts: ArtifactStore = artifacts
        self.state = SealedStateStore(MemoryShelf(), RowSealer(NoSealer()))

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return self._pruner.prune(retention, now=now)

    async def close(self) -> None:
        """Nothing to let go of."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _tenants_of_run(log: MemoryEventLog, run_id: str) -> set[str]:
    run = log.absorbed().by_name.get(run_id)
    return {run.standing.tenant} if run else set()


class NoSealer:
    """Leaves bytes as they are; for what never leaves the process."""

    def seal(self, data: bytes, *, row: str) -> bytes:
        return data

    def open(self, sealed: bytes, *, row: str) -> bytes:
        return sealed
