"""The tool grep_files: a program finds the lines, and their text is read again from the handles of folders.

The program is ripgrep, or our own where ripgrep is missing; a pattern is one that both understand.
"""

from __future__ import annotations

import os
import re
import shutil
import stat
import sys
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from io import BytesIO, FileIO
from pathlib import Path
from typing import Annotated, BinaryIO, Literal, NamedTuple

from msgspec import Struct
from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import FileAccess, display_path, file_tool
from toolpost.builtin.file_reading import AllFolders, Folder, shown_name
from toolpost.builtin.file_walk import GENERATED, LONGEST, Glob, GlobError, expand_braces
from toolpost.builtin.grep_program import LARGEST_UTF16, LOOK, UTF8_MARK, UTF16_MARKS, GrepRequest
from toolpost.catalog.function import FunctionTool
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ErrorCategory, ToolClientError, ToolServerError, ToolTimeoutError
from toolpost.processes.commands import CommandResult, CommandRunner, run_command
from toolpost.processes.launch import child_environment

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
        """Search the lines of files with a regular expression; binary files and links are passed over."""
        access = FileAccess.of(ctx, "grep_files")
        start = access.start_folder(path)
        make = partial(_search, access, pattern, include, ignore_case=case_insensitive, all_folders=all_folders)
        with ExitStack() as stack:
            search = await run_cancellable(partial(make, start, stack))
            hits = await searcher.run(search, keep=max_results)
            lines = LineReader(search.folder, max_results=max_results, context=context_lines, hides=access.is_protected)
            only_files = output_mode == "files"
            return await run_cancellable(partial(_result, lines, hits, start, search, only_files=only_files))

    return grep_files


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
        both = parse_pattern(pattern)
        if include is not None:
            Glob(include, anywhere=True)
    except (PatternError, GlobError) as wrong:
        raise access.refusal(f"Invalid regex pattern: {wrong}", "pattern_invalid") from None
    place = stack.enter_context(access.place(path))
    status = place.status_or_none()
    if status is None:
        raise access.refusal(
            f"Path not found: {display_path(path)!r}; list_files shows what is there", "file_not_found"
        )
    folder, file, real = place.folder, None, place.real
    if stat.S_ISDIR(status.st_mode):
        folder = stack.enter_context(access.open_folder(path)).fd
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
        if texts is None:  # binary, or another file by now
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

    def read(self, folder: str, name: str, hits: Sequence[Hit], *, most: int) -> list[MatchedLine] | None:
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
            room = min(most, self.max_results - self._read)
            lines = [_line(text, hit, base, self._context) for hit in hits[: max(room, 0)]]
        whole = [line for line in lines if line is not None]
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
    shown = ("..." if skipped else "") + _show_line(line)
    if not context:
        return MatchedLine(hit.line, shown, [], [])
    before = above.split(b"\n")[:-1][-context:]
    end = begin + skipped + len(line) + 1 if ended else None
    after = [] if end is None else _lines_after(file, end, context)
    return MatchedLine(hit.line, shown, [*map(_show_line, before)], [*map(_show_line, after)])


def _lines_after(file: BinaryIO | FileIO, begin: int, count: int) -> list[bytes]:
    piece = _piece(file, begin, begin + _AROUND)
    lines = piece.split(b"\n")
    return (lines if lines[-1] else lines[:-1])[:count]


def _piece(file: BinaryIO | FileIO, begin: int, end: int) -> bytes:
    file.seek(begin)
    return file.read(end - begin) or b""


def _show_line(line: bytes) -> str:
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


# ---------------------------------------------------------------- ripgrep, or our own program where it is missing

_PACKAGE = str(Path(__file__).parent.parent.parent)
_OWN = "import sys; sys.path.insert(0, sys.argv[1]); from toolpost.builtin.grep_program import main; main(sys.argv[2])"
_MOST_OUTPUT = 64 << 20
_PIECE = 1 << 20
_NARROW = "search a smaller folder, say `include`, or use another pattern"
_RIPGREP_FLAGS = (
    *("--no-config", "--no-ignore", "--hidden", "--no-messages", "--color=never", "--no-heading", "--with-filename"),
    *("--null", "--line-number", "--column", "--byte-offset", "--crlf", "--max-columns=1"),
)
# What means the same to ripgrep; to it `?` is one byte, and `**` more than `*`.
_SIMPLE_NAMES = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-*")
_MATCHES, _NO_MATCHES, _UNREADABLE = 0, 1, 2
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
_LONGEST_PATTERN = 2000
# Bytes that are no UTF-8, as Python decodes them with `surrogateescape`; ripgrep has nothing match them.
_BROKEN = r"[\udc80-\udcff]"
_SURROGATES = range(0xD800, 0xE000)
_LINE_ENDS = (0x0A, 0x0D)


class GrepQuery(Struct, frozen=True, kw_only=True):
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


class GrepRunner(Struct, frozen=True, kw_only=True):
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
    code, stderr = result.exit_code, result.stderr.strip()
    if code == _MATCHES or (by_ripgrep and (code == _NO_MATCHES or (code == _UNREADABLE and not stderr))):
        return
    lines = stderr.splitlines() or [f"code {code}"]
    reason = next((line for line in lines if line.startswith("error: ")), lines[0] if by_ripgrep else lines[-1])
    if by_ripgrep and code == _UNREADABLE and "regex" in stderr:
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
        *_RIPGREP_FLAGS,
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
            path, separator, record = (name + line).partition(b"\0")
            if separator:
                self._add(path.removeprefix(b"./"), record)
            name = b"" if separator or self._drop_stopped(path) else path + b"\n"  # a name may hold a newline
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


class PatternError(ValueError):
    """The pattern cannot be used; the message says why."""


class SearchPattern(NamedTuple):
    """One pattern in the syntax of each engine; `strict` is Python's for texts with bytes that are no UTF-8."""

    python: str
    ripgrep: str
    strict: str


def parse_pattern(text: str) -> SearchPattern:
    """Parse a pattern and refuse syntax that only one of the two engines has."""
    if len(text) > _LONGEST_PATTERN:
        raise PatternError(f"it has more than {_LONGEST_PATTERN} characters")
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
    match = _NUMBERED.fullmatch(text)
    return int(match[1], 16) if match else -1


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
