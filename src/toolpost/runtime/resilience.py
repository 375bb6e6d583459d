"""Retries with backoff and a budget, and circuit breakers."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ErrorCategory, StoreError, ToolCircuitOpenError, ToolConnectionError, ToolError
from toolpost.contracts.limits import BreakerStatus, Rate
from toolpost.runtime.concurrency import BackgroundTasks

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.limits import LimitStore
    from toolpost.contracts.retries import RetryPolicy
    from toolpost.contracts.spec import ReplayClass

BreakerState = Literal["closed", "open", "half_open"]
_COUNTED = frozenset({ErrorCategory.RETRYABLE_SERVER, ErrorCategory.NETWORK})


class CircuitBreaker:
    """Circuit breaker of all processes, which opens after `threshold` consecutive failures of a source.

    Those of one process open it immediately. Those of several processes open it once all of them report successes, too.
    401, 403 and 429 are not counted, because they concern one caller. A broken connection of many calls is one failure.
    After `cooldown_s`, one call of one process is admitted as a probe; its end closes or reopens the breaker.

    Failures and successes are recorded in the store, under `key`. The state is a copy, which `apply` updates with the
    reports of other processes, so that a call reads no store. While `failures` is 0, `admit` and `succeeded` need not
    be called. If the store cannot be reached, the failures of this process are counted.
    """

    def __init__(
        self,
        name: str,
        limits: LimitStore,
        *,
        key: str | None = None,
        threshold: int = 5,
        cooldown_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        on_state: Callable[[BreakerState], None] = lambda _state: None,
        background: BackgroundTasks | None = None,
    ) -> None:
        self.name = name
        self.key = key or name
        self.threshold = threshold
        self.cooldown_s = cooldown_s
        self.failures = 0
        self._limits = limits
        self._clock = clock
        self._on_state = on_state
        self._background = background or BackgroundTasks()
        self._streak = 0  # consecutive failures of this process
        self._reports = 0  # failures that are being recorded
        self._incident: object | None = None
        self._opened_at: float | None = None
        self._changed_at = clock()
        self._probes_until = 0.0  # on the clock of this process; the claim in the store ends at about the same time
        self._abandoning: asyncio.Task[None] | None = None

    @property
    def state(self) -> BreakerState:
        """Whether the breaker is closed, open, or ready for a probe."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._clock() - self._opened_at >= self.cooldown_s else "open"

    @property
    def retry_in_s(self) -> float | None:
        """Seconds until the next call is admitted; None if the breaker is closed."""
        if self._opened_at is None:
            return None
        return max(0.0, self._opened_at + self.cooldown_s - self._clock())

    def apply(self, status: BreakerStatus, *, read_at: float, age_s: float = 0.0) -> None:
        """Apply a status that was read from the store, unless this process has changed it since, or is changing it."""
        if read_at >= self._changed_at and not self._reports and not self._is_probing:
            self._set(status, age_s=age_s)

    def reset(self) -> None:
        """Close the breaker without an event: its source was replaced by another."""
        self._set(BreakerStatus(self.key))
        self._background.start(self._close())

    async def admit(self, tool_name: str, *, is_retry: bool = False) -> None:
        """Admit a call, or raise ToolCircuitOpenError; before a retry, read the state of the store."""
        if is_retry:
            await self._refresh()
        left = self.retry_in_s
        if left is None:
            return
        if not left and not self._is_probing:
            if await self._claim_probe():
                return
            await self._refresh()  # another process may have closed it
            if (left := self.retry_in_s) is None:
                return
        wait = f"the next one is admitted in {left:.0f} s" if left > 0 else "a probe is running"
        msg = f"{self.name!r} failed {self.failures} times in a row, so its calls are rejected; {wait}"
        raise ToolCircuitOpenError(msg, tool_name=tool_name, retry_after_s=left)

    async def succeeded(self) -> None:
        """Record a success, which closes the breaker."""
        was_open = self._opened_at is not None
        self._set(BreakerStatus(self.key))
        if await self._close(was_open=was_open):
            self._on_state("closed")

    async def failed(self, error: ToolError) -> None:
        """Record a failure; only server and network errors are counted."""
        if error.category not in _COUNTED:
            if self._is_probing:  # the source responded
                await self.succeeded()
            return
        incident = error.incident if isinstance(error, ToolConnectionError) else None
        if incident is not None and incident is self._incident:
            return
        self._incident = incident
        self._streak += 1
        self._reports += 1
        try:
            status, has_opened = await self._limits.fail(self.key, threshold=self.threshold, streak=self._streak)
        except StoreError:
            status, has_opened = self._count_alone()
        finally:
            self._reports -= 1
        self._set(status)
        if has_opened:
            self._on_state("open")

    def abandoned(self) -> None:
        """Record a call without a result of the source, such as a cancelled one."""
        if self._is_probing:
            self._probes_until = 0.0
            self._abandoning = self._background.start(self._abandon_probe())

    @property
    def _is_probing(self) -> bool:
        return self._clock() < self._probes_until

    def _set(self, status: BreakerStatus, *, age_s: float = 0.0) -> None:
        now = self._changed_at = self._clock()
        self.failures, self._probes_until = status.failures, 0.0
        self._streak = min(self._streak, status.failures)
        self._opened_at = None if status.open_for_s is None else now - status.open_for_s - age_s

    async def _close(self, *, was_open: bool = False) -> bool:
        """Close the breaker in the store; return whether it was open there, or `was_open` without the store."""
        try:
            return await self._limits.succeed(self.key)
        except StoreError:
            return was_open

    def _count_alone(self) -> tuple[BreakerStatus, bool]:
        failures = self.failures + 1
        is_open = self._is_probing or self._streak >= self.threshold
        return BreakerStatus(self.key, failures, 0.0 if is_open else None), is_open and self._opened_at is None

    async def _refresh(self) -> None:
        with suppress(StoreError):
            self._set(await self._limits.read_breaker(self.key))

    async def _claim_probe(self) -> bool:
        self._probes_until = self._clock() + self.cooldown_s  # first: the next call must not claim it, too
        is_mine = False
        try:
            if self._abandoning is not None:
                await asyncio.wait([self._abandoning])
            is_mine = await self._limits.claim_probe(self.key, cooldown_s=self.cooldown_s)
        except StoreError:
            is_mine = True
        finally:
            if not is_mine:
                self._probes_until = 0.0
        return is_mine

    async def _abandon_probe(self) -> None:
        with suppress(StoreError):
            await self._limits.abandon_probe(self.key)


def may_repeat(error: ToolError, replay: ReplayClass, policy: RetryPolicy) -> bool:
    """Return whether a retry could help and is safe.

    An `unsafe` call is retried only if it certainly never reached the server.
    """
    if not error.is_retryable:
        return False
    if error.status_code is not None and error.status_code not in policy.retry_on_status:
        return False
    if replay == "unsafe":
        return isinstance(error, ToolConnectionError) and not error.sent
    return True


def backoff(
    attempts: int, error: ToolError, policy: RetryPolicy, *, chance: Callable[[], float] = random.random
) -> float:
    """Return the seconds to wait after the given number of attempts.

    Exponential with equal jitter: half of the wait is fixed, because full jitter can be near zero while the server is
    overloaded. A Retry-After is the minimum.
    """
    ceiling = min(policy.wait_exponential_max_s, policy.wait_exponential_min_s * 2.0 ** (attempts - 1))
    wait = ceiling / 2 + chance() * ceiling / 2
    retry_after_s = error.retry_after_seconds
    return max(wait, retry_after_s) if retry_after_s is not None else wait


class RetryBudget:
    """Limit retries of all processes to a share of calls, because retries make an outage worse.

    A retry spends one of `capacity`; a successful call of a process that has spent some returns `ratio` of one. One
    comes back every minute, even if the process that has spent it ends. If the store cannot be reached, nothing is
    retried.
    """

    __slots__ = ("_limits", "_name", "_rate", "_ratio", "_returned", "spent")

    def __init__(self, name: str, limits: LimitStore, *, ratio: float = 0.1, capacity: float = 10.0) -> None:
        self._name = f"retries of {name}"
        self._limits = limits
        self._ratio = ratio
        self._rate = Rate(interval_s=60.0, burst=capacity)
        self._returned = 0.0
        self.spent = 0.0  # by this process

    def deposit(self) -> None:
        """Return a share of a retry to the budget after a success; the next retry reports it to the store."""
        share = min(self._ratio, self.spent)
        self.spent -= share
        self._returned += share

    async def withdraw(self) -> bool:
        """Take one retry; return False if the budget is spent."""
        returned = self._returned
        try:
            if await self._limits.take(self._name, self._rate, returned=returned):
                return False
        except StoreError:
            return False
        self._returned -= returned
        self.spent += 1
        return True
