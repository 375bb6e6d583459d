"""Whether and when a failed call is tried again."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.config import RetryPolicy
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.spec import ReplayClass


def may_repeat(error: ToolError, replay: ReplayClass, policy: RetryPolicy) -> bool:
    """Whether repeating could help and does no harm.

    An `unsafe` call is repeated only when it certainly never reached the other side.
    """
    if not error.is_retryable:
        return False
    if error.status_code is not None and error.status_code not in policy.retry_on_status:
        return False
    if replay == "unsafe":
        return isinstance(error, ToolConnectionError) and not error.sent
    return True


def backoff(tries: int, error: ToolError, policy: RetryPolicy, *, chance: Callable[[], float] = random.random) -> float:
    """Seconds to wait after the given number of tries.

    Exponential with equal jitter: half is waited for certain, because full jitter can
    come out near zero just when the other side asks for air. A Retry-After is the least.
    """
    ceiling = min(policy.wait_exponential_max_s, policy.wait_exponential_min_s * 2.0 ** (tries - 1))
    wait = ceiling / 2 + chance() * ceiling / 2
    asked = error.retry_after_seconds
    return max(wait, asked) if asked is not None else wait


class RetryBudget:
    """Retries as a share of calls, so that an outage is not made worse by everyone repeating.

    A retry spends one of `capacity`; a call that ends well gives `ratio` of one back.
    """

    __slots__ = ("_capacity", "_ratio", "spent")

    def __init__(self, *, ratio: float = 0.1, capacity: float = 10.0) -> None:
        self._ratio = ratio
        self._capacity = capacity
        self.spent = 0.0

    def deposit(self) -> None:
        """A call ended well."""
        self.spent = max(0.0, self.spent - self._ratio)

    def withdraw(self) -> bool:
        """Take one retry out, if the budget allows it."""
        if self.spent + 1 > self._capacity:
            return False
        self.spent += 1
        return True
