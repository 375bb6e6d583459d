"""Runs ripgrep, or our own program where ripgrep is missing: patterns that both understand, the process, its output."""

from __future__ import annotations

import os
import re
import shutil
import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from toolpost.builtin.file_walk import GENERATED, expand_braces
from toolpost.builtin.grep_program import GrepRequest
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ErrorCategory, ToolClientError, ToolServerError, ToolTimeoutError
from toolpost.processes.commands import run_command
from toolpost.processes.launch import child_environment

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

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
# What ripgrep prints, old and new, where it stops at a NUL; what it printed of such a file before is dropped as well.
_STOPPED = re.compile(
    rb"(?:(?P<path>.*): )?WARNING: stopped searching binary file (?P<old>.*? )?after match \(found", re.DOTALL
)
_TOKEN = re.compile(
    r"""(?P<escape>\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.))
    |(?P<set>\[\^?\]?(?:\\.|[^\]\\])*\])
    |(?P<group>\(\?(?:P<\w+>|[ims]*(?:-[ims]+)?[:)]))
    |(?P<special>\(\?)
    |(?P<possessive>(?:[*+?]|\{\d*,?\d*\})\+)
    |(?P<upto>\{,(?P<most>\d+)\})
    |(?P<repeat>[*+?]|\{\d+(?:,\d*)?\})
    |(?P<brace>[{}])
    |(?P<newline>[\n\r])
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_ESCAPES = frozenset("aftvdDsSwWbBxuU")
_IN_SET = re.compile(r"\\(?:x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|.)|.", re.DOTALL)
_NUMBERED = re.compile(r"\\[xuU]([0-9a-fA-F]+)")
_LONGEST = 2000
# Bytes that are no UTF-8, as Python decodes them with `surrogateescape`; ripgrep has nothing match them.
_BROKEN = r"[\udc80-\udcff]"
_SURROGATES = range(0xD800, 0xE000)
_LINE_ENDS = (0x0A, 0x0D)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepQuery:
    """A search: the pattern, and the open folder or the file in it to search."""

    pattern: SearchPattern
    ignore_case: bool
    folder: int
    real: str
    file: str | None
    include: str | None
    all_folders: bool

    @property
    def from_root(self) -> bool:
        """Whether the search begins at the root of the system, below which the kernel has files."""
        return self.real == os.sep and self.file is None


def find_ripgrep(name: str | None) -> str | None:
    """Return the path of ripgrep; None when it is not installed, or not wanted."""
    return None if name is None else shutil.which(name)


@dataclass(frozen=True, slots=True, kw_only=True)
class GrepRunner:
    """Runs searches, each in a process of its own that is killed at the timeout."""

    ripgrep: str | None
    commands: CommandRunner | None
    limit_s: float

    async def run(self, search: GrepQuery, *, keep: int) -> Hits:
        """Run a search; of each file all matching lines are counted and the first `keep` are kept."""
        argv = _ripgrep_command(search, self.ripgrep) if self.ripgrep else _own_command(search)
        result = await self._result(argv, _folder_path(search))
        _check(result, by_ripgrep=self.ripgrep is not None)
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


def _check(result: CommandResult, *, by_ripgrep: bool) -> None:
    """Raise an error for a search that did not finish: its output would pass for the whole result."""
    code, said = result.exit_code, result.stderr.strip()
    if code == _FOUND or (by_ripgrep and (code == _NOTHING or (code == _UNREADABLE and not said))):
        return
    lines = said.splitlines() or [f"code {code}"]
    reason = next((line for line in lines if line.startswith("error: ")), lines[0] if by_ripgrep else lines[-1])
    if by_ripgrep and code == _UNREADABLE and "regex" in said:
        raise ToolClientError(f"Invalid regex pattern: {reason.removeprefix('error: ')}", code="pattern_invalid")
    raise ToolServerError(f"the search ended before its time ({reason[:200]}); {_NARROW}", code="search_failed")


def _ripgrep_command(search: GrepQuery, ripgrep: str) -> tuple[str, ...]:
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
        f"--regexp={search.pattern.ripgrep}",
        "--",
        "./" if search.file is None else f"./{search.file}",
    )


def _simple(globs: list[str]) -> list[str]:
    """Return the globs if ripgrep reads all of them alike; else none, as its files are filtered again anyway."""
    simple = all(glob and _SIMPLE_NAMES.issuperset(glob) and "**" not in glob for glob in globs)
    return globs if simple else []


def _own_command(search: GrepQuery) -> tuple[str, ...]:
    order = GrepRequest(
        search.pattern.python,
        search.pattern.strict,
        search.ignore_case,
        search.file,
        search.include,
        search.all_folders,
        search.from_root,
    )
    return (sys.executable, "-I", "-S", "-c", _OWN, _PACKAGE, order.pack())


def _folder_path(search: GrepQuery) -> str:
    """Return a path of the open folder; by its handle, where no link can replace it, if the system has /proc."""
    by_handle = f"/proc/{os.getpid()}/fd/{search.folder}"
    return by_handle if Path(by_handle).exists() else search.real


class Hit(NamedTuple):
    """A matching line: its number from 1, and in bytes the column of the match and the line's offset."""

    line: int
    column: int
    offset: int


class FileHits:
    """The matching lines of one file: all are counted, and the first are kept."""

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
            path, found, record = (name + line).partition(b"\0")
            if found:
                self._add(path.removeprefix(b"./"), record)
            name = b"" if found or self._dropped(path) else path + b"\n"  # a name may hold a newline
        self._rest = name + self._rest

    def _dropped(self, line: bytes) -> bool:
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


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


class SearchPattern(NamedTuple):
    """One pattern in the syntax of each engine; `strict` is Python's for texts with bytes that are no UTF-8."""

    python: str
    ripgrep: str
    strict: str


def parse_pattern(text: str) -> SearchPattern:
    """Parse a pattern and refuse syntax that only one of the two engines has."""
    if len(text) > _LONGEST:
        raise PatternError(f"it has more than {_LONGEST} characters")
    spelled = [_translate(token) for token in _TOKEN.finditer(text)]
    pattern = SearchPattern(*("".join(column) for column in zip(*spelled, strict=True)))
    try:
        re.compile(pattern.python)
        re.compile(pattern.strict)
        text.encode()
    except (re.error, RecursionError, OverflowError, UnicodeEncodeError) as wrong:
        raise PatternError(str(wrong) or "it is nested too deeply") from None
    return pattern


def _translate(token: re.Match[str]) -> SearchPattern:
    text = token[0]
    match token.lastgroup:
        case "escape":
            return _escape(text)
        case "set":
            return _set(text)
        case "special":
            raise PatternError("look-around, back references and other extensions with (? are not available")
        case "possessive":
            raise PatternError(f"possessive repeats such as {text!r} are not available")
        case "upto":
            return SearchPattern(text, f"{{0,{token['most']}}}", text)
        case "brace":
            return _same(f"\\{text}")
        case "newline":
            raise _no_line_end("a newline")
        case _:
            return _same(text) if text != "." else SearchPattern(text, text, f"(?:(?!{_BROKEN}).)")


def _same(text: str) -> SearchPattern:
    return SearchPattern(text, text, text)


def _escape(text: str) -> SearchPattern:
    match text[1]:
        case "n" | "r":
            raise _no_line_end(text)
        case "B":  # Python's own never fits an empty line
            return SearchPattern(r"(?!\b)", text, r"(?!\b)")
        case "W" | "D" | "S":
            return SearchPattern(text, text, f"(?:(?!{_BROKEN}){text})")
        case _ if _code(text) in _LINE_ENDS:
            raise _no_line_end(text)
        case _:
            return SearchPattern(text, _in_ripgrep(text), text)


def _no_line_end(what: str) -> PatternError:
    return PatternError(
        f"lines are searched one by one, so a pattern cannot hold {what}; $ is the end of a line, however it ends"
    )


def _in_ripgrep(text: str) -> str:
    """Translate an escape to the syntax of ripgrep."""
    character = text[1]
    if _code(text) in _SURROGATES:
        raise PatternError(f"{text} is half of a surrogate pair and no character")
    if character in _ESCAPES:
        return text
    if character.isalnum():
        raise PatternError(f"the escape {text} is not available; neither are back references")
    return f"\\x{{{ord(character):X}}}"


def _code(text: str) -> int:
    """Return the code point that a numeric escape names; -1 for other escapes."""
    found = _NUMBERED.fullmatch(text)
    return int(found[1], 16) if found else -1


def _set(text: str) -> SearchPattern:
    """Translate a set in brackets, in which a second bracket, `&`, `~` and `|` are literal."""
    negated = text.startswith("[^")
    body = text[2 if negated else 1 : -1]
    if "[:" in body or "--" in body:
        raise PatternError(f"the set {text!r} is not available; write \\d, \\w or the ranges themselves")
    parts = [*map(_in_set, _IN_SET.findall(body))]
    start = "[^" if negated else "["
    python, ripgrep = (f"{start}{''.join(column)}]" for column in zip(*parts, strict=True))
    return SearchPattern(python, ripgrep, f"(?:(?!{_BROKEN}){python})")


def _in_set(part: str) -> tuple[str, str]:
    """Translate a part of a set, for Python and for ripgrep."""
    if part in "\n\r":  # no line holds one, but a set may
        return f"\\x{ord(part):02x}", f"\\x{ord(part):02x}"
    if part in ("\\n", "\\r"):
        return part, part
    if part in ("\\b", "\\B"):
        raise PatternError(f"{part} is not available in a set")
    if part.startswith("\\"):
        return part, _in_ripgrep(part)
    if part in "[]&~|^":
        return f"\\{part}", f"\\x{{{ord(part):X}}}"
    return part, part
