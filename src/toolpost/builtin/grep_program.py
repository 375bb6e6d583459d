"""Program that searches files where ripgrep is not installed; standard library only.

Its argument is a JSON object, its output that of ripgrep with `--null --line-number --column --byte-offset`, without
the lines. It runs in a process of its own, because only killing the process ends an expression that takes forever.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.builtin.file_walk import Glob, OpenFolder, is_generated, is_kernel_folder, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Search = Callable[[str], re.Match[str] | None]
    Find = tuple[int, int, int]

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FIRST = 32 << 10
_BLOCK = 8 << 20
LOOK = 8192
_LONGEST_LINE = 64 << 20
LARGEST_UTF16 = 64 << 20
UTF8_MARK = b"\xef\xbb\xbf"
UTF16_MARKS = ((b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))

# The warning of ripgrep, which stops at a NUL.
BINARY = b': WARNING: stopped searching binary file after match (found "\\0" byte)'


class GrepRequest(NamedTuple):
    """What to search for, and where: a folder, or a file in it."""

    pattern: str
    strict: str
    ignore_case: bool
    file: str | None
    include: str | None
    all_folders: bool
    from_root: bool

    def pack(self) -> str:
        """Serialize the request to JSON."""
        return json.dumps(self._asdict())


def main(text: str) -> None:
    """Run a request in the working folder and print its records."""
    facts: dict[str, Any] = json.loads(text)
    order = GrepRequest(**facts)
    out = sys.stdout.buffer
    for record in run(order, os.open(".", os.O_RDONLY)):
        out.write(record)
    out.flush()


class Patterns:
    """The compiled patterns; text with bytes that are no UTF-8 needs the strict one, which is slower."""

    def __init__(self, order: GrepRequest) -> None:
        flags = re.IGNORECASE if order.ignore_case else re.NOFLAG
        self._by_line = re.compile(order.pattern, flags).search
        self._in_text = re.compile(order.pattern, flags | re.MULTILINE).search
        self._strict = re.compile(order.strict, flags).search

    def may_be_in(self, data: bytes) -> bool:
        """Return whether any line of a block may match: a quick check that spares most blocks."""
        text = data.decode("utf-8", "surrogateescape")
        return self._in_text(text.replace("\r", "\n") if "\r" in text else text) is not None

    def for_lines(self, block: bytes) -> Search:
        """Return the search function for the lines of a block."""
        try:
            block.decode()
        except UnicodeDecodeError:
            return self._strict
        return self._by_line


def run(order: GrepRequest, folder: int) -> Iterator[bytes]:
    """Yield the records of all matching lines; a file that was named is searched even if it holds a NUL."""
    patterns = Patterns(order)
    for path, fd in _files(order, folder):
        try:
            first = os.read(fd, _FIRST)
            if _may_match(first, patterns, fd):
                yield from _records(os.fsencode(path), _blocks(first, fd), patterns, whole=order.file is not None)
        except OSError:  # a folder on its way out, a disk that fails
            continue
        finally:
            os.close(fd)


def _records(path: bytes, blocks: Iterator[bytes], patterns: Patterns, *, whole: bool) -> Iterator[bytes]:
    number, offset = 1, 0
    for block in blocks:
        if not whole and b"\0" in block:
            yield b"./%b%b\n" % (path, BINARY)
            return
        if patterns.may_be_in(block):
            yield from (b"./%b\0%d:%d:%d:\n" % (path, *hit) for hit in _hits(block, number, offset, patterns))
        number, offset = number + block.count(b"\n"), offset + len(block)


def _files(order: GrepRequest, folder: int) -> Iterator[tuple[str, int]]:
    if order.file is not None:
        yield order.file, os.open(order.file, _READ, dir_fd=folder)
        return
    skip = is_kernel_folder if order.from_root else None if order.all_folders else is_generated
    select = _make_selector(order.include)
    for listed in walk(folder, skip=skip):
        for name in select(listed):
            try:
                fd = os.open(name, _READ, dir_fd=listed.fd)
            except OSError:  # gone, or not ours to read
                continue
            yield listed.folder + name, fd


def _make_selector(include: str | None) -> Callable[[OpenFolder], list[str]]:
    """Return a function from a folder to the names of the plain files in it to search."""
    if include is None:
        return lambda listed: [entry.name for entry in listed.entries if entry.is_file(follow_symlinks=False)]
    fits = Glob(include, anywhere=True).matches
    return lambda listed: [
        entry.name
        for entry in listed.entries
        if fits(listed.folder, entry.name) and entry.is_file(follow_symlinks=False)
    ]


def _may_match(first: bytes, patterns: Patterns, fd: int) -> bool:
    """Return whether a file may match, by its first bytes: a quick check that spares most files."""
    if first.startswith(tuple(mark for mark, _ in UTF16_MARKS)):
        return os.fstat(fd).st_size <= LARGEST_UTF16
    text = first.removeprefix(UTF8_MARK)
    return b"\0" not in first[:LOOK] and (len(first) == _FIRST or patterns.may_be_in(text))


def _hits(block: bytes, number: int, offset: int, patterns: Patterns) -> Iterator[Find]:
    """Yield number, column and offset of each matching line, in bytes of UTF-8 after the byte order mark."""
    search = patterns.for_lines(block)
    for raw in block.splitlines(keepends=True) if b"\r" not in block else _lines(block):
        body = raw.removesuffix(b"\r\n") if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")
        line = body.decode("utf-8", "surrogateescape")
        at = _find_match(line, search)
        if at is not None:
            is_end = at == len(line) and not raw.endswith(b"\n")  # which has no column in what ripgrep prints
            column = 0 if is_end else len(line[:at].encode("utf-8", "surrogateescape"))
            yield number, column + 1, offset
        number, offset = number + 1, offset + len(raw)


def _find_match(line: str, search: Search) -> int | None:
    r"""Return where a match begins; as for ripgrep, a lone \r is an end and a beginning, and no match goes over it."""
    begin = 0
    for part in line.split("\r"):
        match = search(part)
        if match is not None:
            return begin + match.start()
        begin += len(part) + 1
    return None


def _lines(block: bytes) -> list[bytes]:
    r"""Yield the lines that end with \n alone; `splitlines` would also end one at a lone \r."""
    *whole, rest = block.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, rest] if rest else lines


def _blocks(first: bytes, fd: int) -> Iterator[bytes]:
    """Yield the file in blocks of whole lines, as UTF-8 without a byte order mark."""
    for mark, codec in UTF16_MARKS:
        if first.startswith(mark):
            whole = first + b"".join(_rest(fd))
            yield whole.removeprefix(mark).decode(codec, "replace").encode()
            return
    buffer = first = first.removeprefix(UTF8_MARK)
    for block in _rest(fd) if len(first) >= _FIRST - 3 else ():
        buffer += block
        end = buffer.rfind(b"\n") + 1
        if not end and len(buffer) > _LONGEST_LINE:
            end = len(buffer)
        if end:
            yield buffer[:end]
            buffer = buffer[end:]
    if buffer:
        yield buffer


def _rest(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, _BLOCK):
        yield block
