"""The tools read_file and get_file_info."""

from __future__ import annotations

import os
import stat
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Annotated

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, FilePath, OpenFile, display_path, file_changed_error, file_tool
from toolpost.builtin.line_ranges import LineRange, LineRequest, read_decoded_lines, read_lines
from toolpost.builtin.text_encoding import (
    Encoding,
    decode_text,
    detect_encoding,
    parse_encoding,
    with_actual_mark,
)
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.context import ToolContext

LINES = 2000
CONTENT_BYTES = 1_000_000
_HEAD = 8192
_ABSENT = ("file_not_found", "not_a_folder")


class FileContent(TypedDict):
    """Lines of a file; `total_lines` is null if counting would take too long."""

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
    """Facts about a path, null if it does not exist; `modified` is in milliseconds since 1970."""

    path: str
    exists: bool
    size: int | None
    modified: int | None
    is_file: bool
    is_directory: bool


def reading_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [with_camel_case(tool) for tool in (read_file, get_file_info)]


@file_tool(side_effects="read", timeout_s=30)
async def read_file(
    path: FilePath,
    ctx: ToolContext,
    *,
    encoding: Annotated[str | None, Field(description="Default: detected from the first bytes, else UTF-8")] = None,
    offset: Annotated[int, Field(ge=0, description="The first line to read, from 0")] = 0,
    limit: Annotated[int, Field(ge=1, le=100_000, description="Maximum number of lines")] = LINES,
    line_numbers: Annotated[
        bool,
        Field(
            description="Prefix each line with its number, from 1, and a tab", validation_alias=either("line_numbers")
        ),
    ] = False,
) -> FileContent:
    """Read a text file, or some of its lines; `next_offset` starts the next part, null at the end.

    One call reads at most 1 MB; larger files can be read in parts.
    """
    access = FileAccess.of(ctx, "read_file")
    reading = _Reading(access, path, LineRequest(offset, limit, CONTENT_BYTES), encoding)
    content = await run_cancellable(reading.run)
    if line_numbers:
        content["content"] = _number_lines(content["content"], offset)
    return content


@file_tool(side_effects="read", timeout_s=10)
async def get_file_info(path: FilePath, ctx: ToolContext) -> FileFacts:
    """Return whether a file or folder exists, its size, and the time of its last change."""
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
        """Reject a file that was rewritten while it was read; a file that only grew, like a log, is fine."""
        before, after = opened.status, os.fstat(opened.fd)
        touched = before.st_mtime_ns != after.st_mtime_ns
        if after.st_size < before.st_size or (touched and after.st_size == before.st_size):
            raise file_changed_error(self._path, tool_name=self._access.tool_name)

    def _content(self, lines: LineRange, encoding: Encoding, size: int) -> FileContent:
        stored = encoding if encoding.ends_lines_with_a_byte else Encoding("utf-8")
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
    """Decode lines; a line that was cut may end inside a character."""
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
