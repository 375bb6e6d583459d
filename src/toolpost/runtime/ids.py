"""Ids for calls, runs and questions: unique across processes, sorted by time of birth, cheap to make."""

from __future__ import annotations

import itertools
import os
import secrets
import time
from weakref import WeakSet


def writable(given: str) -> str:
    """A text, most often an id, that can be kept and shown, whatever somebody took for one."""
    if given.__class__ is str and given.isascii():
        return given
    return str(given).encode("utf-8", "backslashreplace").decode()


class IdMaker:
    """The time, a random mark of the maker and its count; an id is an address, never a right.

    The time stands first, so that people who type an id need only its beginning.
    """

    def __init__(self) -> None:
        self.renew()
        _MAKERS.add(self)

    def renew(self) -> None:
        """Begin anew, from another start."""
        self._mark = secrets.token_hex(4)
        self._count = itertools.count()

    def make(self, prefix: str) -> str:
        """A new id."""
        return f"{prefix}_{self.tick()}"

    def tick(self) -> str:
        """The part of an id behind its prefix; a call and the run that it opens share one."""
        return f"{int(time.time() * 1000):011x}{self._mark}{next(self._count):06x}"


_MAKERS: WeakSet[IdMaker] = WeakSet()


def _renew_all() -> None:
    """A forked child must not make its parent's ids again."""
    for maker in _MAKERS:
        maker.renew()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_all)
