"""Rate limits of callers, counted in a table that the workers of a gateway share."""

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

_SLOT = struct.Struct("16sdd")  # digest of a caller, requests left, and time of the last request
_SLOTS, _NEAR = 16_384, 8  # a caller has one of the 8 slots that begin at its digest
_SIZE = _SLOTS * _SLOT.size


class Rates:
    """Limit the requests of each caller per minute; a caller that was idle for a minute can send all of them at once.

    Processes with the same `shared` file count together. Its lock is held for microseconds, and the kernel releases
    the lock of a process that is killed.
    """

    def __init__(
        self, per_minute: int, *, shared: Path | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._most = float(per_minute)
        self._clock = clock  # the monotonic clock is the same in all processes of the machine
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
        """Count a request; return 0 if it is allowed, else the seconds after which the caller can repeat it."""
        digest = blake2b(caller_id.encode(), digest_size=16).digest()
        with self._lock():
            now = self._clock()
            at, left = self._find(digest, now)
            allowed = left >= 1
            _SLOT.pack_into(self._table, at, digest, left - allowed, now)
        return 0.0 if allowed else (1 - left) * 60 / self._most

    def _find(self, digest: bytes, now: float) -> tuple[int, float]:
        """Return the offset of a caller in the table, and the number of its remaining requests."""
        first = int.from_bytes(digest[:4], "big")
        oldest, place = now, first % _SLOTS * _SLOT.size
        for near in range(first, first + _NEAR):
            here = near % _SLOTS * _SLOT.size
            found, left, counted = _SLOT.unpack_from(self._table, here)
            if found == digest:
                return here, min(self._most, left + max(0.0, now - counted) * self._most / 60)
            if counted < oldest:  # 0 for an unused slot
                oldest, place = counted, here
        return place, self._most


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
