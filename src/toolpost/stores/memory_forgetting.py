"""Forgetting a person in memory: the same rules as on disk."""

from __future__ import annotations

from dataclasses import replace

from toolpost.contracts.principal import Principal
from toolpost.stores.forgetting import FORGOTTEN_USER
from toolpost.stores.memory_log import MemoryEventLog
from toolpost.stores.memory_parts import MemoryArtifactStore, MemoryJournal, MemoryKeyStore, MemoryPendingStore
from toolpost.stores.memory_pruning import drop
from toolpost.stores.memory_tokens import MemoryTokenRows
from toolpost.stores.state import MemoryShelf


class MemoryForgetter:
    """Removes what is kept of a person; what is under way is counted and left to end."""

    def __init__(
        self,
        log: MemoryEventLog,
        *,
        journal: MemoryJournal,
        pending: MemoryPendingStore,
        keys: MemoryKeyStore,
        artifacts: MemoryArtifactStore,
        tokens: MemoryTokenRows,
        shelf: MemoryShelf,
    ) -> None:
        self._log = log
        self._journal = journal
        self._pending = pending
        self._keys = keys
        self._artifacts = artifacts
        self._tokens = tokens
        self._shelf = shelf

    def forget(self, who: Principal) -> dict[str, int]:
        """How many of each kind were removed, and how much is under way."""
        runs, calls = self._runs_of(who), self._calls_of(who)
        entries, actions, refs = self._journal.entries, self._pending.actions, self._artifacts.refs
        removed = {
            "tokens": drop(self._tokens.rows, lambda key, _: key[:2] == who),
            "pending": drop(actions, lambda _, each: each.asked_by == who and each.status != "claimed"),
            "journal": drop(entries, lambda _, entry: entry.principal == who and entry.done),
            "keys": drop(self._keys.records, lambda key, held: key[0] == who and held[0].outcome is not None),
            "state": self._shelf.remove(runs=runs, owner=str(who)),
            "artifacts": drop(
                refs, lambda _, ref: ref.tenant == who.tenant and (ref.run_id in runs or ref.call_id in calls)
            ),
        }
        named = {ref.sha256 for ref in refs.values()}
        running = sum(entry.principal == who for entry in entries.values())
        answered = sum(action.asked_by == who for action in actions.values())
        self._forget_answers(who)
        return {
            **removed,
            "under_way": running + answered,
            "files": drop(self._artifacts.contents, lambda sha256, _: sha256 not in named),
            **self._log.forget(who),
        }

    def _runs_of(self, who: Principal) -> set[str]:
        heads = [run.standing for run in self._log.absorbed().by_name.values()]
        return {head.run_id for head in heads if (head.tenant, head.user) == who}

    def _calls_of(self, who: Principal) -> set[str]:
        rows = [row for run in self._log.absorbed().by_name.values() for row in run.render()]
        return {row.call_id for row in rows if (row.tenant, row.user) == who}

    def _forget_answers(self, who: Principal) -> None:
        for action in list(self._pending.actions.values()):
            if action.answered_by == str(who):
                self._pending.actions[action.id] = replace(action, answered_by=FORGOTTEN_USER)
