"""What a search found, read from its output: `path NUL line:column:offset:` on each line."""

from __future__ import annotations

import re
from typing import NamedTuple

# In the words of ripgrep, old and new, which stops at a NUL; what it printed of such a file before goes as well.
BINARY = b': WARNING: stopped searching binary file after match (found "\\0" byte)'
_STOPPED = re.compile(
    rb"(?:(?P<path>.*): )?WARNING: stopped searching binary file (?P<old>.*? )?after match \(found", re.DOTALL
)


class Hit(NamedTuple):
    """A matching line: its number from 1, and in bytes the column of the match and the line's offset."""

    line: int
    column: int
    offset: int


class FileHits:
    """The matching lines of one file: all are counted, and the first are kept."""

    __slots__ = ("count", "first")

    def __init__(self) -> None:
        self.count = 0
        self.first: list[Hit] = []


class Hits:
    """The matching lines of all files."""

    def __init__(self, *, keep: int) -> None:
        self.files: dict[bytes, FileHits] = {}
        self._keep = keep
        self._rest = b""

    def feed(self, data: bytes) -> None:
        """Take a piece of output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        name = b""
        for line in lines:
            path, found, record = (name + line).partition(b"\0")
            if found:
                self._add(path.removeprefix(b"./"), record)
            name = b"" if found or self._dropped(path) else path + b"\n"  # a name may hold a newline
        self._rest = name + self._rest

    def _dropped(self, line: bytes) -> bool:
        stopped = _STOPPED.match(line)
        if stopped is None:
            return False
        path = stopped["path"] or (stopped["old"] or b"").removesuffix(b" ")
        self.files.pop(path.removeprefix(b"./"), None)
        return True

    def _add(self, path: bytes, record: bytes) -> None:
        hits = self.files.get(path)
        if hits is None:
            hits = self.files[path] = FileHits()
        hits.count += 1
        if hits.count <= self._keep:
            hits.first.append(_hit(record))


def _hit(record: bytes) -> Hit:
    """A match that is only the end of the last line has no column."""
    numbers = [int(part) for part in record.split(b":")[:3] if part.isdigit()]
    has_column = len(numbers) == 3 and record.count(b":") >= 3
    return Hit(*numbers) if has_column else Hit(numbers[0], 1, numbers[1])
