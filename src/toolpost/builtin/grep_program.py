"""A search of files in a process of its own, for where ripgrep is not installed; standard library only.

It is told what to do in one JSON text and prints what ripgrep prints with `--null --line-number --column
--byte-offset`, without the lines. An expression that takes forever is ended with the process.
"""

from __future__ import annotations

import json
import os
import re
import sys
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.builtin.globs import Glob
from toolpost.builtin.tree import Listed, is_generated, is_kernels, walk

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Search = Callable[[str], re.Match[str] | None]

_READ = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FIRST = 32 << 10
_BLOCK = 8 << 20
_LOOK = 8192
_LONGEST_LINE = 64 << 20
_MARKS = ((b"\xef\xbb\xbf", ""), (b"\xff\xfe", "utf-16-le"), (b"\xfe\xff", "utf-16-be"))


class Order(NamedTuple):
    """What to search, and where: a folder, or a file in it."""

    pattern: str
    ignore_case: bool
    file: str | None
    include: str | None
    all_folders: bool
    from_root: bool

    def pack(self) -> str:
        """The order as text."""
        return json.dumps(self._asdict())


def main(text: str) -> None:
    """Carry out an order in the working folder."""
    facts: dict[str, Any] = json.loads(text)
    order = Order(**facts)
    out = sys.stdout.buffer
    for record in run(order, os.open(".", os.O_RDONLY)):
        out.write(record)
    out.flush()


def run(order: Order, folder: int) -> Iterator[bytes]:
    """The records of all matching lines."""
    flags = re.IGNORECASE if order.ignore_case else re.NOFLAG
    by_line = re.compile(order.pattern, flags).search
    in_text = re.compile(order.pattern, flags | re.MULTILINE).search
    for path, fd in _files(order, folder):
        try:
            first = os.read(fd, _FIRST)
            if _may_match(first, in_text):
                prefix = os.fsencode(path)
                hits = _hits(_blocks(first, fd), by_line, in_text)
                yield from (b"./%b\0%d:%d:%d:\n" % (prefix, *hit) for hit in hits)
        except OSError:  # a folder on its way out, a disk that fails
            continue
        finally:
            os.close(fd)


def _files(order: Order, folder: int) -> Iterator[tuple[str, int]]:
    if order.file is not None:
        yield order.file, os.open(order.file, _READ, dir_fd=folder)
        return
    skip = is_kernels if order.from_root else None if order.all_folders else is_generated
    wanted = _wanted(order.include)
    for listed in walk(folder, skip=skip):
        for name in wanted(listed):
            try:
                fd = os.open(name, _READ, dir_fd=listed.fd)
            except OSError:  # gone, or not ours to read
                continue
            yield listed.folder + name, fd


def _wanted(include: str | None) -> Callable[[Listed], list[str]]:
    """A function from a folder to the names of the plain files in it that are to be searched."""
    if include is None:
        return lambda listed: [entry.name for entry in listed.entries if entry.is_file(follow_symlinks=False)]
    fits = Glob(include, anywhere=True).matches
    return lambda listed: [
        entry.name
        for entry in listed.entries
        if fits(listed.folder, entry.name) and entry.is_file(follow_symlinks=False)
    ]


def _may_match(first: bytes, in_text: Search) -> bool:
    """Whether a file is worth a closer look; most are not, and of those only their start is touched."""
    if len(first) == _FIRST or first.startswith((b"\xff\xfe", b"\xfe\xff")):
        return b"\0" not in first[:_LOOK] or first.startswith((b"\xff\xfe", b"\xfe\xff"))
    return in_text(_text(first)) is not None and b"\0" not in first[:_LOOK]


def _hits(blocks: Iterator[bytes], by_line: Search, in_text: Search) -> Iterator[tuple[int, int, int]]:
    """The number, the column and the offset of each matching line, in bytes of UTF-8 after the file's mark."""
    number, offset = 1, 0
    for block in blocks:
        if in_text(_text(block)) is None:
            number, offset = number + block.count(b"\n"), offset + len(block)
            continue
        for raw in block.splitlines(keepends=True) if b"\r" not in block else _lines(block):
            line = raw.removesuffix(b"\n").removesuffix(b"\r").decode("utf-8", "surrogateescape")
            found = by_line(line)
            if found is not None:
                yield number, len(line[: found.start()].encode("utf-8", "surrogateescape")) + 1, offset
            number, offset = number + 1, offset + len(raw)


def _lines(block: bytes) -> list[bytes]:
    r"""Lines that end with \n alone; `splitlines` would also end one at a lone \r."""
    *whole, rest = block.split(b"\n")
    lines = [line + b"\n" for line in whole]
    return [*lines, rest] if rest else lines


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "surrogateescape")
    return text.replace("\r\n", "\n") if "\r" in text else text


def _blocks(first: bytes, fd: int) -> Iterator[bytes]:
    """The file in blocks of whole lines, as UTF-8 and without a mark."""
    for mark, codec in _MARKS:
        if first.startswith(mark) and codec:
            whole = first + b"".join(_rest(fd))
            yield whole.removeprefix(mark).decode(codec, "replace").encode()
            return
        if first.startswith(mark):
            first = first.removeprefix(mark)
    kept = first
    for block in _rest(fd) if len(first) >= _FIRST - 3 else ():
        kept += block
        end = kept.rfind(b"\n") + 1
        if not end and len(kept) > _LONGEST_LINE:
            end = len(kept)
        if end:
            yield kept[:end]
            kept = kept[end:]
    if kept:
        yield kept


def _rest(fd: int) -> Iterator[bytes]:
    while block := os.read(fd, _BLOCK):
        yield block
