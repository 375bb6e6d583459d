"""The tool that searches in files: grep_files.

A program finds the lines; what is handed on is read here, from the handles of folders, whichever program it was.
"""

from __future__ import annotations

import os
import stat
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.file_access import FileAccess
from toolpost.builtin.file_failures import shown
from toolpost.builtin.found_lines import FoundLine, FoundLines
from toolpost.builtin.globs import LONGEST, Glob, GlobError
from toolpost.builtin.grep_runs import Search, Searcher, find_ripgrep
from toolpost.builtin.listing import AllFolders, Folder, shown_name
from toolpost.builtin.search_hits import Hits
from toolpost.builtin.search_patterns import PatternError, search_pattern
from toolpost.builtin.spelling import either, with_camel_case
from toolpost.builtin.workers import in_worker
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory

if TYPE_CHECKING:
    from collections.abc import Callable

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


class Found(TypedDict):
    """Matching lines, or the files that hold them; `total_matches` counts lines that were left out as well."""

    path: str
    matches: list[Match]
    files: list[FileCount]
    total_matches: int
    truncated: bool


def searching_tools(
    *, ripgrep: str | None = "rg", commands: CommandRunner | None = None, limit_s: float = SEARCH_S
) -> list[FunctionTool]:
    """The tools of this module; `ripgrep` names its program, and None stands for our own search.

    Searches start faster with `commands`, which whoever made them closes.
    """
    program = Searcher(ripgrep=find_ripgrep(ripgrep), commands=commands, limit_s=limit_s)
    return [with_camel_case(_grep_files(program))]


def _grep_files(searcher: Searcher) -> FunctionTool:
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
    ) -> Found:
        """Search the lines of files with a regular expression; binary files and links are passed over."""
        access = FileAccess.of(ctx, "grep_files")
        given = access.start_folder(path)
        make = partial(_search, access, pattern, include, ignore_case=case_insensitive, all_folders=all_folders)
        with ExitStack() as held:
            search = await in_worker(partial(make, given, held))
            hits = await searcher.run(search, keep=max_results)
            lines = FoundLines(search.folder, max_results=max_results, context=context_lines, hides=access.is_protected)
            only_files = output_mode == "files"
            return await in_worker(partial(_result, lines, hits, given, search, only_files=only_files))

    return grep_files


def _search(
    access: FileAccess,
    pattern: str,
    include: str | None,
    given: str,
    held: ExitStack,
    goes_on: Callable[[], None],
    *,
    ignore_case: bool,
    all_folders: bool,
) -> Search:
    """Check what was asked and open the folder, which stays open until `held` is closed."""
    goes_on()
    try:
        both = search_pattern(pattern)
        if include is not None:
            Glob(include, anywhere=True)
    except (PatternError, GlobError) as wrong:
        raise access.refusal(f"Invalid regex pattern: {wrong}", "pattern_invalid") from None
    place = held.enter_context(access.place(given))
    status = place.status_or_none()
    if status is None:
        raise access.refusal(f"Path not found: {shown(given)!r}; list_files shows what is there", "file_not_found")
    folder, file, real = place.folder, None, place.real
    if stat.S_ISDIR(status.st_mode):
        folder = held.enter_context(access.open_folder(given)).fd
    else:
        access.check_regular(place, status)
        file, real = place.name, str(Path(place.real).parent)
    return Search(
        pattern=both,
        ignore_case=ignore_case,
        folder=-1 if folder is None else folder,
        real=real,
        file=file,
        include=include,
        all_folders=all_folders,
    )


def _result(
    lines: FoundLines, hits: Hits, given: str, search: Search, goes_on: Callable[[], None], *, only_files: bool
) -> Found:
    include = None if search.include is None or search.file else Glob(search.include, anywhere=True)
    total, matches, files = 0, list[Match](), list[FileCount]()
    for raw in sorted(hits.files):
        goes_on()
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


def _match(file: str, found: FoundLine) -> Match:
    return {
        "file": file,
        "line_number": found.number,
        "line": found.line,
        "before": found.before,
        "after": found.after,
    }


def _shown_path(given: str, raw: bytes, search: Search) -> str:
    if search.file is not None:
        return given
    name = shown_name(os.fsdecode(raw))
    return name if given == "." else f"{given.rstrip('/')}/{name}"
