"""Ids of runs, calls, pending actions, artifacts, keys and tasks: a prefix and 80 random bits."""

from __future__ import annotations

from functools import partial

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock

_BYTES = 10


class IdMaker:
    """Make ids such as `run_3f9ac02b71d4e85c6a1b`. An id identifies a record and grants no access.

    Ids are not ordered. Five random characters identify one of a few thousand records, so users type a prefix. With
    `secure`, they cannot be predicted from others.
    """

    def __init__(self, clock: Clock = SYSTEM_CLOCK, *, secure: bool = False) -> None:
        self._random_bits = partial(_secret_bits, clock) if secure else clock.random_bits

    def make(self, prefix: str) -> str:
        """Return a new id."""
        return f"{prefix}_{self.random_part()}"

    def random_part(self) -> str:
        """Return the random characters of an id; a call and the run that it opens share them."""
        return self._random_bits(8 * _BYTES).to_bytes(_BYTES).hex()


def _secret_bits(clock: Clock, bits: int) -> int:
    return int.from_bytes(clock.secret_bytes(bits // 8))


def writable(given: str) -> str:
    """Return an id, or other text, that can be stored, found and shown; unpaired surrogates and NUL are escaped."""
    if given.__class__ is str and given.isascii() and "\0" not in given:
        return given
    return str(given).encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")
