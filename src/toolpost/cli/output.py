"""Write the answer of a command: JSON for programs, tables and sentences for people, notes on stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Generator, Iterable, Sequence
from contextlib import contextmanager, redirect_stdout, suppress
from textwrap import shorten
from typing import TYPE_CHECKING, Any, TextIO

from toolpost.cli.commands import NO_OPTIONS, Repeated
from toolpost.contracts.events import EventCode, RunEvent
from toolpost.contracts.spec import ToolSpec

if TYPE_CHECKING:
    from toolpost.contracts.errors import ToolError


_LONGEST_DESCRIPTION = 200
_ERASE = "\r\x1b[K"
# Control characters and changes of direction: a tool's text must not repaint the screen that a person decides on.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_PIPE_WIDTH = 200
_COMMON_WORD, _GAP, _EDGES = 18, 3, 2

ADVICE = {
    "tool_not_found": "`toolpost tools list{again}` shows every tool.",
    "validation_failed": "`toolpost tools show {tool}{again}` shows what it takes.",
    "permission_denied": "`policy` in toolpost.yaml decides what may run.",
    "timeout": "Give it longer with --timeout.",
    "store_unavailable": "`toolpost doctor{again}` looks at the data folder.",
    "already_answered": "`toolpost pending list{again}` shows what is still open.",
}


class Output:
    """One command's answer on `stream`; remarks go to stderr.

    `again` is what a command must carry that people are told to run next. `status` is the
    line at the terminal that says what is going on; whatever else is said takes its place.
    `reader_gone` tells that nobody reads `stream` any more, as after `head`: what is still said is dropped.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, again: Repeated = NO_OPTIONS) -> None:
        self.as_json = as_json
        self.again = again
        self.status = StatusLine()
        self.reader_gone = False
        self._stream = stream

    def document(self, value: Any) -> None:
        """The one JSON document of a command."""
        self._write(json.dumps(value, indent=2, ensure_ascii=not _is_utf8(self._stream), default=str))

    def line(self, value: Any) -> None:
        """One JSON document of many, on a line of its own and at once."""
        self._write(json.dumps(value, ensure_ascii=not _is_utf8(self._stream), default=str))
        self._flush()

    def text(self, text: str) -> None:
        """A sentence for people."""
        self._write(printable(text))
        self._flush()

    def bytes(self, data: bytes) -> None:
        """What a command gives as it is."""
        self.status.clear()
        self._flush()
        with self._until_gone():
            self._stream.buffer.write(data)
            self._stream.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Rows for people; nothing is cut off, and where a row has no room on a line it gets several."""
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        self.status.clear()
        shown = [[printable(cell) for cell in row] for row in rows]
        console = Console(file=self._stream, width=None if self._stream.isatty() else _PIPE_WIDTH, highlight=False)
        if _narrowest([columns, *shown]) > console.width:
            self._blocks(columns, shown)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)  # names and ids are there to be copied
        for row in shown:
            table.add_row(*(Text(cell) for cell in row))
        with console.capture() as drawn:  # left to itself, it would end the process when the reader is gone
            console.print(table)
        self._write(drawn.get().rstrip("\n"))
        self._flush()

    def _blocks(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Each row under its name; the terminal breaks long lines itself."""
        wide = max(map(len, columns[1:]), default=0)
        below = "\n" + " " * (wide + 4)
        for first, *rest in rows:
            named = zip(columns[1:], rest, strict=True)
            told = [f"  {name:<{wide}}  {below.join(cell.splitlines())}" for name, cell in named if cell]
            self._write("\n".join([first, *told, ""]))
        self._flush()

    def note(self, text: str) -> None:
        """A remark beside the answer."""
        self.status.clear()
        sys.stderr.write(f"{printable(text)}\n")
        sys.stderr.flush()

    def failure(self, error: ToolError, *, advice: str | None = None) -> None:
        """An error that ended the command: the same object as a failed call, or words for people."""
        if self.as_json:
            self.line(failure_document(error))  # on one line, so that it fits among JSON lines too
        else:
            self.explain(error, advice=advice)

    def explain(self, error: ToolError, *, advice: str | None = None) -> None:
        """What went wrong, and what to do about it if there is something to say."""
        wait = "" if error.retry_after_s is None else f" (retry after {error.retry_after_s:g} s)"
        self.note(f"failed: {error}{wait}")
        known = ADVICE.get(error.error_code, "").format(tool=error.tool_name or "NAME", again=self.again)
        if advice or known:
            self.note(advice or known)

    def _write(self, text: str) -> None:
        self.status.clear()
        with self._until_gone():
            self._stream.write(f"{text}\n")

    def _flush(self) -> None:
        with self._until_gone():
            self._stream.flush()

    @contextmanager
    def _until_gone(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            self.reader_gone = True


def _narrowest(rows: Sequence[Sequence[str]]) -> int:
    """How wide a table is in which names and common words stay whole."""
    names, *others = zip(*rows, strict=True)
    words = [max(len(word) for cell in column for word in [*cell.split(), ""]) for column in others]
    return max(map(len, names)) + sum(min(word, _COMMON_WORD) + _GAP for word in words) + _EDGES


def failure_document(error: ToolError) -> dict[str, Any]:
    """The object of a failed call for a call that never came to be."""
    return {
        "status": "failed",
        "call_id": None,
        "run_id": None,
        "tool_name": error.tool_name,
        "content": None,
        "error": error.to_dict(),
        "pending": None,
        "artifacts": [],
        "meta": {},
        "duration_ms": 0.0,
    }


def pretty(value: Any) -> str:
    """A JSON value as people read it."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def one_line(value: Any) -> str:
    """A JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def moment(at: float | None) -> str:
    """A point in time, on this machine's clock."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def show_tools(specs: list[ToolSpec], output: Output) -> None:
    """Show them all, and what to do next."""
    if output.as_json:
        output.document([spec.to_dict() for spec in specs])
        return
    if not specs:
        output.note("There are no such tools.")
        return
    rows = [(spec.name, _effects(spec), spec.source or "-", _first_line(spec.description)) for spec in specs]
    output.table(["Tool", "Effects", "Source", "Description"], rows)
    helpers = sum(spec.is_helper for spec in specs)
    more = f", and {helpers} for resources and prompts" if helpers else ""
    output.note(
        f"{count_tools(len(specs) - helpers)}{more}. `toolpost tools show NAME{output.again}` tells all about one."
    )


def count_tools(tools: int) -> str:
    """So many tools, in words."""
    return f"{tools} tool{'' if tools == 1 else 's'}"


def _effects(spec: ToolSpec) -> str:
    mark = {True: ", destructive", None: ", unknown", False: ""}[spec.safety.destructive]
    return f"{spec.side_effects}{mark}"


def _first_line(text: str) -> str:
    return shorten(text.strip().partition("\n")[0], _LONGEST_DESCRIPTION, placeholder=" …")


class StatusLine:
    """A line that `show` replaces and `clear` takes away; without a terminal both do nothing.

    Whoever writes anything else to the terminal clears it first, as `Output` does.
    """

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = sys.stderr if stream is None else stream
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line; what does not fit the terminal's width is cut off."""
        if not self.live:
            return
        width = max(1, shutil.get_terminal_size().columns - 1)  # a full line would wrap, and could not be erased
        line = printable(" ".join(text.split()))
        self._write(f"{_ERASE}{line if len(line) <= width else f'{line[: width - 1]}…'}")
        self._shown = True

    def clear(self) -> None:
        """Take the line away."""
        if self._shown:
            self._write(_ERASE)
            self._shown = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class ProgressSink:
    """Event sink that shows the progress of running calls on a status line, and before that which sources start."""

    def __init__(self, line: StatusLine) -> None:
        self._line = line

    def starting(self, names: Sequence[str]) -> None:
        """Show which sources are still starting; none takes the line away."""
        if names:
            self._line.show(f"starting {', '.join(names)}...")
        else:
            self._line.clear()

    def emit(self, event: RunEvent) -> None:
        if event.code is EventCode.SUBAGENT_ACTION:
            self._line.show(progress_text(event))


def progress_text(event: RunEvent) -> str:
    """What a call reported, with the share that is done where that is known."""
    facts = event.payload
    fraction = facts.get("fraction")
    done = f" {fraction:.0%}" if isinstance(fraction, (int, float)) else ""
    return f"{event.call.tool_name}{done}: {facts.get('text') or 'working'}"


@contextmanager
def guard_stdout() -> Generator[TextIO]:
    """Lend out the real stdout; within, everything else that is printed lands on stderr."""
    real = sys.stdout
    try:
        number = real.fileno()
    except OSError:  # No file: a test or a host program has put something of its own there.
        with redirect_stdout(sys.stderr):
            yield real
        return
    real.flush()
    kept = os.dup(number)
    try:
        os.dup2(sys.stderr.fileno(), number)
        with _open_stream(os.dup(kept), like=real) as stream, redirect_stdout(sys.stderr):
            yield stream
    finally:
        os.dup2(kept, number)
        os.close(kept)


@contextmanager
def _open_stream(number: int, *, like: TextIO) -> Generator[TextIO]:
    stream = open(number, "w", encoding=like.encoding, errors="backslashreplace")  # noqa: SIM115 - closed below
    try:
        yield stream
    finally:
        with suppress(BrokenPipeError):  # The reader went away, as `head` does.
            stream.close()


def printable(text: str) -> str:
    """A text that cannot command a terminal."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
