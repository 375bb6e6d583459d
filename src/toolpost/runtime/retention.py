"""Prune and erase the data of a Toolbox: the records of its store and of its agents."""

from __future__ import annotations

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import AgentRecords, Retention, Store

_NO_AGENTS = {"tasks": 0, "sessions": 0, "memory": 0, "under_way": 0}


class StoredData:
    """The store of a Toolbox and the records of its agents, pruned and erased together.

    Every backend stores the records of agents elsewhere: see `toolpost.stores.local_files`. Without a data folder
    there are none.
    """

    def __init__(
        self,
        store: Store,
        agents: AgentRecords | None,
        retention: Retention,
        clock: Clock = SYSTEM_CLOCK,
        *,
        has_objects: bool = False,
    ) -> None:
        self._store = store
        self._agents = agents
        self._retention = retention
        self._now = clock.wall
        self._has_objects = has_objects

    @property
    def is_pruned_first(self) -> bool:
        """Whether a Toolbox prunes when it opens: with limits, or with object storage (interrupted uploads)."""
        return self._retention != Retention() or self._has_objects

    async def prune(self) -> dict[str, int]:
        """Delete records beyond their retention and contents without an artifact; return how many of each kind."""
        now = self._now()
        removed = {**await self._store.prune(self._retention, now=now), "tasks": 0, "sessions": 0}
        if self._agents is None or self._retention.max_age_s is None:
            return removed
        return {**removed, **await self._agents.prune(now - self._retention.max_age_s)}

    async def forget(self, principal: Principal) -> dict[str, int]:
        """Erase a user: return how many records of each kind were removed, and how many are still in use."""
        agents = _NO_AGENTS if self._agents is None else await self._agents.forget(principal)
        rows = await self._store.forget(principal)
        return {**rows, **agents, "under_way": rows["under_way"] + agents["under_way"]}
