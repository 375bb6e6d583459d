"""Ids for calls, runs and questions: unique across processes, sorted by creation time, cheap to make."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from weakref import WeakSet


def writable(given: str) -> str:
    """Return an id, or other text, that can be stored and shown; unpaired surrogates are escaped."""
    if given.__class__ is str and given.isascii():
        return given
    return str(given).encode("utf-8", "backslashreplace").decode()


class IdMaker:
    """Make ids of the time, a random mark of the maker and a count; an id grants no access.

    The time comes first, so that people who type an id need only its beginning.
    """

    def __init__(self) -> None:
        self.renew()
        _MAKERS.add(self)

    def renew(self) -> None:
        """Choose a new mark and restart the count."""
        self._mark = secrets.token_hex(4)
        self._count = itertools.count()

    def make(self, prefix: str) -> str:
        """Return a new id."""
        return f"{prefix}_{self.tick()}"

    def tick(self) -> str:
        """Return an id without prefix; a call and the run that it opens share one."""
        return f"{int(time.time() * 1000):011x}{self._mark}{next(self._count):06x}"


_MAKERS: WeakSet[IdMaker] = WeakSet()


def _renew_all() -> None:
    """Renew all makers in a forked child, which would otherwise repeat the ids of its parent."""
    for maker in _MAKERS:
        maker.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
