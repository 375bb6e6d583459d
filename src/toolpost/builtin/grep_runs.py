"""The two programs that search files: ripgrep where it is installed, else our own."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.builtin.globs import expanded
from toolpost.builtin.grep_program import Order
from toolpost.builtin.search_hits import Hits
from toolpost.builtin.tree import GENERATED
from toolpost.builtin.workers import in_worker
from toolpost.contracts.errors import ErrorCategory, ToolClientError, ToolServerError, ToolTimeoutError
from toolpost.processes.commands import run_command
from toolpost.processes.launch import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.builtin.search_patterns import SearchPattern
    from toolpost.processes.commands import CommandResult, CommandRunner

_PACKAGE = str(Path(__file__).parent.parent.parent)
_OWN = "import sys; sys.path.insert(0, sys.argv[1]); from toolpost.builtin.grep_program import main; main(sys.argv[2])"
_MOST_OUTPUT = 64 << 20
_PIECE = 1 << 20
_NARROW = "search a smaller folder, say `include`, or use another pattern"
_FLAGS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading", "--with-filename"),
    *("--null", "--line-number", "--column", "--byte-offset", "--crlf", "--max-columns=1"),
)
# What means the same to ripgrep; to it `?` is one byte, and `**` more than `*`.
_SIMPLE_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*")
_FOUND, _NOTHING, _UNREADABLE = 0, 1, 2


@dataclass(frozen=True, slots=True, kw_only=True)
class Search:
    """What to look for, and in which open folder or in which file of it."""

    pattern: SearchPattern
    ignore_case: bool
    folder: int
    real: str
    file: str | None
    include: str | None
    all_folders: bool

    @property
    def from_root(self) -> bool:
        """Whether the search begins at the root of the system, below which the kernel has files of its own."""
        return self.real == os.sep and self.file is None


def find_ripgrep(name: str | None) -> str | None:
    """The path of ripgrep; None when it is not there, or not wanted."""
    return None if name is None else shutil.which(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Searcher:
    """Runs searches, each in a process that is ended when time is up."""

    ripgrep: str | None
    commands: CommandRunner | None
    limit_s: float

    async def run(self, search: Search, *, keep: int) -> Hits:
        """What a search finds; of each file all lines are counted and the first `keep` are kept."""
        argv = _ripgrep_command(search, self.ripgrep) if self.ripgrep else _own_command(search)
        result = await self._result(argv, _folder_path(search))
        _check(result, by_ripgrep=self.ripgrep is not None)
        return await in_worker(partial(_hits, result.stdout, keep))

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


def _hits(output: bytes, keep: int, goes_on: Callable[[], None]) -> Hits:
    hits, view = Hits(keep=keep), memoryview(output)
    for begin in range(0, len(output), _PIECE):
        goes_on()
        hits.feed(bytes(view[begin : begin + _PIECE]))
    return hits


def _check(result: CommandResult, *, by_ripgrep: bool) -> None:
    """Refuse what a search printed that did not come to its end: it would pass for everything there is."""
    code, said = result.exit_code, result.stderr.strip()
    if code == _FOUND or (by_ripgrep and (code == _NOTHING or (code == _UNREADABLE and not said))):
        return
    lines = said.splitlines() or [f"code {code}"]
    reason = next((line for line in lines if line.startswith("error: ")), lines[0] if by_ripgrep else lines[-1])
    if by_ripgrep and code == _UNREADABLE and "regex" in said:
        raise ToolClientError(f"Invalid regex pattern: {reason.removeprefix('error: ')}", code="pattern_invalid")
    raise ToolServerError(f"the search ended before its time ({reason[:200]}); {_NARROW}", code="search_failed")


def _ripgrep_command(search: Search, ripgrep: str) -> tuple[str, ...]:
    globs = [] if search.include is None else _simple(expanded(search.include))
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
        f"--regexp={search.pattern.ripgrep}",
        "--",
        "./" if search.file is None else f"./{search.file}",
    )


def _simple(globs: list[str]) -> list[str]:
    """The patterns, if ripgrep can be told all of them; those of its files that do not fit are left out anyway."""
    told = all(glob and _SIMPLE_NAMES.issuperset(glob) and "**" not in glob for glob in globs)
    return globs if told else []


def _own_command(search: Search) -> tuple[str, ...]:
    order = Order(
        search.pattern.python,
        search.pattern.strict,
        search.ignore_case,
        search.file,
        search.include,
        search.all_folders,
        search.from_root,
    )
    return (sys.executable, "-I", "-S", "-c", _OWN, _PACKAGE, order.pack())


def _folder_path(search: Search) -> str:
    """The folder that is open, by its handle where the system has names for those: no link can be put in its place."""
    by_handle = f"/proc/{os.getpid()}/fd/{search.folder}"
    return by_handle if Path(by_handle).exists() else search.real
