"""Pipes of child processes: read their output, and pass input as a file."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable

CHUNK = 64 * 1024
_MOST_READS = 64


class OutputPipe:
    """A pipe for the output of a program, read as data arrives."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._own, self.theirs = os.pipe()
        self._keep = keep
        self._loop: asyncio.AbstractEventLoop | None = None
        os.set_blocking(self._own, False)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        loop.add_reader(self._own, self._read)

    def drain(self) -> None:
        """Read the rest, without waiting for a process elsewhere that holds the other end and writes endlessly."""
        for _ in range(_MOST_READS):
            if not self._read():
                return

    def close(self) -> None:
        if self._own < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._own)
        os.close(self._own)
        self._own = -1

    def _read(self) -> bool:
        """Read once; return whether there was data."""
        if self._own < 0:
            return False
        try:
            data = os.read(self._own, CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._keep(data)
        return True


class OutputTail:
    """The last `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: len(self._data) - self._limit]

    @property
    def text(self) -> str:
        """The tail as text; invalid UTF-8 is replaced."""
        return self._data[max(0, len(self._data) - self._limit) :].decode("utf-8", "replace")


def input_file(data: bytes) -> int:
    """Return a descriptor to read these bytes from; unlike a pipe, it needs no writer while the program reads."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("stdin")
    else:
        from tempfile import TemporaryFile  # noqa: PLC0415 - Linux never needs it

        with TemporaryFile() as temporary:
            descriptor = os.dup(temporary.fileno())
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
