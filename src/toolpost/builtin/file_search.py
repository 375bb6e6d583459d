"""The tool grep_files: ripgrep finds the lines, and their text is read through the handles of folders."""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path, file_tool
from toolpost.builtin.file_listing import AllFolders, Folder, shown_name
from toolpost.builtin.file_walk import LONGEST, Glob, GlobError
from toolpost.builtin.matched_lines import LineReader, MatchedLine
from toolpost.builtin.ripgrep import GrepQuery, GrepRunner, Hits
from toolpost.builtin.search_pattern import PatternError, translate_pattern
from toolpost.catalog.threads import run_cancellable

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.context import ToolContext
    from toolpost.processes.commands import CommandRunner

SEARCH_S = 25.0

Include = Annotated[
    str | None, Field(min_length=1, max_length=LONGEST, description="Only files that match, such as *.py or *.{js,ts}")
]
ContextLines = Annotated[
    int, Field(ge=0, le=10, validation_alias=either("context_lines"), description="Lines of context around each match")
]
OutputMode = Annotated[
    Literal["content", "files"],
    Field(validation_alias=either("output_mode"), description="Return the lines, or only the files with their counts"),
]


class Match(TypedDict):
    """A matching line with its number, from 1, and its context."""

    file: str
    line_number: int
    line: str
    before: list[str]
    after: list[str]


class FileCount(TypedDict):
    """The number of matching lines of a file."""

    file: str
    count: int


class GrepResult(TypedDict):
    """Matching lines, or files with matches; `total_matches` includes omitted lines."""

    path: str
    matches: list[Match]
    files: list[FileCount]
    total_matches: int
    truncated: bool


def grep_tools(
    *, ripgrep: str = "rg", commands: CommandRunner | None = None, limit_s: float = SEARCH_S
) -> list[FunctionTool]:
    """Return the tools of this module; `ripgrep` is the name or path of ripgrep.

    Searches start faster with `commands`, which the caller closes.
    """
    searcher = GrepRunner(program=ripgrep, commands=commands, limit_s=limit_s)

    @file_tool(side_effects="read", timeout_s=searcher.limit_s + 5)
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
        """Search the lines of files with a regular expression; binary files and links are skipped."""
        access = FileAccess.of(ctx, "grep_files")
        start = access.start_folder(path)
        make = partial(_search, access, pattern, include, ignore_case=case_insensitive, all_folders=all_folders)
        with ExitStack() as stack:
            search = await run_cancellable(partial(make, start, stack))
            hits = await searcher.run(search, keep=max_results)
            lines = LineReader(search.folder, max_results=max_results, context=context_lines, hides=access.is_protected)
            only_files = output_mode == "files"
            return await run_cancellable(partial(_result, lines, hits, start, search, only_files=only_files))

    return [with_camel_case(grep_files)]


def _search(
    access: FileAccess,
    pattern: str,
    include: str | None,
    path: str,
    stack: ExitStack,
    check_cancelled: Callable[[], None],
    *,
    ignore_case: bool,
    all_folders: bool,
) -> GrepQuery:
    """Check the arguments and open the folder, which stays open until `stack` is closed."""
    check_cancelled()
    try:
        translated = translate_pattern(pattern)
        if include is not None:
            Glob(include, anywhere=True)
    except (PatternError, GlobError) as wrong:
        raise access.refusal(f"Invalid regex pattern: {wrong}", "pattern_invalid") from None
    place = stack.enter_context(access.place(path))
    status = place.status_or_none()
    if status is None:
        raise access.refusal(
            f"Path not found: {display_path(path)!r}; list_files shows the existing files", "file_not_found"
        )
    folder, file, real = place.folder, None, place.real
    if stat.S_ISDIR(status.st_mode):
        folder = stack.enter_context(access.open_folder(path)).fd
    else:
        access.check_regular(place, status)
        file, real = place.name, str(Path(place.real).parent)
    return GrepQuery(
        pattern=translated,
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
    path: str,
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
        file_hits, shown_as = hits.files[raw], _shown_path(path, raw, search)
        texts = lines.read(folder + slash, name, file_hits.first, most=0 if only_files else len(file_hits.first))
        if texts is None:  # binary, or replaced by another file
            continue
        total += file_hits.count
        files.append({"file": shown_as, "count": file_hits.count})
        matches += [_match(shown_as, text) for text in texts]
    shown = files[: lines.max_results] if only_files else []
    cut = len(shown) < len(files) if only_files else len(matches) < total
    return {"path": path, "matches": matches, "files": shown, "total_matches": total, "truncated": cut}


def _match(file: str, line: MatchedLine) -> Match:
    return {
        "file": file,
        "line_number": line.number,
        "line": line.line,
        "before": line.before,
        "after": line.after,
    }


def _shown_path(path: str, raw: bytes, search: GrepQuery) -> str:
    if search.file is not None:
        return path
    name = shown_name(os.fsdecode(raw))
    return name if path == "." else f"{path.rstrip('/')}/{name}"
