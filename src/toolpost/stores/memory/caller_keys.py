"""Keys of the gateway's callers, in memory."""

from __future__ import annotations

from typing import TypeAlias

from toolpost.contracts.callers import CallerKey

Keys: TypeAlias = list[CallerKey]  # The store's own `list` hides the builtin one.


class MemoryCallerKeys:
    """Keys of callers for as long as the process lives."""

    def __init__(self) -> None:
        self.keys: dict[str, CallerKey] = {}

    async def add(self, key: CallerKey) -> None:
        self.keys[key.id] = key

    async def find(self, key_id: str) -> CallerKey | None:
        return self.keys.get(key_id)

    async def list(self, *, tenant: str | None = None) -> Keys:
        keys = [key for key in self.keys.values() if tenant is None or key.principal.tenant == tenant]
        return sorted(keys, key=lambda key: (key.created_at, key.id))

    async def remove(self, key_id: str, *, tenant: str) -> bool:
        key = self.keys.get(key_id)
        if key is None or key.principal.tenant != tenant:
            return False
        del self.keys[key_id]
        return True
