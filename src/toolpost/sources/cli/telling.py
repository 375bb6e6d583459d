"""The lines of a running command as progress: of long commands, and never so many that they drown everything else."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from toolpost.wire.limits import RateLimit

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.context import ToolContext
    from toolpost.processes.commands import Stream

_AFTER_S = 0.2
_KEPT = 20
_LONGEST = 500


class LineTelling:
    """Tells the lines of one command.

    What a short command writes to stdout is its result and is not told twice: lines are held until it has run for a
    moment. From then on they are told as they come, at most so many a second.
    """

    def __init__(self, context: Callable[[], ToolContext], redact: Callable[[str], str], *, stdout: bool) -> None:
        self._make_context = context
        self._context: ToolContext | None = None
        self._redact = redact
        self._stdout = stdout
        self._held: deque[tuple[str, Stream]] | None = deque(maxlen=_KEPT)
        self._timer = asyncio.get_running_loop().call_later(_AFTER_S, self._begin)
        self._rate_limit = RateLimit()

    def line(self, text: str, stream: Stream) -> None:
        """Take a line."""
        if not text.strip() or (stream == "stdout" and not self._stdout):
            return
        if self._held is not None:
            self._held.append((text, stream))
        else:
            self._tell(text)

    def end(self) -> None:
        """The command has ended; what a short one said on stderr would else be told nowhere."""
        self._timer.cancel()
        held, self._held = self._held, None
        for text, stream in held or ():
            if stream == "stderr":
                self._tell(text)

    def _begin(self) -> None:
        held, self._held = self._held, None
        for text, _ in held or ():
            self._tell(text)

    def _tell(self, text: str) -> None:
        if not self._rate_limit.allows():
            return
        if self._context is None:
            self._context = self._make_context()
        note = " (lines before this one are left out)" if self._rate_limit.dropped else ""
        self._rate_limit.dropped = 0
        self._context.progress(self._redact(text)[:_LONGEST] + note)
