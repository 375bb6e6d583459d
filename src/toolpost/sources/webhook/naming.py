"""The names of workflows as names of tools: legal, readable, and each of one tool only."""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Sequence

_OTHERS = re.compile(r"[^a-z0-9]+")
_LONGEST = 200
_HASH_CHARS = 6


class Named(NamedTuple):
    """What a name can be made of."""

    workflow: str
    workflow_id: str
    node: str
    path: str
    method: str


def slug(text: str) -> str:
    """Small letters, digits and underscores; letters lose their accents, and what has no such form is left out."""
    plain = unicodedata.normalize("NFKD", text[:_LONGEST].casefold()).encode("ascii", "ignore").decode().lower()
    return _OTHERS.sub("_", plain).strip("_")


def names_of(found: Sequence[Named]) -> list[str]:
    """A name for each, in order.

    All that would share a name get their paths behind it, then their methods, so that
    no newcomer takes over a name that calls already go to.
    """
    names = [slug(one.workflow) or f"workflow_{slug(one.workflow_id)}".rstrip("_") for one in found]
    for suffix in (_path, _method, _digest):
        counts = Counter(names)
        names = [f"{name}_{suffix(one)}" if counts[name] > 1 else name for name, one in zip(names, found, strict=True)]
    return names


def _path(one: Named) -> str:
    return slug(one.path) or "root"


def _method(one: Named) -> str:
    return one.method.lower()


def _digest(one: Named) -> str:
    told = "\0".join(one).encode("utf-8", "surrogatepass")
    return hashlib.sha256(told).hexdigest()[:_HASH_CHARS]
