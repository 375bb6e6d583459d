"""One line on stderr that says what is going on now: rewritten in place at a terminal, absent everywhere else."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Sequence
from typing import TextIO

from toolpost.cli.printable import printable
from toolpost.contracts.events import EventCode, RunEvent

_ERASE = "\r\x1b[K"


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
