"""The two programs that search files: ripgrep where it is installed, else our own."""

from __future__ import annotations

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.builtin.grep_program import Order
from toolpost.builtin.search_hits import Hits
from toolpost.builtin.tree import GENERATED
from toolpost.contracts.errors import ErrorCategory, ToolClientError, ToolTimeoutError
from toolpost.wire.commands import run_command
from toolpost.wire.environment import child_environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.builtin.search_patterns import SearchPattern
    from toolpost.wire.commands import CommandResult, Commands

_PACKAGE = str(Path(__file__).parent.parent.parent)
_OWN = "import sys; sys.path.insert(0, sys.argv[1]); from toolpost.builtin.grep_program import main; main(sys.argv[2])"
_MOST_OUTPUT = 64 << 20
_NARROW = "search a smaller folder, say `include`, or use another pattern"
_FLAGS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading", "--with-filename"),
    *("--null", "--line-number", "--column", "--byte-offset", "--text", "--crlf", "--max-columns=1"),
)
_SIMPLE_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*?{},")


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
    commands: Commands | None
    limit_s: float

    async def run(self, search: Search, *, keep: int) -> Hits:
        """What a search finds; of each file all lines are counted and the first `keep` are kept."""
        argv = _ripgrep_command(search, self.ripgrep) if self.ripgrep else _own_command(search)
        result = await self._result(argv, _folder_path(search))
        if not result.stdout and result.exit_code not in (0, 1) and "regex" in result.stderr:
            reason = result.stderr.strip().splitlines()[-1]
            raise ToolClientError(f"Invalid regex pattern: {reason}", code="pattern_invalid")
        hits = Hits(keep=keep)
        hits.feed(result.stdout)
        return hits

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


def _ripgrep_command(search: Search, ripgrep: str) -> tuple[str, ...]:
    globs: list[str] = []
    if search.include is not None and _SIMPLE_NAMES.issuperset(search.include):
        globs.append(search.include)
    if not search.all_folders:
        globs += [f"!{name}/" for name in sorted(GENERATED)]
    if search.from_root:
        globs += ["!/proc/", "!/sys/", "!/dev/"]
    return (
        ripgrep,
        *_FLAGS,
        *(["--ignore-case"] if search.ignore_case else []),
        *([f"--glob={glob}" for glob in globs] if search.file is None else []),
        f"--regexp={search.pattern.ripgrep}",
        "--",
        "./" if search.file is None else f"./{search.file}",
    )


def _own_command(search: Search) -> tuple[str, ...]:
    order = Order(
        search.pattern.python,
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
