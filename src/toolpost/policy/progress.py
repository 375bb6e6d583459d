"""Progress of calls, limited in rate: a fast source must not fill the event log."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.context import ToolContext


class ProgressReporter:
    """Report the progress of one call to its context, redacted, shortened and limited in rate.

    A report that follows dropped ones ends with `gap_note`.
    """

    def __init__(
        self,
        context: Callable[[], ToolContext],
        *,
        redact: Callable[[str], str] | None = None,
        max_chars: int | None = None,
        per_second: float = 10.0,
        gap_note: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make_context = context
        self._context: ToolContext | None = None
        self._redact = redact
        self._max_chars = max_chars
        self._gap_note = gap_note
        self._rate = RateLimit(per_second=per_second, clock=clock)

    def report(self, text: str, *, fraction: float | None = None, is_last: bool = False) -> None:
        """Report a text, unless the rate limit drops it; the last report of a call is never dropped."""
        dropped = self._rate.take()
        if dropped is None and not is_last:
            return
        if self._context is None:
            self._context = self._make_context()
        text = (self._redact(text) if self._redact else text)[: self._max_chars]
        self._context.progress(text + self._gap_note if dropped else text, fraction=fraction)


class RateLimit:
    """Token bucket: `burst` reports immediately, then `per_second`."""

    def __init__(
        self, *, burst: int = 20, per_second: float = 10.0, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._burst = self._tokens = float(burst)
        self._per_second = per_second
        self._clock = clock
        self._since = clock()
        self._dropped = 0

    def take(self) -> int | None:
        """Take a token and return how many reports were dropped since the last one; None without a token."""
        now = self._clock()
        self._tokens = min(self._burst, self._tokens + (now - self._since) * self._per_second)
        self._since = now
        if self._tokens < 1:
            self._dropped += 1
            return None
        self._tokens -= 1
        dropped, self._dropped = self._dropped, 0
        return dropped
