"""Tools that look at files: read_file, get_file_info, list_files and glob_files; and the encodings of text in files."""

from __future__ import annotations

import codecs
import heapq
import os
import re
import stat
from collections.abc import Callable
from functools import partial
from io import FileIO
from operator import attrgetter, itemgetter
from typing import Annotated, NamedTuple

from msgspec import Struct, field
from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, FilePath, OpenFile, display_path, file_changed_error, file_tool
from toolpost.builtin.file_walk import LONGEST, Glob, GlobError, OpenFolder, Skip, is_generated, is_kernel_folder, walk
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolClientError
from toolpost.schema.patterns import count_repeats

Matches = Callable[[str, str], bool]

LINES = 2000
CONTENT_BYTES = 1_000_000
_HEAD = 8192
_ABSENT = ("file_not_found", "not_a_folder")
_REGEX = "re:"
# Names have at most 255 characters, so that this many repeats cannot take longer than a moment.
_MOST_REPEATS = 2
Folder = Annotated[
    str | None,
    Field(min_length=1, description="The folder; left out, the working folder or the first allowed one"),
]
AllFolders = Annotated[
    bool,
    Field(validation_alias=either("all_folders"), description="Look into .git, node_modules, build and the like, too"),
]
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


class FileContent(TypedDict):
    """Lines of a file; `total_lines` is null where counting them all would take too long."""

    path: str
    content: str
    size: int
    encoding: str
    total_lines: int | None
    offset: int
    limit: int
    truncated: bool
    next_offset: int | None
    line_cut: bool


class FileFacts(TypedDict):
    """What is known of a path; null for what does not exist. `modified` is in milliseconds since 1970."""

    path: str
    exists: bool
    size: int | None
    modified: int | None
    is_file: bool
    is_directory: bool


def reading_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [with_camel_case(tool) for tool in (read_file, get_file_info, list_files, glob_files)]


@file_tool(side_effects="read", timeout_s=30)
async def read_file(
    path: FilePath,
    ctx: ToolContext,
    *,
    encoding: Annotated[str | None, Field(description="Left out: by the file's first bytes, else UTF-8")] = None,
    offset: Annotated[int, Field(ge=0, description="The first line to read, from 0")] = 0,
    limit: Annotated[int, Field(ge=1, le=100_000, description="The most lines to read")] = LINES,
    line_numbers: Annotated[
        bool,
        Field(
            description="Begin each line with its number, from 1, and a tab", validation_alias=either("line_numbers")
        ),
    ] = False,
) -> FileContent:
    """Read a text file, or some of its lines; `next_offset` is where to go on, null at the end.

    At most 1 MB is read at once. A file of any size can be read in parts.
    """
    access = FileAccess.of(ctx, "read_file")
    reading = _Reading(access, path, LineRequest(offset, limit, CONTENT_BYTES), encoding)
    content = await run_cancellable(reading.run)
    if line_numbers:
        content["content"] = _number_lines(content["content"], offset)
    return content


@file_tool(side_effects="read", timeout_s=10)
async def get_file_info(path: FilePath, ctx: ToolContext) -> FileFacts:
    """Tell whether a file or folder exists, how large it is, and when it was last changed."""
    access = FileAccess.of(ctx, "get_file_info")
    return await run_cancellable(partial(_facts, access, path))


class _Reading:
    """Reads some lines of one file."""

    def __init__(self, access: FileAccess, path: str, request: LineRequest, encoding: str | None) -> None:
        self._access = access
        self._path = path
        self._request = request
        self._caller_encoding = None if encoding is None else parse_encoding(encoding, tool_name=access.tool_name)

    def run(self, check_cancelled: Callable[[], None]) -> FileContent:
        with self._access.open_file(self._path) as opened, FileIO(opened.fd, closefd=False) as file:
            encoding = self._encoding(file.read(_HEAD) or b"")
            lines = self._lines(file, opened.status.st_size, encoding, check_cancelled)
            self._check_unchanged(opened)
        return self._content(lines, encoding, opened.status.st_size)

    def _encoding(self, head: bytes) -> Encoding:
        if self._caller_encoding is not None:
            return with_actual_mark(self._caller_encoding, head)
        encoding = detect_encoding(head)
        if encoding is None:
            message = f"{display_path(self._path)!r} is a binary file; if there is text in it, name its `encoding`"
            raise self._access.refusal(message, "binary_file")
        return encoding

    def _lines(self, file: FileIO, size: int, encoding: Encoding, check_cancelled: Callable[[], None]) -> LineRange:
        if encoding.ends_lines_with_a_byte:
            return read_lines(file, size, self._request, check_cancelled=check_cancelled)
        try:
            return read_decoded_lines(file, size, self._request, encoding, check_cancelled=check_cancelled)
        except UnicodeDecodeError as wrong:
            message = f"{display_path(self._path)!r} is not {encoding.name}: {wrong.reason}; name another `encoding`"
            raise self._access.refusal(message, "encoding_wrong") from None

    def _check_unchanged(self, opened: OpenFile) -> None:
        """Refuse a file that was rewritten while it was read; one that only grew, as logs do, is fine."""
        before, after = opened.status, os.fstat(opened.fd)
        touched = before.st_mtime_ns != after.st_mtime_ns
        if after.st_size < before.st_size or (touched and after.st_size == before.st_size):
            raise file_changed_error(self._path, tool_name=self._access.tool_name)

    def _content(self, lines: LineRange, encoding: Encoding, size: int) -> FileContent:
        stored = encoding if encoding.ends_lines_with_a_byte else UTF8
        text, read_as = _text_of(lines, stored, path=display_path(self._path), tool_name=self._access.tool_name)
        return {
            "path": self._path,
            "content": text,
            "size": size,
            "encoding": read_as.name if stored is encoding else encoding.name,
            "total_lines": lines.total,
            "offset": self._request.first,
            "limit": self._request.lines,
            "truncated": lines.end is not None or lines.cut,
            "next_offset": lines.end,
            "line_cut": lines.cut,
        }


def _text_of(lines: LineRange, encoding: Encoding, *, path: str, tool_name: str) -> tuple[str, Encoding]:
    """Decode lines; a line that was cut may end within a character."""
    if not lines.cut:
        return decode_text(lines.data, encoding, path=path, tool_name=tool_name)
    for less in range(4):
        try:
            return encoding.decode(lines.data[: len(lines.data) - less]), encoding
        except UnicodeDecodeError:
            continue
    return decode_text(lines.data, encoding, path=path, tool_name=tool_name)


def _number_lines(text: str, offset: int) -> str:
    lines = text.split("\n")
    last = [] if lines[-1] else [lines.pop()]
    return "\n".join([*(f"{offset + number}\t{line}" for number, line in enumerate(lines, 1)), *last])


def _facts(access: FileAccess, path: str, check_cancelled: Callable[[], None]) -> FileFacts:
    check_cancelled()
    try:
        with access.place(path) as place:
            status = place.status_or_none()
    except ToolClientError as refused:
        if refused.error_code not in _ABSENT:
            raise
        status = None
    if status is None:
        return {"path": path, "exists": False, "size": None, "modified": None, "is_file": False, "is_directory": False}
    return {
        "path": path,
        "exists": True,
        "size": status.st_size,
        "modified": status.st_mtime_ns // 1_000_000,
        "is_file": stat.S_ISREG(status.st_mode),
        "is_directory": stat.S_ISDIR(status.st_mode),
    }


class FileInfo(TypedDict):
    """One entry: `name` is its last name, `path` what other tools take, `modified` milliseconds."""

    name: str
    path: str
    is_dir: bool
    is_link: bool
    size: int
    modified: int


class FileList(TypedDict):
    """Entries; `total` counts also those that were left out."""

    path: str
    files: list[FileInfo]
    total: int
    truncated: bool


@file_tool(side_effects="read", timeout_s=30)
async def list_files(
    ctx: ToolContext,
    *,
    path: Folder = None,
    recursive: Annotated[bool, Field(description="List the folders below, too")] = False,
    pattern: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST,
            description="Only names like *.py, {a,b}*, src/**/*.ts, or re: and a regular expression",
        ),
    ] = None,
    include_dirs: Annotated[
        bool, Field(validation_alias=either("include_dirs"), description="List folders, too, not only files")
    ] = True,
    limit: Annotated[int, Field(ge=1, le=10_000, description="The most entries to return")] = 1000,
) -> FileList:
    """List what is in a folder. Links are listed, but not followed."""
    access = FileAccess.of(ctx, "list_files")
    matches = None if pattern is None else _matcher(access, pattern, anywhere=True)
    listing = _Listing(access=access, matches=matches, with_folders=include_dirs, limit=limit)
    return await run_cancellable(partial(listing.run, access.start_folder(path), deep=recursive))


@file_tool(side_effects="read", timeout_s=30)
async def glob_files(
    pattern: Annotated[
        str, Field(min_length=1, max_length=LONGEST, description="Such as **/*.py or src/**/test_*.{js,ts}")
    ],
    ctx: ToolContext,
    *,
    path: Folder = None,
    max_results: Annotated[int, Field(ge=1, le=10_000, validation_alias=either("max_results"))] = 100,
    all_folders: AllFolders = False,
) -> FileList:
    """Find files by a pattern of their path, those changed last first."""
    access = FileAccess.of(ctx, "glob_files")
    matches = _matcher(access, pattern, anywhere=False)
    globbing = _Listing(
        access=access, matches=matches, with_folders=False, limit=max_results, newest=True, all_folders=all_folders
    )
    return await run_cancellable(partial(globbing.run, access.start_folder(path), deep=True))


class _Listing(Struct, kw_only=True):
    """Walks over folders and collects entries."""

    access: FileAccess
    matches: Matches | None
    with_folders: bool
    limit: int
    newest: bool = False
    all_folders: bool = True
    total: int = 0
    files: list[FileInfo] = field(default_factory=list[FileInfo])

    def run(self, path: str, check_cancelled: Callable[[], None], *, deep: bool) -> FileList:
        with self.access.open_folder(path) as opened:
            for listed in walk(
                opened.fd, deep=deep, skip=self._skip(opened.place.real), hides=self.access.protection.hides
            ):
                check_cancelled()
                self._take(listed, path.rstrip("/") + "/")
        files = self._newest() if self.newest else self.files
        return {"path": path, "files": files, "total": self.total, "truncated": self.total > len(files)}

    def _skip(self, real: str) -> Skip | None:
        if real == os.sep:
            return is_kernel_folder
        return None if self.all_folders else is_generated

    def _take(self, listed: OpenFolder, above: str) -> None:
        entries = listed.entries
        if not self.with_folders:
            entries = [entry for entry in entries if not entry.is_dir(follow_symlinks=False)]
        if self.matches is not None:
            entries = [entry for entry in entries if self.matches(listed.folder, entry.name)]
        self.total += len(entries)
        room = len(entries) if self.newest else self.limit - len(self.files)
        if room > 0:
            # Only what is handed on is looked at closely: that costs more than finding it.
            chosen = (
                heapq.nsmallest(room, entries, key=attrgetter("name"))
                if room < len(entries)
                else sorted(entries, key=attrgetter("name"))
            )
            infos = [_info(entry, listed.folder, above) for entry in chosen]
            self.files += [info for info in infos if info is not None]

    def _newest(self) -> list[FileInfo]:
        self.files.sort(key=itemgetter("path"))
        self.files.sort(key=itemgetter("modified"), reverse=True)
        return self.files[: self.limit]


def _info(entry: os.DirEntry[str], folder: str, above: str) -> FileInfo | None:
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:  # gone since
        return None
    below = shown_name(f"{folder}{entry.name}")
    return {
        "name": shown_name(entry.name),
        "path": f"{above}{below}" if above != "./" else below,
        "is_dir": entry.is_dir(follow_symlinks=False),
        "is_link": entry.is_symlink(),
        "size": status.st_size,
        "modified": status.st_mtime_ns // 1_000_000,
    }


def shown_name(name: str) -> str:
    """Return a name that JSON can carry; bytes that are not UTF-8 become escapes."""
    return name if name.isascii() else os.fsencode(name).decode("utf-8", "backslashreplace")


def _matcher(access: FileAccess, pattern: str, *, anywhere: bool) -> Matches:
    """Compile a glob, or with `anywhere` a regular expression after `re:`, to a predicate of folder and name."""
    try:
        if not (anywhere and pattern.startswith(_REGEX)):
            return Glob(pattern, anywhere=anywhere).matches
        expression = re.compile(pattern.removeprefix(_REGEX))
    except (GlobError, re.error, RecursionError, OverflowError) as wrong:
        raise access.refusal(f"Invalid pattern {display_path(pattern)!r}: {wrong}", "pattern_invalid") from None
    count = count_repeats(expression.pattern)
    if count is None or count > _MOST_REPEATS:
        remedy = "use at most two of * + {}, not nested"
        message = f"the pattern {display_path(pattern)!r} repeats too much to be safe; {remedy}"
        raise access.refusal(message, "pattern_invalid")
    return lambda _, name: expression.search(name) is not None


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
        info = codecs.lookup(name)
        codec = info.name
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


def with_actual_mark(encoding: Encoding, head: bytes) -> Encoding:
    """Return an encoding with the byte order mark that the file has."""
    for mark, codec in _MARKS:
        if head.startswith(mark) and codec[:6] == encoding.codec[:6]:
            return Encoding(codec, mark)
    return encoding._replace(mark=b"")


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
        newline = block.find(_NEWLINE)
        if newline >= 0:
            return at + newline + 1
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
