"""How often something may be told: the first at once, then so many a second, so that nothing else is drowned."""

from __future__ import annotations

import time

_BURST = 20
_PER_SECOND = 10.0


class Pace:
    """Counts what is told of one call."""

    __slots__ = ("_allowed", "_since", "left_out")

    def __init__(self) -> None:
        self.left_out = 0
        self._allowed = float(_BURST)
        self._since = time.monotonic()

    def allows(self) -> bool:
        """Whether one more may be told now; one that may not is counted in `left_out`."""
        now = time.monotonic()
        self._allowed = min(float(_BURST), self._allowed + (now - self._since) * _PER_SECOND)
        self._since = now
        if self._allowed < 1:
            self.left_out += 1
            return False
        self._allowed -= 1
        return True
