"""How many requests each caller may send, counted in a table that the workers of a gateway share."""

from __future__ import annotations

import mmap
import os
import struct
import sys
import time
from contextlib import contextmanager, nullcontext
from functools import partial
from hashlib import blake2b
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Generator
    from contextlib import AbstractContextManager
    from pathlib import Path

_SLOT = struct.Struct("16sdd")  # digest of a caller, requests left, and when that was counted
_SLOTS, _NEAR = 16_384, 8  # a caller has one of the slots near its digest
_SIZE = _SLOTS * _SLOT.size


class Rates:
    """How many requests each caller may send in a minute; a caller that was quiet may send them at once.

    Processes with the same `shared` file count together. Its lock is held for microseconds, and the kernel releases
    that of a process that dies.
    """

    def __init__(
        self, per_minute: int, *, shared: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = float(per_minute)
        self._clock = clock  # the monotonic clock is the same in all processes since the machine was started
        self._descriptor = -1 if shared is None else os.open(shared, os.O_RDWR | os.O_CREAT, 0o600)
        self._lock: Callable[[], AbstractContextManager[None]] = nullcontext
        if shared is not None:
            os.truncate(self._descriptor, _SIZE)
            self._lock = partial(_locked, self._descriptor)
        self._table = mmap.mmap(self._descriptor, _SIZE)

    def close(self) -> None:
        """Close the table."""
        self._table.close()
        if self._descriptor >= 0:
            os.close(self._descriptor)

    def take(self, caller_id: str) -> float:
        """Count a request; return 0, or after how many seconds the caller may send it."""
        digest = blake2b(caller_id.encode(), digest_size=16).digest()
        with self._lock():
            now = self._clock()
            at, left = self._find(digest, now)
            allowed = left >= 1
            _SLOT.pack_into(self._table, at, digest, left - allowed, now)
        return 0.0 if allowed else (1 - left) * 60 / self._most

    def _find(self, digest: bytes, now: float) -> tuple[int, float]:
        """Return the place of a caller in the table, and how many requests it has left."""
        first = int.from_bytes(digest[:4], "big")
        oldest, place = now, first % _SLOTS * _SLOT.size
        for near in range(first, first + _NEAR):
            here = near % _SLOTS * _SLOT.size
            found, left, counted = _SLOT.unpack_from(self._table, here)
            if found == digest:
                return here, min(self._most, left + max(0.0, now - counted) * self._most / 60)
            if counted < oldest:  # one that was never used was counted at 0
                oldest, place = counted, here
        return place, self._most  # a caller that was quiet for a minute has all its requests again


if sys.platform == "win32":

    def _locked(descriptor: int) -> AbstractContextManager[None]:
        raise NotImplementedError("there is one worker on Windows")

else:

    @contextmanager
    def _locked(descriptor: int) -> Generator[None]:
        import fcntl  # noqa: PLC0415 - not on Windows

        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(descriptor, fcntl.LOCK_UN)
