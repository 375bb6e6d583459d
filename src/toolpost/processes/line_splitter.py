"""Split byte streams into lines, for pipes, commands and HTTP streams."""

from __future__ import annotations

from collections.abc import Callable

EDGE_BYTES = 512
"""The number of bytes that are kept of the beginning and of the end of a line over the limit."""


class LineSplitter:
    """Collect chunks of bytes and return complete lines without their endings.

    Lines end with LF; with `universal` also with CR or CRLF, even if a chunk ends between the two. A line of more than
    `limit` bytes is not kept: `replace_long` builds its replacement from its first and last bytes and its size.
    """

    __slots__ = ("_after_cr", "_head", "_limit", "_parts", "_replace_long", "_tail", "_universal", "pending_bytes")

    def __init__(
        self,
        limit: float = float("inf"),
        *,
        replace_long: Callable[[bytes, bytes, int], bytes] | None = None,
        universal: bool = False,
    ) -> None:
        self.pending_bytes = 0
        self._limit = limit
        self._replace_long = replace_long
        self._universal = universal
        self._after_cr = False
        self._parts: list[bytes] = []
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Add a chunk and return the lines that it completes."""
        lines = (self._with_line_feeds(chunk) if self._universal else chunk).split(b"\n")
        pending = lines.pop()
        if lines:
            lines[0] = self._complete(lines[0])
            if len(chunk) > self._limit:  # only then another line can be too long
                lines[1:] = map(self._complete, lines[1:])
        self._add(pending)
        return lines

    def take_rest(self) -> bytes:
        """Remove and return the incomplete last line."""
        size, parts = self.pending_bytes, self._parts
        self.pending_bytes, self._parts = 0, []
        if size <= self._limit:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        head, tail, self._head, self._tail = self._head, self._tail, b"", b""
        return b"" if self._replace_long is None else self._replace_long(head, tail, size)

    def _complete(self, last_part: bytes) -> bytes:
        self._add(last_part)
        return self.take_rest()

    def _with_line_feeds(self, chunk: bytes) -> bytes:
        if self._after_cr and chunk:
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        self._after_cr = self._after_cr or chunk.endswith(b"\r")
        return chunk.replace(b"\r\n", b"\n").replace(b"\r", b"\n")

    def _add(self, part: bytes) -> None:
        self.pending_bytes += len(part)
        if self.pending_bytes <= self._limit:
            self._parts.append(part)
            return
        if self._parts:
            start = b"".join(self._parts)
            self._head, self._tail = start[:EDGE_BYTES], start[-EDGE_BYTES:]
            self._parts.clear()
        self._head = self._head or part[:EDGE_BYTES]
        self._tail = (self._tail + part)[-EDGE_BYTES:]
