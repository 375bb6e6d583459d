"""What a search found, read from its output as it comes: `path NUL line:column:offset:` on each line."""

from __future__ import annotations

from typing import NamedTuple


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
            if not found:  # a name that holds a newline goes on in the next line
                name += line + b"\n"
                continue
            name = b""
            self._add(path.removeprefix(b"./"), record)
        self._rest = name + self._rest

    def _add(self, path: bytes, record: bytes) -> None:
        hits = self.files.get(path)
        if hits is None:
            hits = self.files[path] = FileHits()
        hits.count += 1
        if hits.count <= self._keep:
            line, column, offset, _ = record.split(b":", 3)
            hits.first.append(Hit(int(line), int(column), int(offset)))
