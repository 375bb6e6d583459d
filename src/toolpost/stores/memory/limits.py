"""Rates, slots, breakers and gates of the store in memory."""

from __future__ import annotations

import asyncio
from collections import Counter, OrderedDict
from collections.abc import Callable

from toolpost.contracts.limits import BreakerStatus, GateStatus, Rate, Troubles
from toolpost.stores.breaker_rules import BreakerRecord

_MOST_BUCKETS = 16_384  # the least recently used is removed first; it is full again, or close to it
_MOST_BREAKERS = 4096
_ROUNDING_S = 1e-9


class MemoryLimits:
    """Rates, slots, breakers and gates in memory."""

    is_shared = False

    def __init__(self, owner_id: str, clock: Callable[[], float]) -> None:
        self._owner = owner_id
        self._now = clock
        self._full_at = OrderedDict[str, float]()
        self._held = Counter[str]()
        self._breakers: dict[str, BreakerRecord] = {}
        self._gates: dict[str, float] = {}

    async def take(self, bucket: str, rate: Rate, *, count: int = 1, returned: float = 0.0) -> float:
        now = self._now()
        full_at = max(now, self._full_at.get(bucket, now) - returned * rate.interval_s) + count * rate.interval_s
        wait_s = full_at - now - rate.burst * rate.interval_s
        if wait_s > _ROUNDING_S:
            return wait_s
        self._full_at[bucket] = full_at
        self._full_at.move_to_end(bucket)
        if len(self._full_at) > _MOST_BUCKETS:
            self._full_at.popitem(last=False)
        return 0.0

    async def enter(self, slots: str, limit: int, *, waiting: int = 0) -> bool:
        if self._held[slots] >= limit:
            return False
        self._held[slots] += 1
        return True

    def leave(self, slots: str) -> None:
        self._held[slots] -= 1
        if not self._held[slots]:
            del self._held[slots]

    async def slot_freed(self, *, timeout_s: float) -> None:
        await asyncio.sleep(timeout_s)  # there are no other processes

    trouble_reported = slot_freed

    async def read_breaker(self, breaker: str) -> BreakerStatus:
        return self._breakers.get(breaker, BreakerRecord()).status(breaker, now=self._now())

    async def fail(self, breaker: str, *, threshold: int, streak: int) -> tuple[BreakerStatus, bool]:
        now, before = self._now(), self._breakers.pop(breaker, BreakerRecord())
        after = self._breakers[breaker] = before.failed(
            self._owner, threshold=threshold, streak=streak, settle_s=0.0, now=now
        )
        if len(self._breakers) > _MOST_BREAKERS:
            del self._breakers[next(iter(self._breakers))]
        return after.status(breaker, now=now), before.opened_at is None and after.opened_at is not None

    async def succeed(self, breaker: str) -> bool:
        return self._breakers.pop(breaker, BreakerRecord()).opened_at is not None

    async def claim_probe(self, breaker: str, *, cooldown_s: float) -> bool:
        before = self._breakers.get(breaker, BreakerRecord())
        after = before.probed(self._owner, cooldown_s=cooldown_s, now=self._now())
        if after is None:
            return False
        self._breakers[breaker] = after
        return True

    async def abandon_probe(self, breaker: str) -> None:
        if breaker in self._breakers:
            self._breakers[breaker] = self._breakers[breaker].without_probe(self._owner)

    async def close_gate(self, gate: str, *, wait_s: float) -> None:
        now = self._now()
        self._gates = {name: until for name, until in self._gates.items() if until > now}
        self._gates[gate] = max(self._gates.get(gate, 0.0), now + wait_s)

    async def read_troubles(self, *, within_s: float | None = None) -> Troubles:
        now = self._now()
        breakers = [record.status(name, now=now) for name, record in self._breakers.items()]
        gates = [GateStatus(name, until - now) for name, until in self._gates.items() if until > now]
        return Troubles(tuple(breakers), tuple(gates))
