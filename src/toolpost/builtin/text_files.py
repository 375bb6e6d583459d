"""Text in files: detect the encoding, decode and encode, and read a range of lines without loading the whole file."""

from __future__ import annotations

import codecs
from collections.abc import Callable
from io import FileIO
from typing import NamedTuple

from toolpost.contracts.errors import ToolClientError

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
_BLOCK = 256 << 10  # what stays in a processor's own cache is counted fastest
_NEWLINE = b"\n"
_SAMPLE = 4096
_LONG_LINE = 64
# Past the lines asked for, so much more is read only to count lines.
_COUNTED_AFTER = 256 << 20


class Encoding(NamedTuple):
    """A codec with the byte order mark that stands before the text."""

    codec: str
    mark: bytes = b""
    guessed: bool = False

    @property
    def name(self) -> str:
        """The name that a caller may pass as `encoding`."""
        return "utf-8-sig" if self.mark == codecs.BOM_UTF8 else self.codec

    @property
    def ends_lines_with_a_byte(self) -> bool:
        """Whether the byte 10 is always a newline."""
        return not self.codec.startswith(("utf-16", "utf-32")) and "\n".encode(self.codec) == b"\n"

    def decode(self, data: bytes) -> str:
        """Decode bytes without their byte order mark."""
        return data.removeprefix(self.mark).decode(self.codec)

    def encode(self, text: str) -> bytes:
        """Encode a text, with its byte order mark."""
        return self.mark + text.encode(self.codec)


UTF8 = Encoding("utf-8")


def parse_encoding(name: str, *, tool_name: str) -> Encoding:
    """Parse the name of an encoding; raise a ToolClientError for one that cannot be used for files."""
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
    """Detect the encoding by the first bytes of a file: by its mark, else UTF-8; None for binary files."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    return None if b"\0" in head[:_LOOK] else Encoding("utf-8", guessed=True)


def with_actual_mark(asked: Encoding, head: bytes) -> Encoding:
    """Return an encoding with the byte order mark that the file has."""
    for mark, codec in _MARKS:
        if head.startswith(mark) and codec[:6] == asked.codec[:6]:
            return Encoding(codec, mark)
    return asked._replace(mark=b"")


def decode_text(data: bytes, encoding: Encoding, *, path: str, tool_name: str) -> tuple[str, Encoding]:
    """Decode bytes and return the encoding used: latin-1 where a guess of UTF-8 was wrong."""
    try:
        return encoding.decode(data), encoding
    except UnicodeDecodeError as wrong:
        if encoding.guessed:
            return data.decode(FALLBACK), Encoding(FALLBACK, guessed=True)
        where = f"{wrong.reason} at byte {wrong.start}"
        message = f"{path!r} is not {encoding.name}: {where}; leave `encoding` out, or name another"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


def encode_text(text: str, encoding: Encoding, *, tool_name: str) -> bytes:
    """Encode a text; raise a ToolClientError for a character that the encoding lacks."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as wrong:
        character = wrong.object[wrong.start].encode("unicode_escape").decode()
        message = f"the character {character} cannot be written as {encoding.name}; leave it out, or use utf-8"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


class LineRange(NamedTuple):
    """The bytes of some lines; `total` is None where counting them all would take too long.

    `cut` says that the last line is longer than may be handed on; `end` is the line to go on with, None at the end.
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
    """Read lines of an encoding in which the byte 10 is part of other characters; the data are UTF-8.

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
    """Counts lines of text that comes in pieces, and keeps those of the request."""

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
    """Take as many whole lines as fit; when not even one does, a piece of it."""
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
    """Find where a line begins; None, and the number of lines, when there are fewer."""
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
    """Count newlines; `count` looks at every byte, while `replace` jumps from one newline to the next."""
    if block.count(_NEWLINE, 0, _SAMPLE) * _LONG_LINE > _SAMPLE:
        return block.count(_NEWLINE)
    return len(block) - len(block.replace(_NEWLINE, b""))


def _after_newlines(buffer: bytes, count: int) -> int:
    """Find the position after so many newlines, which must be there."""
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
    """Find the end of the line that continues at `at`; None when that is too far away."""
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
    """Count the lines that begin at or after `at`; None when there is too much to count."""
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
