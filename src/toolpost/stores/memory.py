"""The store in memory: the same promises as on disk, for as long as the process lives."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import (
    ArtifactStore,
    CancelStore,
    EventLog,
    Journal,
    KeyStore,
    PendingStore,
    Retention,
)
from toolpost.contracts.tokens import TokenRows
from toolpost.stores.memory_forgetting import MemoryForgetter
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.memory_parts import (
    MemoryArtifactStore,
    MemoryCancelStore,
    MemoryJournal,
    MemoryKeyStore,
    MemoryPendingStore,
)
from toolpost.stores.memory_pruning import MemoryPruner
from toolpost.stores.memory_tokens import MemoryTokenRows
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
        tokens = MemoryTokenRows(clock)
        shelf = MemoryShelf()

        def tenants_of(target_id: str) -> set[str]:
            return {*_tenants_of_run(log, target_id), *journal.tenants_of(target_id), *pending.tenants_of(target_id)}

        cancels = MemoryCancelStore(tenants_of, clock)
        self._pruner = MemoryPruner(
            log, journal=journal, pending=pending, keys=keys, cancels=cancels, artifacts=artifacts, shelf=shelf
        )
        self._forgetter = MemoryForgetter(
            log,
            journal=journal,
            pending=pending,
            keys=keys,
            artifacts=artifacts,
            tokens=tokens,
            shelf=shelf,
        )
        self.events: EventLog = log
        self.journal: Journal = journal
        self.pending: PendingStore = pending
        self.keys: KeyStore = keys
        self.cancels: CancelStore = cancels
        self.artifacts: ArtifactStore = artifacts
        self.tokens: TokenRows = tokens
        self.state = SealedStateStore(shelf, RowSealer(NoSealer()))

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        return self._pruner.prune(retention, now=now)

    async def forget(self, principal: Principal) -> dict[str, int]:
        return self._forgetter.forget(principal)

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Nothing is sealed here."""
        return {}

    async def close(self) -> None:
        """Nothing to let go of."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()


def _tenants_of_run(log: MemoryEventLog, run_id: str) -> set[str]:
    return {run.standing.tenant for run in log.absorbed().called(run_id)}


class NoSealer:
    """Leaves bytes as they are; for what never leaves the process."""

    def mark(self) -> bytes:
        return b""

    def seal(self, data: bytes, *, row: str) -> bytes:
        return data

    def open(self, sealed: bytes, *, row: str) -> bytes:
        return sealed

    def rotate(self) -> None:
        """There is no key."""

    def retire(self) -> None:
        """There is no key."""
