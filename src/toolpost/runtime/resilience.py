"""Retries with backoff and a budget, and circuit breakers."""

from __future__ import annotations

import random
import time
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ErrorCategory, ToolCircuitOpenError, ToolConnectionError, ToolError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.retries import RetryPolicy
    from toolpost.contracts.spec import ReplayClass

BreakerState = Literal["closed", "open", "half_open"]
_COUNTED = frozenset({ErrorCategory.RETRYABLE_SERVER, ErrorCategory.NETWORK})


class CircuitBreaker:
    """Circuit breaker that opens after `threshold` consecutive failures of a source.

    401, 403 and 429 are not counted, because they concern one caller. A broken connection of many calls is one failure.
    After `cooldown_s`, one call is admitted as a probe; its end closes or reopens the breaker. While `failures` is 0,
    `admit` and `succeeded` need not be called.
    """

    def __init__(
        self,
        name: str,
        *,
        threshold: int = 5,
        cooldown_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        on_state: Callable[[BreakerState], None] = lambda _state: None,
    ) -> None:
        self.name = name
        self.threshold = threshold
        self.cooldown_s = cooldown_s
        self._clock = clock
        self._on_state = on_state
        self.failures = 0
        self._incident: object | None = None
        self._opened_at: float | None = None
        self._probing = False

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

    def admit(self, tool_name: str) -> None:
        """Admit a call, or raise ToolCircuitOpenError."""
        if self._opened_at is None:
            return
        left = self._opened_at + self.cooldown_s - self._clock()
        if left <= 0 and not self._probing:
            self._probing = True
            return
        wait = f"the next one is admitted in {left:.0f} s" if left > 0 else "a probe is running"
        msg = f"{self.name!r} failed {self.failures} times in a row, so its calls are rejected; {wait}"
        raise ToolCircuitOpenError(msg, tool_name=tool_name, retry_after_s=max(left, 0.0))

    def succeeded(self) -> None:
        """Record a success, which closes the breaker."""
        was_open = self._opened_at is not None
        self.failures, self._opened_at, self._probing = 0, None, False
        if was_open:
            self._on_state("closed")

    def failed(self, error: ToolError) -> None:
        """Record a failure; only server and network errors are counted."""
        if error.category not in _COUNTED:
            if self._probing:  # the source responded
                self.succeeded()
            return
        incident = error.incident if isinstance(error, ToolConnectionError) else None
        if incident is not None and incident is self._incident:
            return
        self._incident = incident
        self.failures += 1
        if self._probing or self.failures >= self.threshold:
            newly = self._opened_at is None
            self._opened_at, self._probing = self._clock(), False
            if newly:
                self._on_state("open")

    def abandoned(self) -> None:
        """Record a call without a result of the source, such as a cancelled one."""
        self._probing = False


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
    """Limit retries to a share of calls, because retries make an outage worse.

    A retry spends one of `capacity`; a successful call returns `ratio` of one.
    """

    __slots__ = ("_capacity", "_ratio", "spent")

    def __init__(self, *, ratio: float = 0.1, capacity: float = 10.0) -> None:
        self._ratio = ratio
        self._capacity = capacity
        self.spent = 0.0

    def deposit(self) -> None:
        """Return a share of a retry to the budget after a success."""
        self.spent = max(0.0, self.spent - self._ratio)

    def withdraw(self) -> bool:
        """Take one retry; return False if the budget is spent."""
        if self.spent + 1 > self._capacity:
            return False
        self.spent += 1
        return True
