"""Limits of callers: requests per minute and open requests, in all processes on the store."""

from __future__ import annotations

import asyncio
import hashlib
from collections import OrderedDict
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.limits import Rate
from toolpost.gateway.problems import Problem
from toolpost.runtime.slots import SharedSlots, WaitingLine

if TYPE_CHECKING:
    from toolpost.contracts.limits import LimitStore
    from toolpost.runtime.concurrency import BackgroundTasks

SIGN_INS_PER_MINUTE = 10
_SIGN_IN_RATE = Rate.per_minute(SIGN_INS_PER_MINUTE)
_ADVANCE_S = 1.0  # a process counts requests in advance for as long, and reports those that were not sent
_MOST_CALLERS = 4096  # in the memory of this process


class CallerLimits:
    """Limits the requests of each caller, and the sign-ins of each address.

    A caller that was idle for a minute can send all requests of a minute at once.
    """

    def __init__(
        self,
        limits: LimitStore,
        background: BackgroundTasks,
        *,
        requests_per_minute: int,
        concurrent_requests: int,
    ) -> None:
        self._limits = limits
        self._line = WaitingLine(limits, background)
        self._rate = Rate.per_minute(requests_per_minute)
        # A request to SQLite for each request costs a busy gateway some hundred µs: it gives up the interpreter lock,
        # and the thread that writes events takes it (measured 2026-11).
        self._advance = max(1, int(_ADVANCE_S / self._rate.interval_s))
        self._most_open = concurrent_requests
        self._callers = OrderedDict[str, _Caller]()

    async def admit(self, caller_id: str) -> SharedSlots:
        """Count a request, and return what its end releases; raise Problem if the caller exceeds a limit."""
        caller = self._find(caller_id)
        wait_s = await self._count(caller)
        if wait_s:
            after = {"Retry-After": str(max(1, round(wait_s)))}
            raise Problem(429, "too_many_requests", "this caller sends too many requests", headers=after)
        if not await caller.open_requests.try_acquire():
            detail = f"this caller has {self._most_open} open requests, including event streams"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": "5"})
        return caller.open_requests

    async def count_sign_in(self, address: str) -> None:
        """Count a sign-in; raise Problem if the address has sent too many."""
        wait_s = await self._limits.take(_limit_name("sign-ins", address), _SIGN_IN_RATE)
        if wait_s:
            detail = f"an address can try to sign in {SIGN_INS_PER_MINUTE} times a minute"
            raise Problem(429, "too_many_requests", detail, headers={"Retry-After": str(max(1, round(wait_s)))})

    def _find(self, caller_id: str) -> _Caller:
        caller = self._callers.get(caller_id)
        if caller is None:
            slots = SharedSlots(_limit_name("open requests", caller_id), self._most_open, self._line)
            caller = self._callers[caller_id] = _Caller(_limit_name("requests", caller_id), slots, _Counted())
            if len(self._callers) > _MOST_CALLERS:
                self._callers.popitem(last=False)
        self._callers.move_to_end(caller_id)
        return caller

    async def _count(self, caller: _Caller) -> float:
        """Count a request; return 0, or the seconds until the caller can send it."""
        counted, now = caller.counted, asyncio.get_running_loop().time()
        if counted.left and now < counted.until:
            counted.left -= 1
            return 0.0
        unsent, counted.left, wait_s = counted.left, 0, 0.0
        for count in dict.fromkeys((self._advance, 1)):
            wait_s = await self._limits.take(caller.requests, self._rate, count=count, returned=unsent)
            if not wait_s:
                counted.left += count - 1
                counted.until = now + _ADVANCE_S
                return 0.0
        counted.left += unsent
        return wait_s


class _Counted:
    """Requests that were counted in advance, and until when they can be sent."""

    __slots__ = ("left", "until")

    def __init__(self) -> None:
        self.left = 0
        self.until = 0.0


class _Caller(NamedTuple):
    requests: str
    open_requests: SharedSlots
    counted: _Counted


def _limit_name(kind: str, who: str) -> str:
    """Return the name of a limit; the store contains neither callers nor addresses."""
    return f"{kind} {hashlib.blake2b(who.encode(), digest_size=16).hexdigest()}"
