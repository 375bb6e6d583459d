"""Tools that look at files: read_file, get_file_info, list_files and glob_files."""

from __future__ import annotations

import heapq
import os
import re
import stat
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from io import FileIO
from operator import attrgetter, itemgetter
from typing import Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, FilePath, OpenFile, display_path, file_changed_error, file_tool
from toolpost.builtin.file_walk import LONGEST, Glob, GlobError, OpenFolder, Skip, is_generated, is_kernel_folder, walk
from toolpost.builtin.text_files import (
    UTF8,
    Encoding,
    LineRange,
    LineRequest,
    decode_text,
    detect_encoding,
    parse_encoding,
    read_decoded_lines,
    read_lines,
    with_actual_mark,
)
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
    return [with_camel_case(made) for made in (read_file, get_file_info, list_files, glob_files)]


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
        content["content"] = _numbered(content["content"], offset)
    return content


@file_tool(side_effects="read", timeout_s=10)
async def get_file_info(path: FilePath, ctx: ToolContext) -> FileFacts:
    """Tell whether a file or folder exists, how large it is, and when it was last changed."""
    access = FileAccess.of(ctx, "get_file_info")
    return await run_cancellable(partial(_facts, access, path))


class _Reading:
    """Reads some lines of one file."""

    def __init__(self, access: FileAccess, path: str, wanted: LineRequest, encoding: str | None) -> None:
        self._access = access
        self._path = path
        self._wanted = wanted
        self._asked = None if encoding is None else parse_encoding(encoding, tool_name=access.tool_name)

    def run(self, check_cancelled: Callable[[], None]) -> FileContent:
        with self._access.open_file(self._path) as opened, FileIO(opened.fd, closefd=False) as file:
            encoding = self._encoding(file.read(_HEAD) or b"")
            lines = self._lines(file, opened.status.st_size, encoding, check_cancelled)
            self._check_unchanged(opened)
        return self._content(lines, encoding, opened.status.st_size)

    def _encoding(self, head: bytes) -> Encoding:
        if self._asked is not None:
            return with_actual_mark(self._asked, head)
        found = detect_encoding(head)
        if found is None:
            message = f"{display_path(self._path)!r} is a binary file; if there is text in it, name its `encoding`"
            raise self._access.refusal(message, "binary_file")
        return found

    def _lines(self, file: FileIO, size: int, encoding: Encoding, check_cancelled: Callable[[], None]) -> LineRange:
        if encoding.ends_lines_with_a_byte:
            return read_lines(file, size, self._wanted, check_cancelled=check_cancelled)
        try:
            return read_decoded_lines(file, size, self._wanted, encoding, check_cancelled=check_cancelled)
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
            "offset": self._wanted.first,
            "limit": self._wanted.lines,
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


def _numbered(text: str, offset: int) -> str:
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


Folder = Annotated[
    str | None,
    Field(min_length=1, description="The folder; left out, the working folder or the first allowed one"),
]

AllFolders = Annotated[
    bool,
    Field(validation_alias=either("all_folders"), description="Look into .git, node_modules, build and the like, too"),
]


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


@dataclass(slots=True, kw_only=True)
class _Listing:
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
            found = [_info(entry, listed.folder, above) for entry in chosen]
            self.files += [info for info in found if info is not None]

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
