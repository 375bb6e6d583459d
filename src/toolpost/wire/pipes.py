"""The streams of a child process: stdin and stdout for whoever talks to it, and the tail of its stderr."""

from __future__ import annotations

import asyncio
from asyncio.subprocess import SubprocessStreamProtocol

_STDERR = 2


class Pipes(SubprocessStreamProtocol):
    """asyncio's streams, but stderr is always drained, so that it neither blocks the child nor grows."""

    def __init__(self, *, stderr_bytes: int, line_limit: int) -> None:
        super().__init__(limit=line_limit, loop=asyncio.get_running_loop())
        self.exited = asyncio.Event()
        self.closed = asyncio.Event()
        self._stderr_bytes = stderr_bytes
        self._tail = bytearray()

    @property
    def stderr_tail(self) -> str:
        """The last of what the child wrote to stderr."""
        start = max(0, len(self._tail) - self._stderr_bytes)
        return self._tail[start:].decode("utf-8", "replace")

    def pipe_data_received(self, fd: int, data: bytes | str) -> None:
        """Keep the tail of stderr; the rest goes to the streams."""
        if fd != _STDERR or isinstance(data, str):
            super().pipe_data_received(fd, data)
            return
        self._tail += data
        if len(self._tail) > 2 * self._stderr_bytes:
            del self._tail[: len(self._tail) - self._stderr_bytes]

    def process_exited(self) -> None:
        """Note that the child has ended, whoever may still hold its pipes."""
        super().process_exited()
        self.exited.set()

    def connection_lost(self, exc: Exception | None) -> None:
        """Note that every pipe is closed."""
        super().connection_lost(exc)
        self.closed.set()
