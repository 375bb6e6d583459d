"""Rules of pruning and erasing that all stores follow."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from toolpost.contracts.principal import Principal

FORGOTTEN_USER = ""
# The kinds of records that pruning removes and counts.
PRUNED: tuple[str, ...] = (
    "runs",
    "events",
    "journal",
    "pending",
    "keys",
    "cancels",
    "state",
    "jobs",
    "artifacts",
    "files",
    "metrics",
)


class ArtifactSize(NamedTuple):
    """The size of an artifact and the hash of its content."""

    id: str
    sha256: str
    size: int


def over_quota(oldest_first: Iterable[ArtifactSize], *, spared: frozenset[str] | set[str], max_bytes: int) -> list[str]:
    """Return the ids to remove, oldest first, until the rest fits; shared content counts once, `spared` ids stay."""
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


def mentions(payload: str, principal: Principal) -> bool:
    """Return whether a payload names a user, and not a user with a longer name."""
    written = {str(principal), json.dumps(str(principal))[1:-1]}
    return any(re.search(rf"(?<![\w.@:-]){re.escape(name)}(?![\w.@:-]*[\w@])", payload) for name in written)
