"""Lines out of the middle of a file of any size, without loading it."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO

    from toolpost.builtin.text_encodings import Encoding

_BLOCK = 256 << 10  # what stays in a processor's own cache is counted fastest
_NEWLINE = b"\n"
_SAMPLE = 4096
_LONG_LINE = 64
# Past the lines asked for, so much more is read only to count lines.
_COUNTED_AFTER = 256 << 20


class LineRange(NamedTuple):
    """The bytes of some lines; `total` is None where counting them all would take too long.

    `cut` says that the last line is longer than may be handed on; `end` is the line to go on with, None at the end.
    """

    data: bytes
    total: int | None
    end: int | None
    cut: bool = False


class Wanted(NamedTuple):
    """Which lines: from `first`, at most `lines` of them and at most `room` bytes."""

    first: int
    lines: int
    room: int


def read_lines(file: FileIO, size: int, wanted: Wanted, *, goes_on: Callable[[], None]) -> LineRange:
    """Read lines that end with the byte 10; `goes_on` is asked before each block and may raise."""
    begin, skipped = _find_line(file, size, wanted.first, goes_on)
    if begin is None:
        return LineRange(b"", skipped, None)
    data, lines, cut = _take(_read(file, min(wanted.room + 1, size - begin), begin), wanted)
    after = begin + len(data)
    end = wanted.first + lines
    if cut:
        found = _line_end(file, size, after, goes_on)
        if found is None:
            return LineRange(data, None, end, cut)
        after = found
    total = _count_rest(file, size, after, goes_on)
    total = None if total is None else total + end
    return LineRange(data, total, end if after < size else None, cut)


def read_decoded_lines(
    file: FileIO, size: int, wanted: Wanted, encoding: Encoding, *, goes_on: Callable[[], None]
) -> LineRange:
    """The same for encodings in which the byte 10 is part of other characters; the data are UTF-8.

    The whole file is decoded, block by block.
    """
    decoder = codecs.getincrementaldecoder(encoding.codec)("strict")
    keeper, at = _Keeper(wanted), len(encoding.mark)
    while at < size:
        goes_on()
        block = _read(file, min(_BLOCK, size - at), at)
        if not block:
            break
        at += len(block)
        keeper.add(decoder.decode(block, final=at >= size))
    return keeper.result()


class _Keeper:
    """Counts lines as text comes in, and keeps those that are wanted."""

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._line = 0
        self._open = False
        self._kept: list[str] = []
        self._bytes = 0
        self._full = False

    def add(self, text: str) -> None:
        for part in _by_newline(text):
            self._add_part(part)

    def _add_part(self, part: str) -> None:
        wanted = self._wanted
        if wanted.first <= self._line < wanted.first + wanted.lines and not self._full:
            self._kept.append(part)
            self._bytes += len(part.encode("utf-8", "surrogatepass"))
            self._full = self._bytes > wanted.room
        self._open = not part.endswith("\n")
        self._line += not self._open

    def result(self) -> LineRange:
        total = self._line + self._open
        data = "".join(self._kept).encode("utf-8", "surrogatepass")
        taken, lines, cut = _take(data, self._wanted)
        end = self._wanted.first + lines
        return LineRange(taken, total, end if end < total else None, cut)


def _by_newline(text: str) -> list[str]:
    *whole, rest = text.split("\n")
    lines = [f"{line}\n" for line in whole]
    return [*lines, rest] if rest else lines


def _take(data: bytes, wanted: Wanted) -> tuple[bytes, int, bool]:
    """As many whole lines as are wanted and fit; only when not one fits, a piece of it."""
    at = lines = 0
    while lines < wanted.lines and at < len(data):
        next_at = data.find(_NEWLINE, at) + 1
        next_at = next_at or len(data)
        if next_at > wanted.room:
            break
        at, lines = next_at, lines + 1
    if lines or not data:
        return data[:at], lines, False
    return data[: wanted.room], 1, True


def _find_line(file: FileIO, size: int, line: int, goes_on: Callable[[], None]) -> tuple[int | None, int]:
    """Where a line begins; None, and how many lines there are, when there are not so many."""
    if line == 0 and size:
        return 0, 0
    at, seen, last = 0, 0, _NEWLINE[0]
    while at < size:
        goes_on()
        block = _read(file, _BLOCK, at)
        if not block:
            break
        count = _newlines(block)
        if seen + count >= line:
            begin = at + _after_newlines(block, line - seen)
            return (begin, line) if begin < size else (None, line)
        at, seen, last = at + len(block), seen + count, block[-1]
    return None, seen + (last != _NEWLINE[0])


def _newlines(block: bytes) -> int:
    """How many there are; `count` looks at every byte, while `replace` leaps from one newline to the next."""
    if block.count(_NEWLINE, 0, _SAMPLE) * _LONG_LINE > _SAMPLE:
        return block.count(_NEWLINE)
    return len(block) - len(block.replace(_NEWLINE, b""))


def _after_newlines(buffer: bytes, count: int) -> int:
    """The position after so many newlines, which are known to be there."""
    low, before = 0, 0
    step = len(buffer) // 2
    while step > 4096:  # halve the part in which they end, so that few have to be looked at one by one
        inside = buffer.count(_NEWLINE, low, low + step)
        if before + inside < count:
            low, before = low + step, before + inside
        step //= 2
    for _ in range(count - before):
        low = buffer.index(_NEWLINE, low) + 1
    return low


def _line_end(file: FileIO, size: int, at: int, goes_on: Callable[[], None]) -> int | None:
    """Where the line that goes on at `at` ends; None when that is too far away to look for."""
    far = at + _COUNTED_AFTER
    while at < size:
        goes_on()
        block = _read(file, _BLOCK, at)
        if not block:
            break
        found = block.find(_NEWLINE)
        if found >= 0:
            return at + found + 1
        at += len(block)
        if at > far:
            return None
    return size


def _count_rest(file: FileIO, size: int, at: int, goes_on: Callable[[], None]) -> int | None:
    """How many lines begin at or after `at`; None when there is too much to count."""
    if size - at > _COUNTED_AFTER:
        return None
    count, last = 0, _NEWLINE[0]
    while at < size:
        goes_on()
        block = _read(file, min(_BLOCK, size - at), at)
        if not block:
            break
        count, last, at = count + _newlines(block), block[-1], at + len(block)
    return count + (last != _NEWLINE[0])


def _read(file: FileIO, size: int, at: int) -> bytes:
    file.seek(at)
    return file.read(size) or b""
