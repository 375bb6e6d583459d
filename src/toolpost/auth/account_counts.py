"""Counts of sign-ins: pauses, callbacks, token lookups, and the time until calls resume."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Mapping
from typing import Any

_MOST_TIMES = 10_000


class AccountCounts:
    """Count pauses by service, callbacks by cause, token hits and misses, and the time until calls resume.

    An `OAuthManager` and the nodes and sources that use it share one set.
    """

    def __init__(self) -> None:
        self._pauses: Counter[str] = Counter()
        self._callbacks: Counter[str] = Counter()
        self._hits: Counter[str] = Counter()
        self._misses: Counter[str] = Counter()
        self._resumes = 0
        self._resumed_s: deque[float] = deque(maxlen=_MOST_TIMES)

    def paused(self, provider: str) -> None:
        """Count a call that paused for consent."""
        self._pauses[provider] += 1

    def callback(self, cause: str = "success") -> None:
        """Count a callback; `cause` is the error code of one that failed."""
        self._callbacks[cause] += 1

    def hit(self, provider: str) -> None:
        """Count a call that found a token."""
        self._hits[provider] += 1

    def missed(self, provider: str) -> None:
        """Count a call that found no token."""
        self._misses[provider] += 1

    def resumed(self, after_s: float) -> None:
        """Record how long a call waited before it resumed."""
        self._resumes += 1
        self._resumed_s.append(after_s)

    def dump(self) -> dict[str, Any]:
        """Return the raw counts as plain data, for `add` in another process."""
        tallies = {name: dict(tally) for name, tally in self._tallies().items()}
        return {**tallies, "resumes": self._resumes, "resumed_s": list(self._resumed_s)}

    def add(self, counted: Mapping[str, Any]) -> None:
        """Add the counts of another set, as returned by `dump`."""
        for name, tally in self._tallies().items():
            tally.update(counted[name])
        self._resumes += counted["resumes"]
        self._resumed_s.extend(counted["resumed_s"])

    def _tallies(self) -> dict[str, Counter[str]]:
        return {
            "pauses": self._pauses,
            "callbacks": self._callbacks,
            "token_hits": self._hits,
            "token_misses": self._misses,
        }

    def snapshot(self) -> dict[str, Any]:
        """Return all counts as plain data; times in seconds."""
        lookups = sum(self._hits.values()) + sum(self._misses.values())
        return {
            **{name: dict(tally) for name, tally in self._tallies().items()},
            "resumes": self._resumes,
            "token_hit_rate": sum(self._hits.values()) / lookups if lookups else None,
            "time_to_resume_s": {f"p{share}": _quantile(self._resumed_s, share / 100) for share in (50, 95, 99)},
        }


def _quantile(values: Collection[float], share: float) -> float | None:
    if not values:
        return None
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
