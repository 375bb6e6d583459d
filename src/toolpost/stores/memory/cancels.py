"""Cancel requests in memory."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from toolpost.contracts.storage import CancelRequest
from toolpost.stores.changes import Changes, Topic


class MemoryCancelStore:
    """Cancel requests; one for a target of other tenants only is ignored."""

    def __init__(self, tenants_of: Callable[[str], set[str]], clock: Callable[[], float]) -> None:
        self._tenants_of = tenants_of
        self._clock = clock
        self._count = 0
        self._changes = Changes(self._counts)
        self.wishes: dict[tuple[str, str | None], CancelRequest] = {}

    async def request(self, target_id: str, *, tenant: str | None, by: str) -> None:
        owners = self._tenants_of(target_id)
        if tenant is None or not owners or tenant in owners:
            self.wishes[target_id, tenant] = CancelRequest(self._clock(), tenant)
            self._count += 1
            self._changes.notify(((),))

    async def requested(self, target_ids: Sequence[str]) -> dict[str, list[CancelRequest]]:
        wanted = set(target_ids)
        requests: dict[str, list[CancelRequest]] = {}
        for (target_id, _), wish in self.wishes.items():
            if target_id in wanted:
                requests.setdefault(target_id, []).append(wish)
        return requests

    async def wait(self, after: int, *, timeout_s: float) -> int:
        newest: int = (await self._changes.wait({(): after}, timeout_s=timeout_s))[()]
        return newest

    async def _counts(self, topics: Collection[Topic]) -> dict[Topic, int]:
        return dict.fromkeys(topics, self._count)
