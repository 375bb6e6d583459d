"""The tool grep_files: a program finds the lines, and their text is read again from the handles of folders."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal, NamedTuple

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path
from toolpost.builtin.file_reading import AllFolders, Folder, shown_name
from toolpost.builtin.file_walk import LONGEST, Glob, GlobError
from toolpost.builtin.grep_program import LARGEST_UTF16, LOOK, UTF8_MARK, UTF16_MARKS
from toolpost.builtin.search_programs import GrepQuery, GrepRunner, Hits, PatternError, find_ripgrep, parse_pattern
from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from typing import BinaryIO

    from toolpost.builtin.search_programs import Hit
    from toolpost.processes.commands import CommandRunner


SEARCH_S = 25.0

Include = Annotated[
    str | None, Field(min_length=1, max_length=LONGEST, description="Only files like this: *.py, *.{js,ts}")
]
ContextLines = Annotated[
    int, Field(ge=0, le=10, validation_alias=either("context_lines"), description="Lines around each match")
]
OutputMode = Annotated[
    Literal["content", "files"],
    Field(validation_alias=either("output_mode"), description="The lines, or only the files and their counts"),
]
_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | _FLAGS
_AROUND = 64 << 10
_LONGEST = 500
_LEAD = 200


class Match(TypedDict):
    """A line that matches, with its number from 1 and the lines around it."""

    file: str
    line_number: int
    line: str
    before: list[str]
    after: list[str]


class FileCount(TypedDict):
    """How many lines of a file match."""

    file: str
    count: int


class GrepResult(TypedDict):
    """Matching lines, or the files that hold them; `total_matches` counts lines that were left out as well."""

    path: str
    matches: list[Match]
    files: list[FileCount]
    total_matches: int
    truncated: bool


def grep_tools(
    *, ripgrep: str | None = "rg", commands: CommandRunner | None = None, limit_s: float = SEARCH_S
) -> list[FunctionTool]:
    """Return the tools of this module; `ripgrep` names the program that searches, None chooses our own.

    Searches start faster with `commands`, which the caller closes.
    """
    program = GrepRunner(ripgrep=find_ripgrep(ripgrep), commands=commands, limit_s=limit_s)
    return [with_camel_case(_grep_files(program))]


def _grep_files(searcher: GrepRunner) -> FunctionTool:
    @tool(
        side_effects="read",
        file=True,
        category=ToolCategory.FILE,
        tags=["builtin", "file"],
        timeout_s=searcher.limit_s + 5,
    )
    async def grep_files(
        pattern: Annotated[str, Field(min_length=1, description="A regular expression, matched line by line")],
        ctx: ToolContext,
        *,
        path: Folder = None,
        include: Include = None,
        case_insensitive: Annotated[bool, Field(validation_alias=either("case_insensitive"))] = False,
        context_lines: ContextLines = 0,
        max_results: Annotated[int, Field(ge=1, le=1000, validation_alias=either("max_results"))] = 50,
        output_mode: OutputMode = "content",
        all_folders: AllFolders = False,
    ) -> GrepResult:
        """Search the lines of files with a regular expression; binary files and links are passed over."""
        access = FileAccess.of(ctx, "grep_files")
        given = access.start_folder(path)
        make = partial(_search, access, pattern, include, ignore_case=case_insensitive, all_folders=all_folders)
        with ExitStack() as held:
            search = await run_cancellable(partial(make, given, held))
            hits = await searcher.run(search, keep=max_results)
            lines = LineReader(search.folder, max_results=max_results, context=context_lines, hides=access.is_protected)
            only_files = output_mode == "files"
            return await run_cancellable(partial(_result, lines, hits, given, search, only_files=only_files))

    return grep_files


def _search(
    access: FileAccess,
    pattern: str,
    include: str | None,
    given: str,
    held: ExitStack,
    check_cancelled: Callable[[], None],
    *,
    ignore_case: bool,
    all_folders: bool,
) -> GrepQuery:
    """Check the arguments and open the folder, which stays open until `held` is closed."""
    check_cancelled()
    try:
        both = parse_pattern(pattern)
        if include is not None:
            Glob(include, anywhere=True)
    except (PatternError, GlobError) as wrong:
        raise access.refusal(f"Invalid regex pattern: {wrong}", "pattern_invalid") from None
    place = held.enter_context(access.place(given))
    status = place.status_or_none()
    if status is None:
        raise access.refusal(
            f"Path not found: {display_path(given)!r}; list_files shows what is there", "file_not_found"
        )
    folder, file, real = place.folder, None, place.real
    if stat.S_ISDIR(status.st_mode):
        folder = held.enter_context(access.open_folder(given)).fd
    else:
        access.check_regular(place, status)
        file, real = place.name, str(Path(place.real).parent)
    return GrepQuery(
        pattern=both,
        ignore_case=ignore_case,
        folder=-1 if folder is None else folder,
        real=real,
        file=file,
        include=include,
        all_folders=all_folders,
    )


def _result(
    lines: LineReader,
    hits: Hits,
    given: str,
    search: GrepQuery,
    check_cancelled: Callable[[], None],
    *,
    only_files: bool,
) -> GrepResult:
    include = None if search.include is None or search.file else Glob(search.include, anywhere=True)
    total, matches, files = 0, list[Match](), list[FileCount]()
    for raw in sorted(hits.files):
        check_cancelled()
        folder, slash, name = os.fsdecode(raw).rpartition("/")
        if include is not None and not include.matches(folder + slash, name):
            continue
        found, shown_as = hits.files[raw], _shown_path(given, raw, search)
        texts = lines.read(folder + slash, name, found.first, wanted=0 if only_files else len(found.first))
        if texts is None:  # binary, or another file by now
            continue
        total += found.count
        files.append({"file": shown_as, "count": found.count})
        matches += [_match(shown_as, text) for text in texts]
    kept = files[: lines.max_results] if only_files else []
    cut = len(kept) < len(files) if only_files else len(matches) < total
    return {"path": given, "matches": matches, "files": kept, "total_matches": total, "truncated": cut}


def _match(file: str, found: MatchedLine) -> Match:
    return {
        "file": file,
        "line_number": found.number,
        "line": found.line,
        "before": found.before,
        "after": found.after,
    }


def _shown_path(given: str, raw: bytes, search: GrepQuery) -> str:
    if search.file is not None:
        return given
    name = shown_name(os.fsdecode(raw))
    return name if given == "." else f"{given.rstrip('/')}/{name}"


class MatchedLine(NamedTuple):
    """A line, cut where it is very long, with those around it."""

    number: int
    line: str
    before: list[str]
    after: list[str]


class LineReader:
    """Reads the text of matched lines, until there are `max_results`."""

    def __init__(
        self, folder: int, *, max_results: int, context: int, hides: Callable[[os.stat_result], bool] | None = None
    ) -> None:
        self.max_results = max_results
        self._folder = folder
        self._hides = hides
        self._context = context
        self._read = 0

    def read(self, folder: str, name: str, hits: Sequence[Hit], *, wanted: int) -> list[MatchedLine] | None:
        """Read the lines of the hits in one file, as far as there is room; None for a binary or hidden file."""
        try:
            fd = self._open(folder, name)
        except OSError:
            return None
        with FileIO(fd) as file:
            head = file.read(LOOK) or b""
            text = _as_utf8(file, head)
            if text is None:
                return None
            base = len(UTF8_MARK) if head.startswith(UTF8_MARK) else 0
            room = min(wanted, self.max_results - self._read)
            found = [_line(text, hit, base, self._context) for hit in hits[: max(room, 0)]]
        whole = [line for line in found if line is not None]
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


def _as_utf8(file: FileIO, head: bytes) -> BinaryIO | FileIO | None:
    """Return the file, converted to UTF-8 if it is UTF-16; None for binary files."""
    for mark, codec in UTF16_MARKS:
        if head.startswith(mark):
            if os.fstat(file.fileno()).st_size > LARGEST_UTF16:
                return None
            file.seek(len(mark))
            return BytesIO((file.read() or b"").decode(codec, "replace").encode())
    return None if b"\0" in head else file


def _line(file: BinaryIO | FileIO, hit: Hit, base: int, context: int) -> MatchedLine | None:
    """Read the line of a hit; None when no line begins there any more."""
    begin = base + hit.offset
    above = _piece(file, max(base, begin - _AROUND), begin)
    if begin > base and not above.endswith(b"\n"):
        return None
    skipped = max(0, hit.column - 1 - _LEAD) if hit.column > _LONGEST - _LEAD else 0
    line, ended, _ = _piece(file, begin + skipped, begin + skipped + 4 * _LONGEST).partition(b"\n")
    shown = ("..." if skipped else "") + _shown(line)
    if not context:
        return MatchedLine(hit.line, shown, [], [])
    before = above.split(b"\n")[:-1][-context:]
    end = begin + skipped + len(line) + 1 if ended else None
    after = [] if end is None else _lines_after(file, end, context)
    return MatchedLine(hit.line, shown, [*map(_shown, before)], [*map(_shown, after)])


def _lines_after(file: BinaryIO | FileIO, begin: int, count: int) -> list[bytes]:
    piece = _piece(file, begin, begin + _AROUND)
    lines = piece.split(b"\n")
    return (lines if lines[-1] else lines[:-1])[:count]


def _piece(file: BinaryIO | FileIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin) or b""


def _shown(line: bytes) -> str:
    line = line.removesuffix(b"\r")
    try:
        text = line.decode()
    except UnicodeDecodeError as wrong:
        cut = len(line) - wrong.start < 4 and len(line) >= 4 * _LONGEST  # the last character may be a half
        text = line[: wrong.start].decode() if cut else _otherwise(line)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."


def _otherwise(line: bytes) -> str:
    """Decode a piece of a long line, which may begin within a character; other bytes are read as latin-1."""
    return line.decode("utf-8", "ignore") if line[0] & 0xC0 == 0x80 else line.decode("latin-1")
