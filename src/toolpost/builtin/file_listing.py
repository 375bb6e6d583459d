"""The tools list_files and glob_files."""

from __future__ import annotations

import heapq
import os
import re
from collections.abc import Callable
from functools import partial
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Annotated

from msgspec import Struct, field
from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path, file_tool
from toolpost.builtin.file_walk import LONGEST, Glob, GlobError, OpenFolder, Skip, is_generated, is_kernel_folder, walk
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_cancellable
from toolpost.schema.patterns import count_repeats

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

Matches = Callable[[str, str], bool]
_REGEX = "re:"
# Names have at most 255 characters, which bounds the time of this many repeats.
_MOST_REPEATS = 2
Folder = Annotated[
    str | None,
    Field(min_length=1, description="The folder; default: the working folder, or the first allowed one"),
]
AllFolders = Annotated[
    bool,
    Field(validation_alias=either("all_folders"), description="Include .git, node_modules, build and similar folders"),
]


class FileInfo(TypedDict):
    """One entry: its name, its `path` for other tools, and `modified` in milliseconds."""

    name: str
    path: str
    is_dir: bool
    is_link: bool
    size: int
    modified: int


class FileList(TypedDict):
    """Entries; `total` includes omitted ones."""

    path: str
    files: list[FileInfo]
    total: int
    truncated: bool


def listing_tools() -> list[FunctionTool]:
    """Return the tools of this module."""
    return [with_camel_case(tool) for tool in (list_files, glob_files)]


@file_tool(side_effects="read", timeout_s=30)
async def list_files(
    ctx: ToolContext,
    *,
    path: Folder = None,
    recursive: Annotated[bool, Field(description="Include the folders below")] = False,
    pattern: Annotated[
        str | None,
        Field(
            min_length=1,
            max_length=LONGEST,
            description="Only names like *.py, {a,b}*, src/**/*.ts, or re: and a regular expression",
        ),
    ] = None,
    include_dirs: Annotated[
        bool, Field(validation_alias=either("include_dirs"), description="Include folders, not only files")
    ] = True,
    limit: Annotated[int, Field(ge=1, le=10_000, description="Maximum number of entries")] = 1000,
) -> FileList:
    """List the files in a folder. Links are listed but not followed."""
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
    """Find files by a path pattern, most recently changed first."""
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
            # Only returned entries are inspected: that costs more than finding them.
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
    except OSError:  # deleted concurrently
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
    """Return a name that is valid in JSON; bytes that are not UTF-8 become escapes."""
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
