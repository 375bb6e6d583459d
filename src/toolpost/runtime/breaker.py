"""The circuit breaker: after repeated failures of a source, its calls are refused until a probe succeeds."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ErrorCategory, ToolCircuitOpenError, ToolConnectionError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.errors import ToolError

BreakerState = Literal["closed", "open", "half_open"]
_COUNTED = frozenset({ErrorCategory.RETRYABLE_SERVER, ErrorCategory.NETWORK})


class CircuitBreaker:
    """Opens after `threshold` consecutive failures that speak of the source's health.

    401, 403 and 429 do not: they speak of one caller. A connection that broke under many
    calls is one failure. After `cooldown_s` one call is
    let through as a probe; its end closes or reopens the breaker. While `failures` is
    0 neither `admit` nor `succeeded` has anything to do.
    """

    __slots__ = (
        "_clock",
        "_incident",
        "_opened_at",
        "_probing",
        "_tell",
        "cooldown_s",
        "failures",
        "name",
        "threshold",
    )

    def __init__(
        self,
        name: str,
        *,
        threshold: int = 5,
        cooldown_s: float = 30.0,
        clock: Callable[[], float] = time.monotonic,
        tell: Callable[[BreakerState], None] = lambda _state: None,
    ) -> None:
        self.name = name
        self.threshold = threshold
        self.cooldown_s = cooldown_s
        self._clock = clock
        self._tell = tell
        self.failures = 0
        self._incident: object | None = None
        self._opened_at: float | None = None
        self._probing = False

    @property
    def state(self) -> BreakerState:
        """Where the breaker stands."""
        if self._opened_at is None:
            return "closed"
        return "half_open" if self._clock() - self._opened_at >= self.cooldown_s else "open"

    def admit(self, tool_name: str) -> None:
        """Let a call through, or raise ToolCircuitOpenError."""
        if self._opened_at is None:
            return
        left = self._opened_at + self.cooldown_s - self._clock()
        if left <= 0 and not self._probing:
            self._probing = True
            return
        wait = f"try again in {left:.0f} s" if left > 0 else "a probe is under way"
        msg = f"{self.name!r} failed {self.failures} times in a row, so its calls are held back; {wait}"
        raise ToolCircuitOpenError(msg, tool_name=tool_name, retry_after_s=max(left, 0.0))

    def succeeded(self) -> None:
        """A call ended well."""
        was_open = self._opened_at is not None
        self.failures, self._opened_at, self._probing = 0, None, False
        if was_open:
            self._tell("closed")

    def failed(self, error: ToolError) -> None:
        """A call ended badly; only failures of the source's health count."""
        if error.category not in _COUNTED:
            if self._probing:  # the source answered, so it lives
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
                self._tell("open")

    def abandoned(self) -> None:
        """A call ended without telling anything of the source, as when it was cancelled."""
        self._probing = False
