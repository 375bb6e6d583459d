"""Suggest the known name that a misspelled one probably means."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

_LONGEST = 128  # comparing is quadratic, and a longer name is no slip of the keyboard


def nearest(name: str, known: Iterable[str], *, cutoff: float = 0.6) -> str | None:
    """Return the known name closest to `name`; None when none is close, or `name` is too long to compare."""
    if len(name) > _LONGEST:
        return None
    return next(iter(get_close_matches(name, list(known), n=1, cutoff=cutoff)), None)


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return `did you mean 'x'?` for the known name closest to `name`, or an empty string."""
    near = nearest(name, known)
    return f"did you mean {near!r}?" if near else ""
