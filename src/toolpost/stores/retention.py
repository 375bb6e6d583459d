"""What retention counts, and which artifacts must go so that the rest fits."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

# What pruning removes, and reports by these names.
PRUNED: tuple[str, ...] = ("runs", "events", "journal", "pending", "keys", "cancels", "state", "artifacts", "files")


class Weighed(NamedTuple):
    """An artifact as far as the quota goes."""

    id: str
    sha256: str
    size: int


def over_quota(oldest_first: Iterable[Weighed], *, spared: frozenset[str] | set[str], max_bytes: int) -> list[str]:
    """The ids to remove: the oldest first, content that is shared counted once; those in `spared` stay."""
    artifacts = list(oldest_first)
    holders = Counter(artifact.sha256 for artifact in artifacts)
    total = sum({artifact.sha256: artifact.size for artifact in artifacts}.values())
    gone: list[str] = []
    for artifact in artifacts:
        if total <= max_bytes:
            break
        if artifact.id in spared:
            continue
        gone.append(artifact.id)
        holders[artifact.sha256] -= 1
        if not holders[artifact.sha256]:
            total -= artifact.size
    return gone
