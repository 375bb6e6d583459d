"""Counts of sign-ins, for those who watch how they go."""

from __future__ import annotations

from collections import Counter, deque
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection

_MOST_TIMES = 10_000


class AccountCounts:
    """Pauses by service, callbacks by cause, and how often a token was there when it was wanted."""

    def __init__(self) -> None:
        self._pauses: Counter[str] = Counter()
        self._callbacks: Counter[str] = Counter()
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()
        self._resumed_s: deque[float] = deque(maxlen=_MOST_TIMES)

    def paused(self, provider: str) -> None:
        """A person was asked."""
        self._pauses[provider] += 1

    def callback(self, cause: str = "success") -> None:
        """A browser came back; `cause` is the code of what was wrong."""
        self._callbacks[cause] += 1

    def hit(self, provider: str) -> None:
        """A token was there."""
        self._hits[provider] += 1

    def missed(self, provider: str) -> None:
        """No token was there."""
        self._misses[provider] += 1

    def resumed(self, after_s: float) -> None:
        """A paused call went on."""
        self._resumed_s.append(after_s)

    def snapshot(self) -> dict[str, Any]:
        """All of it as plain data; times in seconds."""
        asked = sum(self._hits.values()) + sum(self._misses.values())
        return {
            "pauses": dict(self._pauses),
            "callbacks": dict(self._callbacks),
            "token_hits": dict(self._hits),
            "token_misses": dict(self._misses),
            "token_hit_rate": sum(self._hits.values()) / asked if asked else None,
            "time_to_resume_s": {f"p{share}": _quantile(self._resumed_s, share / 100) for share in (50, 95, 99)},
        }


def _quantile(values: Collection[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
