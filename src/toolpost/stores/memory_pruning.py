"""Retention in memory: the same rules as on disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeVar

from toolpost.contracts.questions import PendingAction
from toolpost.contracts.storage import ArtifactRef, JournalEntry, Retention
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.memory_parts import (
    MemoryArtifactStore,
    MemoryCancelStore,
    MemoryJournal,
    MemoryKeyStore,
    MemoryPendingStore,
)
from toolpost.stores.retention import PRUNED, Weighed, over_quota
from toolpost.stores.runs import FINISHED
from toolpost.stores.state import MemoryShelf

K = TypeVar("K")
V = TypeVar("V")


class MemoryPruner:
    """Removes whole finished runs, and artifacts past their age or the quota; what is open stays."""

    def __init__(
        self,
        log: MemoryEventLog,
        *,
        journal: MemoryJournal,
        pending: MemoryPendingStore,
        keys: MemoryKeyStore,
        cancels: MemoryCancelStore,
        artifacts: MemoryArtifactStore,
        shelf: MemoryShelf,
    ) -> None:
        self._log = log
        self._journal = journal
        self._pending = pending
        self._keys = keys
        self._cancels = cancels
        self._artifacts = artifacts
        self._shelf = shelf

    def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        """How many of each kind were removed."""
        removed = dict.fromkeys(PRUNED, 0)
        if retention.max_age_s is not None:
            removed.update(self._prune_by_age(now - retention.max_age_s))
        if retention.max_artifact_bytes is not None:
            removed["artifacts"] += self._prune_over_quota(retention.max_artifact_bytes)
        named = {ref.sha256 for ref in self._artifacts.refs.values()}
        removed["files"] = drop(self._artifacts.contents, lambda sha256, _: sha256 not in named)
        return removed

    def _prune_by_age(self, cutoff: float) -> dict[str, int]:
        unsettled = self._unsettled_runs()
        entries = self._journal.entries.values()
        unfinished = {_run_of(entry) for entry in entries if not entry.done and not entry.step}
        runs = self._log.absorbed()
        old = {
            name: run
            for name, run in runs.by_name.items()
            if run.standing.status in FINISHED
            and run.standing.updated_at < cutoff
            and name not in unsettled | unfinished
        }
        calls = {row.call_id for run in old.values() for row in run.render()}
        kept = runs.by_name
        runs.remove(old)
        alone = {run_id for _, run_id in old} - {run_id for _, run_id in kept}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or bool(entry.step)  # a step that was cut off is over when its run is

        def is_old(name: tuple[str, str], at: float) -> bool:
            return name in old or (at < cutoff and name not in kept)

        return {
            "runs": len(old),
            "events": sum(len(run.ids) for run in old.values()),
            "journal": drop(
                self._journal.entries, lambda _, entry: is_over(entry) and is_old(_run_of(entry), entry.at)
            ),
            "pending": drop(
                self._pending.actions,
                lambda _, action: _asked_in(action) not in unsettled and is_old(_asked_in(action), action.created_at),
            ),
            "keys": drop(
                self._keys.records,
                lambda _, held: held[0].call_id in calls or (held[0].outcome is not None and held[1] < cutoff),
            ),
            "state": self._shelf.remove(runs=alone, before=cutoff),
            "cancels": drop(self._cancels.wishes, lambda _, wish: wish.at < cutoff),
            "artifacts": drop(
                self._artifacts.refs,
                lambda _, ref: ref.created_at < cutoff and (ref.tenant, ref.run_id) not in unsettled,
            ),
        }

    def _prune_over_quota(self, max_bytes: int) -> int:
        unsettled = self._unsettled_runs()
        refs = sorted(self._artifacts.refs.values(), key=lambda ref: ref.created_at)
        spared = {ref.id for ref in refs if (ref.tenant, ref.run_id) in unsettled}
        gone = set(over_quota(_weighed(refs), spared=spared, max_bytes=max_bytes))
        return drop(self._artifacts.refs, lambda id_, _: id_ in gone)

    def _unsettled_runs(self) -> set[tuple[str, str]]:
        actions = self._pending.actions.values()
        return {_asked_in(action) for action in actions if action.status in ("open", "claimed")}


def _run_of(entry: JournalEntry) -> tuple[str, str]:
    return entry.principal.tenant, entry.run_id


def _asked_in(action: PendingAction) -> tuple[str, str]:
    return action.asked_by.tenant, action.run_id


def _weighed(refs: Iterable[ArtifactRef]) -> Iterable[Weighed]:
    return (Weighed(ref.id, ref.sha256, ref.size) for ref in refs)


def drop(items: dict[K, V], condition: Callable[[K, V], bool]) -> int:
    """Remove from a dict; how many went."""
    doomed = [key for key, value in items.items() if condition(key, value)]
    for key in doomed:
        del items[key]
    return len(doomed)
