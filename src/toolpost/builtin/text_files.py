"""Text in files: detect the encoding, decode and encode, and read a range of lines without loading the whole file."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, NamedTuple

from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Callable
    from io import FileIO


FALLBACK = "latin-1"
_LOOK = 8192
# UTF-32's mark begins like that of UTF-16, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Not for files: some cannot be read by parts, and others turn what looks like text into something else.
_NOT_FOR_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
_NEED_MARK = {"utf-16": codecs.BOM_UTF16_LE, "utf-32": codecs.BOM_UTF32_LE, "utf-8-sig": codecs.BOM_UTF8}
_AFTER_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}


class Encoding(NamedTuple):
    """A codec with the byte order mark that stands before the text."""

    codec: str
    mark: bytes = b""
    guessed: bool = False

    @property
    def name(self) -> str:
        """The name as a caller may give it back."""
        return "utf-8-sig" if self.mark == codecs.BOM_UTF8 else self.codec

    @property
    def ends_lines_with_a_byte(self) -> bool:
        """Whether a newline is the byte 10, and that byte nothing else."""
        return not self.codec.startswith(("utf-16", "utf-32")) and "\n".encode(self.codec) == b"\n"

    def decode(self, data: bytes) -> str:
        """The text, without its mark; what was only taken for UTF-8 and is not raises UnicodeDecodeError."""
        return data.removeprefix(self.mark).decode(self.codec)

    def encode(self, text: str) -> bytes:
        """The text with its mark."""
        return self.mark + text.encode(self.codec)


UTF8 = Encoding("utf-8")


def parse_encoding(name: str, *, tool_name: str) -> Encoding:
    """The encoding that a caller asks for."""
    try:
        known = codecs.lookup(name)
        codec = known.name
        "\n".encode(codec)  # some codecs turn bytes into bytes
        if codec.replace("_", "-") in _NOT_FOR_FILES:
            raise LookupError(codec)  # noqa: TRY301 - told as any other that cannot be used
    except (LookupError, ValueError):
        message = f"unknown encoding {name[:40]!r}; write a name such as utf-8, utf-16, latin-1 or cp1252"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_unknown") from None
    return Encoding(_AFTER_MARK.get(codec, codec), _NEED_MARK.get(codec, b""))


def detect_encoding(head: bytes) -> Encoding | None:
    """The encoding that the first bytes of a file show; UTF-8 when nothing speaks against it, None for binary files."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    return None if b"\0" in head[:_LOOK] else Encoding("utf-8", guessed=True)


def with_actual_mark(asked: Encoding, head: bytes) -> Encoding:
    """An encoding that was asked for, with the mark that is really there."""
    for mark, codec in _MARKS:
        if head.startswith(mark) and codec[:6] == asked.codec[:6]:
            return Encoding(codec, mark)
    return asked._replace(mark=b"")


def decode_text(data: bytes, encoding: Encoding, *, path: str, tool_name: str) -> tuple[str, Encoding]:
    """A text and how it was read: bytes that were only taken for UTF-8 and are not, are read as latin-1."""
    try:
        return encoding.decode(data), encoding
    except UnicodeDecodeError as wrong:
        if encoding.guessed:
            return data.decode(FALLBACK), Encoding(FALLBACK, guessed=True)
        where = f"{wrong.reason} at byte {wrong.start}"
        message = f"{path!r} is not {encoding.name}: {where}; leave `encoding` out, or name another"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


def encode_text(text: str, encoding: Encoding, *, tool_name: str) -> bytes:
    """The bytes of a text."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as wrong:
        character = wrong.object[wrong.start].encode("unicode_escape").decode()
        message = f"the character {character} cannot be written as {encoding.name}; leave it out, or use utf-8"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


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


class LineRequest(NamedTuple):
    """Which lines: from `first`, at most `lines` of them and at most `room` bytes."""

    first: int
    lines: int
    room: int


def read_lines(file: FileIO, size: int, request: LineRequest, *, check_cancelled: Callable[[], None]) -> LineRange:
    """Read lines that end with the byte 10; `check_cancelled` is asked before each block and may raise."""
    begin, skipped = _find_line(file, size, request.first, check_cancelled)
    if begin is None:
        return LineRange(b"", skipped, None)
    data, lines, cut = _take(_read(file, min(request.room + 1, size - begin), begin), request)
    after = begin + len(data)
    end = request.first + lines
    if cut:
        found = _line_end(file, size, after, check_cancelled)
        if found is None:
            return LineRange(data, None, end, cut)
        after = found
    total = _count_rest(file, size, after, check_cancelled)
    total = None if total is None else total + end
    return LineRange(data, total, end if after < size else None, cut)


def read_decoded_lines(
    file: FileIO, size: int, request: LineRequest, encoding: Encoding, *, check_cancelled: Callable[[], None]
) -> LineRange:
    """The same for encodings in which the byte 10 is part of other characters; the data are UTF-8.

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
    """Counts lines as text comes in, and keeps those that are wanted."""

    def __init__(self, request: LineRequest) -> None:
        self._wanted = request
        self._line = 0
        self._open = False
        self._kept: list[str] = []
        self._bytes = 0
        self._full = False

    def add(self, text: str) -> None:
        for part in _by_newline(text):
            self._add_part(part)

    def _add_part(self, part: str) -> None:
        request = self._wanted
        if request.first <= self._line < request.first + request.lines and not self._full:
            self._kept.append(part)
            self._bytes += len(part.encode("utf-8", "surrogatepass"))
            self._full = self._bytes > request.room
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


def _take(data: bytes, request: LineRequest) -> tuple[bytes, int, bool]:
    """As many whole lines as are wanted and fit; only when not one fits, a piece of it."""
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
    """Where a line begins; None, and how many lines there are, when there are not so many."""
    if line == 0 and size:
        return 0, 0
    at, seen, last = 0, 0, _NEWLINE[0]
    while at < size:
        check_cancelled()
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


def _line_end(file: FileIO, size: int, at: int, check_cancelled: Callable[[], None]) -> int | None:
    """Where the line that goes on at `at` ends; None when that is too far away to look for."""
    far = at + _COUNTED_AFTER
    while at < size:
        check_cancelled()
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


def _count_rest(file: FileIO, size: int, at: int, check_cancelled: Callable[[], None]) -> int | None:
    """How many lines begin at or after `at`; None when there is too much to count."""
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
