"""Write the answer of a command: JSON for programs, tables and sentences for people, notes on stderr."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
import time
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import contextmanager
from textwrap import shorten
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import typer

from toolpost.catalog.token_counts import ESTIMATE
from toolpost.cli.commands import NO_OPTIONS, CommonOptions
from toolpost.contracts.errors import ToolError
from toolpost.contracts.spec import ToolSpec

if TYPE_CHECKING:
    from toolpost.contracts.events import RunEvent

_LONGEST_DESCRIPTION = 200
_ERASE = "\r\x1b[K"
# Control characters and direction changes: text of a tool must not repaint the screen of an approver.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")

_PIPE_WIDTH = 200
_COMMON_WORD, _GAP, _EDGES = 18, 3, 2

ADVICE = {
    "tool_not_found": "`toolpost tools list{options}` shows every tool.",
    "validation_failed": "`toolpost tools show {tool}{options}` shows its arguments.",
    "permission_denied": "`policy` in toolpost.yaml decides which calls are allowed.",
    "timeout": "To allow more time, raise --timeout.",
    "store_unavailable": "`toolpost doctor{options}` checks the database and the data folder.",
    "already_answered": "`toolpost pending list{options}` shows the open ones.",
}


class Output:
    """Write the answer of one command to `stream`, and notes to stderr.

    Suggested commands carry `options`. `status` is the status line at a terminal; any other output replaces it.
    `interruption` is the message if the command is interrupted: the state that it has reached.
    `reader_gone` is set when the reader of `stream` has closed it, as `head` does, or it cannot be written, as on a
    full disk; later output is dropped, and `finish` reports a full disk.
    """

    def __init__(self, stream: TextIO, *, as_json: bool, options: CommonOptions = NO_OPTIONS) -> None:
        self.as_json = as_json
        self.options = options
        self.status = StatusLine()
        self.interruption = f"`toolpost runs list{options}` shows the calls that were running."
        self.reader_gone = False
        self._stream = stream
        self._has_document = False
        self._write_error: OSError | None = None

    @property
    def stream(self) -> TextIO:
        """The stream of the answer, for a protocol that is spoken on it."""
        return self._stream

    def document(self, value: Any) -> None:
        """Write the only JSON document of a command."""
        self._has_document = True
        self._write(json.dumps(value, indent=2, ensure_ascii=not _is_utf8(self._stream), default=str))

    def line(self, value: Any) -> None:
        """Write one of many JSON documents on its own line, and flush it."""
        self._write(json.dumps(value, ensure_ascii=not _is_utf8(self._stream), default=str))
        self._flush()

    def text(self, text: str) -> None:
        """Write a sentence, and flush it."""
        self._write(make_printable(text))
        self._flush()

    @property
    def is_terminal(self) -> bool:
        """Whether stdout is a terminal."""
        return self._stream.isatty()

    def piece(self, text: str) -> None:
        """Write a piece of a text, and flush it."""
        self._write(make_printable(text), end="")
        self._flush()

    def announce(self, text: str) -> None:
        """Write text for people to stdout, or to stderr if stdout is for JSON."""
        if self.as_json:
            self.note(text)
        else:
            self.text(text)

    def bytes(self, data: bytes) -> None:
        """Write bytes unchanged."""
        self.status.clear()
        self._flush()
        with self._until_lost():
            self._stream.buffer.write(data)
            self._stream.buffer.flush()

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
        """Write rows as a table, or as blocks where the table would be wider than the terminal; nothing is cut off."""
        self.status.clear()
        shown = [[make_printable(cell) for cell in row] for row in rows]
        if not self._stream.isatty() and (drawn := _draw_table(columns, shown)) is not None:
            self._write(drawn)
            self._flush()
            return
        from rich import box
        from rich.console import Console
        from rich.table import Table
        from rich.text import Text

        console = Console(file=self._stream, width=None if self._stream.isatty() else _PIPE_WIDTH, highlight=False)
        if _minimum_width([columns, *shown]) > console.width:
            self._blocks(columns, shown)
            return
        table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
        for number, column in enumerate(columns):
            table.add_column(column, overflow="fold", no_wrap=number == 0)  # names and ids are there to be copied
        for row in shown:
            table.add_row(*(Text(cell) for cell in row))
        with console.capture() as captured:  # printing directly would end the process if the reader is gone
            console.print(table)
        self._write(captured.get().rstrip("\n"))
        self._flush()

    def _blocks(self, columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
        """Write each row as a block of named values."""
        wide = max(map(len, columns[1:]), default=0)
        below = "\n" + " " * (wide + 4)
        for first, *rest in rows:
            named = zip(columns[1:], rest, strict=True)
            lines = [f"  {name:<{wide}}  {below.join(cell.splitlines())}" for name, cell in named if cell]
            self._write("\n".join([first, *lines, ""]))
        self._flush()

    def note(self, text: str, *, colour: str | None = None) -> None:
        """Write a note to stderr, in a colour where that is a terminal."""
        self.status.clear()
        shown = make_printable(text)
        if colour is not None and self.status.live and not os.environ.get("NO_COLOR"):
            shown = typer.style(shown, fg=colour)
        sys.stderr.write(f"{shown}\n")
        sys.stderr.flush()

    def failure(self, error: ToolError, *, advice: str | None = None) -> None:
        """Write the error that ended the command: as the JSON of a failed call, or as text.

        A command that fails after its JSON document, for events that cannot be written, says so on stderr.
        """
        if self.as_json and not self._has_document:
            self.line(failure_to_dict(error))  # on one line, as for JSON lines
        else:
            self.explain(error, advice=advice)

    def explain(self, error: ToolError, *, advice: str | None = None) -> None:
        """Write an error and advice about it to stderr."""
        wait = "" if error.retry_after_s is None else f" (retry after {error.retry_after_s:g} s)"
        self.note(f"failed: {error}{wait}")
        self.locate(error)
        usual_advice = ADVICE.get(error.error_code, "").format(tool=error.tool_name or "NAME", options=self.options)
        if advice or usual_advice:
            self.note(advice or usual_advice)

    def locate(self, error: ToolError) -> None:
        """Write to stderr which line of a tool's own code raised an error; nothing for other errors."""
        if not error.is_uncaught:
            return
        from toolpost.runtime.failures import find_line

        if (line := find_line(error)) is not None:
            self.note(f"  at {line}")

    def _write(self, text: str, *, end: str = "\n") -> None:
        self.status.clear()
        with self._until_lost():
            self._stream.write(f"{text}{end}")

    def _flush(self) -> None:
        with self._until_lost():
            self._stream.flush()

    @contextmanager
    def _until_lost(self) -> Generator[None]:
        try:
            yield
        except BrokenPipeError:
            self.reader_gone = True
        except OSError as error:
            self.reader_gone, self._write_error = True, self._write_error or error

    def finish(self, code: int) -> int:
        """Write the rest of the answer, and return the exit code: that of a failure where it could not be written."""
        self._flush()
        if self._write_error is None:
            return code
        self.note(f"failed: {describe_lost_output(self._write_error)} The effects of the command remain.")
        return code or 1


def describe_lost_output(error: OSError) -> str:
    """Say that stdout cannot be written, and what to do."""
    return f"the answer could not be written to stdout: {error.strerror}; free some space, or redirect it elsewhere."


def _draw_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str | None:
    """Draw the table that rich would draw, which takes longer to load than to list tools.

    None where it takes more: cells of several lines, letters of another width, or a table that is wider than a pipe's.
    """
    cells = [cell for row in (columns, *rows) for cell in row]
    if not all(map(str.isascii, cells)) or any("\n" in cell or "\t" in cell for cell in cells):
        return None
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    width = sum(widths) + _GAP * (len(widths) - 1) + _EDGES
    if width > _PIPE_WIDTH:
        return None
    blank = " " * width
    lines = [f" {'   '.join(cell.ljust(wide) for cell, wide in zip(row, widths, strict=True))} " for row in rows]
    head = f" {'   '.join(cell.ljust(wide) for cell, wide in zip(columns, widths, strict=True))} "
    return "\n".join([blank, head, f" {'─' * (width - 2)} ", *lines, blank])


def _minimum_width(rows: Sequence[Sequence[str]]) -> int:
    """Return the width of the narrowest table in which names and common words are not broken."""
    names, *others = zip(*rows, strict=True)
    words = [max(len(word) for cell in column for word in [*cell.split(), ""]) for column in others]
    return max(map(len, names)) + sum(min(word, _COMMON_WORD) + _GAP for word in words) + _EDGES


def failure_to_dict(error: ToolError) -> dict[str, Any]:
    """Return the JSON of a failed call for an error before any call."""
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


def format_json(value: Any) -> str:
    """Format a JSON value with indentation; a string is returned unchanged."""
    return value if isinstance(value, str) else json.dumps(value, indent=2, ensure_ascii=False, default=str)


def format_json_line(value: Any) -> str:
    """Format a JSON value on one line."""
    return json.dumps(value, ensure_ascii=False, default=str)


def format_time(at: float | None) -> str:
    """Format a timestamp in local time; None is empty."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(at)) if at is not None else ""


def _is_utf8(stream: TextIO) -> bool:
    return (stream.encoding or "").lower().replace("-", "") == "utf8"


def show_tools(specs: list[ToolSpec], output: Output, *, tokens: ToolTokens | None = None) -> None:
    """Write tools as a table or as JSON; with `tokens`, each with the tokens of its definition."""
    if output.as_json:
        output.document([{**spec.to_dict(), **({} if tokens is None else tokens.fields(spec))} for spec in specs])
        return
    if not specs:
        output.note("No tools match.")
        return
    rows = [(spec.name, _effects(spec), spec.source or "-", _first_line(spec.description)) for spec in specs]
    if tokens is None:
        output.table(["Tool", "Effects", "Source", "Description"], rows)
    else:
        counted = [(name, f"{tokens.counts[name]:,}", *rest) for name, *rest in rows]
        output.table(["Tool", "Tokens", "Effects", "Source", "Description"], counted)
        output.note(tokens.total([spec.name for spec in specs]))
    helpers = sum(spec.is_helper for spec in specs)
    more = f", and {helpers} for resources and prompts" if helpers else ""
    output.note(
        f"{count_tools(len(specs) - helpers)}{more}. `toolpost tools show NAME{output.options}` shows one in full."
    )


class ToolTokens(NamedTuple):
    """Tokens of the definitions of tools by name, and what counted them: a vocabulary, or `estimate`."""

    counts: Mapping[str, int]
    tokenizer: str

    def fields(self, spec: ToolSpec) -> dict[str, Any]:
        """Return the members of a tool's JSON."""
        return {"tokens": self.counts[spec.name], "tokenizer": self.tokenizer}

    def total(self, names: Iterable[str]) -> str:
        """Return a line with the sum for these tools."""
        total = sum(self.counts[name] for name in names)
        how = "estimated, 4.5 characters each" if self.tokenizer == ESTIMATE else self.tokenizer
        return f"All definitions together: {total:,} tokens ({how})."


def count_tools(tools: int) -> str:
    """Format a number of tools."""
    return count(tools, "tool")


def count(number: int, what: str) -> str:
    """Format a number of things."""
    return f"{number} {what}{'' if number == 1 else 's'}"


def _effects(spec: ToolSpec) -> str:
    mark = {True: ", destructive", None: ", unknown", False: ""}[spec.safety.destructive]
    return f"{spec.side_effects}{mark}"


def _first_line(text: str) -> str:
    return shorten(text.strip().partition("\n")[0], _LONGEST_DESCRIPTION, placeholder=" …")


class StatusLine:
    """Line at the terminal that `show` replaces and `clear` removes; without a terminal both do nothing.

    Clear it before writing anything else to the terminal, as `Output` does.
    """

    def __init__(self) -> None:
        self._stream = sys.stderr
        self.live = self._stream.isatty() and os.environ.get("TERM") != "dumb"
        self._shown = False

    def show(self, text: str) -> None:
        """Replace the line, truncated to the width of the terminal."""
        if not self.live:
            return
        width = max(1, shutil.get_terminal_size().columns - 1)  # a full line would wrap, and could not be erased
        line = make_printable(" ".join(text.split()))
        self._write(f"{_ERASE}{line if len(line) <= width else f'{line[: width - 1]}…'}")
        self._shown = True

    def keep(self, text: str) -> None:
        """Write lines that stay, above the status line."""
        if self.live:
            self.clear()
            self._write("".join(f"{make_printable(line)}\n" for line in text.splitlines()))

    def clear(self) -> None:
        """Remove the line."""
        if self._shown:
            self._write(_ERASE)
            self._shown = False

    def _write(self, text: str) -> None:
        self._stream.write(text)
        self._stream.flush()


class ProgressSink:
    """Event sink that shows starting sources, and then the progress of calls, on a status line.

    The streamed values of a tool stay, on separate lines.
    """

    def __init__(self, line: StatusLine) -> None:
        self._line = line

    def starting(self, programs: Mapping[str, str], *, waited_s: float = 0.0) -> None:
        """Show the sources that are still starting, each with its program or host; without any, clear the line."""
        if programs:
            names = [f"{name} ({program})" if program else name for name, program in programs.items()]
            waited = f" {waited_s:.0f} s, Ctrl-C to cancel" if waited_s >= 1 else ""
            self._line.show(f"starting {', '.join(names)}...{waited}")
        else:
            self._line.clear()

    def emit(self, event: RunEvent) -> None:
        from toolpost.contracts.events import EventCode

        if event.code is not EventCode.SUBAGENT_ACTION:
            return
        if "fraction" in event.facts:
            self._line.show(progress_text(event))
        else:
            self._line.keep(streamed_text(event))


def progress_text(event: RunEvent) -> str:
    """Format a progress event, with its percentage if it has one."""
    facts = event.payload
    fraction = facts.get("fraction")
    done = f" {fraction:.0%}" if isinstance(fraction, (int, float)) else ""
    return f"{event.call.tool_name}{done}: {facts.get('text') or 'working'}"


def streamed_text(event: RunEvent) -> str:
    """Format a value of a stream, and how many before it came too fast to be shown."""
    facts = event.payload
    left_out = facts.get("left_out")
    return f"({left_out} values skipped)\n{facts['text']}" if left_out else str(facts["text"])


def make_printable(text: str) -> str:
    """Replace control characters and changes of text direction."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
