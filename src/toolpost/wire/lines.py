"""What a command writes, line by line, for whoever wants to hear of it while the command runs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Callable

Stream = Literal["stdout", "stderr"]

_LONGEST_LINE = 64 * 1024
_LINES_AT_ONCE = 100


class Lines:
    """A stream as lines; one that is too long is told in pieces."""

    def __init__(self, tell: Callable[[str, Stream], None], stream: Stream) -> None:
        self._tell = tell
        self._stream: Stream = stream
        self._begun = b""

    def take(self, data: bytes) -> None:
        """Tell the lines that are whole now; of very many that came at once, the last."""
        first, *rest = (self._begun + data).rsplit(b"\n", _LINES_AT_ONCE)
        *whole, self._begun = (first, *rest) if b"\n" not in first else rest
        for line in whole:
            self._tell(_text(line), self._stream)
        if len(self._begun) > _LONGEST_LINE:
            self.end()

    def end(self) -> None:
        """Tell what is left."""
        if self._begun:
            self._tell(_text(self._begun), self._stream)
            self._begun = b""


def _text(line: bytes) -> str:
    return line.removesuffix(b"\r").decode("utf-8", "replace")
