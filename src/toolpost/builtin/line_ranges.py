"""Ranges of lines of large files, read by blocks."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from toolpost.builtin.text_encoding import Encoding

_BLOCK = 256 << 10  # fits the processor's cache, where counting is fastest
_NEWLINE = b"\n"
_SAMPLE = 4096
_LONG_LINE = 64
# Bytes that are read after the requested lines only to count lines.
_COUNTED_AFTER = 256 << 20


class LineRange(NamedTuple):
    """The bytes of some lines; `total` is None if counting all lines would take too long.

    `cut` means that the last line is too long to be returned whole. `end` is the next line, None at the end of the
    file.
    """

    data: bytes
    total: int | None
    end: int | None
    cut: bool = False


class LineRequest(NamedTuple):
    """The lines to read: from `first`, at most `lines` of them and at most `room` bytes."""

    first: int
    lines: int
    room: int


def read_lines(file: FileIO, size: int, request: LineRequest, *, check_cancelled: Callable[[], None]) -> LineRange:
    """Read lines that end with the byte 10; `check_cancelled` is called before each block and may raise."""
    begin, skipped = _find_line(file, size, request.first, check_cancelled)
    if begin is None:
        return LineRange(b"", skipped, None)
    data, lines, cut = _take(_read(file, min(request.room + 1, size - begin), begin), request)
    after = begin + len(data)
    end = request.first + lines
    if cut:
        line_end = _line_end(file, size, after, check_cancelled)
        if line_end is None:
            return LineRange(data, None, end, cut)
        after = line_end
    total = _count_rest(file, size, after, check_cancelled)
    total = None if total is None else total + end
    return LineRange(data, total, end if after < size else None, cut)


def read_decoded_lines(
    file: FileIO, size: int, request: LineRequest, encoding: Encoding, *, check_cancelled: Callable[[], None]
) -> LineRange:
    """Read lines of an encoding that uses the byte 10 in other characters; the data are UTF-8.

    The whole file is decoded, block by block.
    """
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    collector, at = _LineCollector(request), len(encoding.mark)
    while at < size:
        check_cancelled()
        block = _read(file, min(_BLOCK, size - at), at)
        if not block:
            break
        at += len(block)
        collector.add(decoder.decode(block, final=at >= size))
    return collector.result()


class _LineCollector:
    """Counts lines of text that arrives in pieces, and keeps the requested ones."""

    def __init__(self, request: LineRequest) -> None:
        self._request = request
        self._line = 0
        self._open = False
        self._parts: list[str] = []
        self._bytes = 0
        self._full = False

    def add(self, text: str) -> None:
        for part in _by_newline(text):
            self._add_part(part)

    def _add_part(self, part: str) -> None:
        request = self._request
        if request.first <= self._line < request.first + request.lines and not self._full:
            self._parts.append(part)
            self._bytes += len(part.encode("utf-8", "surrogatepass"))
            self._full = self._bytes > request.room
        self._open = not part.endswith("\n")
        self._line += not self._open

    def result(self) -> LineRange:
        total = self._line + self._open
        data = "".join(self._parts).encode("utf-8", "surrogatepass")
        taken, lines, cut = _take(data, self._request)
        end = self._request.first + lines
        return LineRange(taken, total, end if end < total else None, cut)


def _by_newline(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _take(data: bytes, request: LineRequest) -> tuple[bytes, int, bool]:
    """Take as many whole lines as fit; if none fits, a piece of the first."""
    at = lines = 0
    while lines < request.lines and at < len(data):
        next_at = data.find(_NEWLINE, at) + 1
        next_at = next_at or len(data)
        if next_at > request.room:
            break
        at, lines = next_at, lines + 1
    if lines or not data:
        return data[:at], lines, False
    return data[: request.room], 1, True


def _find_line(file: FileIO, size: int, line: int, check_cancelled: Callable[[], None]) -> tuple[int | None, int]:
    """Find the start of a line; None and the number of lines if there are fewer."""
    if line == 0 and size:
        return 0, 0
    at, lines, last = 0, 0, _NEWLINE[0]
    while at < size:
        check_cancelled()
        block = _read(file, _BLOCK, at)
        if not block:
            break
        count = _newlines(block)
        if lines + count >= line:
            begin = at + _after_newlines(block, line - lines)
            return (begin, line) if begin < size else (None, line)
        at, lines, last = at + len(block), lines + count, block[-1]
    return None, lines + (last != _NEWLINE[0])


def _newlines(block: bytes) -> int:
    """Count newlines; `count` reads every byte, while `replace` jumps from newline to newline."""
    if block.count(_NEWLINE, 0, _SAMPLE) * _LONG_LINE > _SAMPLE:
        return block.count(_NEWLINE)
    return len(block) - len(block.replace(_NEWLINE, b""))


def _after_newlines(buffer: bytes, count: int) -> int:
    """Return the position after `count` newlines, which must exist."""
    low, before = 0, 0
    step = len(buffer) // 2
    while step > 4096:  # bisect, because counting is faster than searching single newlines
        inside = buffer.count(_NEWLINE, low, low + step)
        if before + inside < count:
            low, before = low + step, before + inside
        step //= 2
    for _ in range(count - before):
        low = buffer.index(_NEWLINE, low) + 1
    return low


def _line_end(file: FileIO, size: int, at: int, check_cancelled: Callable[[], None]) -> int | None:
    """Find the end of the line that continues at `at`; None if it is too far away."""
    far = at + _COUNTED_AFTER
    while at < size:
        check_cancelled()
        block = _read(file, _BLOCK, at)
        if not block:
            break
        newline = block.find(_NEWLINE)
        if newline >= 0:
            return at + newline + 1
        at += len(block)
        if at > far:
            return None
    return size


def _count_rest(file: FileIO, size: int, at: int, check_cancelled: Callable[[], None]) -> int | None:
    """Count the lines that begin at or after `at`; None if there is too much to count."""
    if size - at > _COUNTED_AFTER:
        return None
    count, last = 0, _NEWLINE[0]
    while at < size:
        check_cancelled()
        block = _read(file, min(_BLOCK, size - at), at)
        if not block:
            break
        count, last, at = count + _newlines(block), block[-1], at + len(block)
    return count + (last != _NEWLINE[0])


def _read(file: FileIO, size: int, at: int) -> bytes:
    file.seek(at)
    return file.read(size) or b""
