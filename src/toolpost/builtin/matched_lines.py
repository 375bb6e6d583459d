"""Text of matching lines, with the lines around them, read through the handles of folders."""

from __future__ import annotations

import os
import stat
from io import BytesIO, FileIO
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.builtin.ripgrep import Hit

_UTF8_MARK = b"\xef\xbb\xbf"
_UTF16_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))
_MAX_UTF16_BYTES = 64 << 20
_HEAD = 8192
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
_AROUND = 64 << 10
_LONGEST = 500
_LEAD = 200


class LineReader:
    """Reads the text of matching lines, up to `max_results`."""

    def __init__(
        self, folder: int, *, max_results: int, context: int, hides: Callable[[os.stat_result], bool] | None = None
    ) -> None:
        self.max_results = max_results
        self._folder = folder
        self._hides = hides
        self._context = context
        self._read = 0

    def read(self, folder: str, name: str, hits: Sequence[Hit], *, most: int) -> list[MatchedLine] | None:
        """Read the lines of the hits in one file, as far as there is room; None for a binary or hidden file."""
        try:
            fd = self._open(folder, name)
        except OSError:
            return None
        with FileIO(fd) as file:
            head = file.read(_HEAD) or b""
            text = _as_utf8(file, head)
            if text is None:
                return None
            base = len(_UTF8_MARK) if head.startswith(_UTF8_MARK) else 0
            room = min(most, self.max_results - self._read)
            lines = [_line(text, hit, base, self._context) for hit in hits[: max(room, 0)]]
        whole = [line for line in lines if line is not None]
        self._read += len(whole)
        return whole

    def _open(self, folder: str, name: str) -> int:
        above = os.open(".", _FOLDER, dir_fd=self._folder)
        try:
            for part in folder.split("/")[:-1]:
                below = os.open(part, _FOLDER, dir_fd=above)
                os.close(above)
                above = below
                if self._is_hidden(above):
                    raise OSError("hidden")
            fd = os.open(name, os.O_RDONLY | _FLAGS, dir_fd=above)
        finally:
            os.close(above)
        if stat.S_ISREG(os.fstat(fd).st_mode) and not self._is_hidden(fd):
            return fd
        os.close(fd)
        raise OSError("no plain file")

    def _is_hidden(self, fd: int) -> bool:
        return self._hides is not None and self._hides(os.fstat(fd))


class MatchedLine(NamedTuple):
    """A line, shortened if it is very long, with its context."""

    number: int
    line: str
    before: list[str]
    after: list[str]


def _as_utf8(file: FileIO, head: bytes) -> BinaryIO | FileIO | None:
    """Return the file, converted to UTF-8 if it is UTF-16; None for binary files."""
    for mark, codec in _UTF16_MARKS:
        if head.startswith(mark):
            if os.fstat(file.fileno()).st_size > _MAX_UTF16_BYTES:
                return None
            file.seek(len(mark))
            return BytesIO((file.read() or b"").decode(codec, "replace").encode())
    return None if b"\0" in head else file


def _line(file: BinaryIO | FileIO, hit: Hit, base: int, context: int) -> MatchedLine | None:
    """Read the line of a hit; None if no line begins there anymore."""
    begin = base + hit.offset
    above = _piece(file, max(base, begin - _AROUND), begin)
    if begin > base and not above.endswith(b"\n"):
        return None
    skipped = max(0, hit.column - 1 - _LEAD) if hit.column > _LONGEST - _LEAD else 0
    line, ended, _ = _piece(file, begin + skipped, begin + skipped + 4 * _LONGEST).partition(b"\n")
    shown = ("..." if skipped else "") + _show_line(line)
    if not context:
        return MatchedLine(hit.line, shown, [], [])
    before = above.split(b"\n")[:-1][-context:]
    end = begin + skipped + len(line) + 1 if ended else None
    after = [] if end is None else _lines_after(file, end, context)
    return MatchedLine(hit.line, shown, [*map(_show_line, before)], [*map(_show_line, after)])


def _lines_after(file: BinaryIO | FileIO, begin: int, count: int) -> list[bytes]:
    piece = _piece(file, begin, begin + _AROUND)
    lines = piece.split(b"\n")
    return (lines if lines[-1] else lines[:-1])[:count]


def _piece(file: BinaryIO | FileIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin) or b""


def _show_line(line: bytes) -> str:
    line = line.removesuffix(b"\r")
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        cut = len(line) - wrong.start < 4 and len(line) >= 4 * _LONGEST  # the last character may be incomplete
        text = line[: wrong.start].decode() if cut else _otherwise(line)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _otherwise(line: bytes) -> str:
    """Decode a piece of a long line that may begin inside a character; other bytes are latin-1."""
    return line.decode("utf-8", "ignore") if line[0] & 0xC0 == 0x80 else line.decode("latin-1")
