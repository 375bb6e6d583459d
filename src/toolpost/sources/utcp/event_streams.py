"""Streams of text taken apart as they come: server-sent events, and lines."""

from __future__ import annotations

import codecs
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.errors import ToolClientError
from toolpost.web.contents import parsed_json

if TYPE_CHECKING:
    from collections.abc import Iterator

_LONGEST_LINE = 16 * 1024 * 1024


class Event(NamedTuple):
    """One event; without a name of its own it is a `message`."""

    kind: str
    data: Any


class Lines:
    """Bytes as whole lines; a line ends with LF, CR or both, wherever the pieces break."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8-sig")("replace")
        self._open: list[str] = []
        self._length = 0
        self._after_cr = False

    def feed(self, piece: bytes) -> Iterator[str]:
        """The lines that a piece completes."""
        text = self._decoder.decode(piece)
        if self._after_cr and text:
            text = text.removeprefix("\n")
            self._after_cr = False
        self._after_cr = self._after_cr or text.endswith("\r")
        first, *more = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
        self._keep(first)
        for line in more:
            yield self._taken()
            self._keep(line)

    def rest(self) -> Iterator[str]:
        """The last line, where nobody ended it."""
        self._keep(self._decoder.decode(b"", final=True))
        if left := self._taken():
            yield left

    def _keep(self, part: str) -> None:
        self._open.append(part)
        self._length += len(part)
        if self._length > _LONGEST_LINE:
            told = f"a line of the stream is longer than {_LONGEST_LINE:,} characters"
            raise ToolClientError(told, code="response_too_large")

    def _taken(self) -> str:
        line, self._open, self._length = "".join(self._open), [], 0
        return line


class Events:
    """Bytes as server-sent events; a last one that no empty line ends is not told, as the standard wants."""

    def __init__(self) -> None:
        self._lines = Lines()
        self._kind = ""
        self._data: list[str] = []

    def feed(self, piece: bytes) -> Iterator[Event]:
        """The events that a piece completes."""
        for line in self._lines.feed(piece):
            if line:
                self._take(line)
            elif (event := self._ended()) is not None:
                yield event

    def _take(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value

    def _ended(self) -> Event | None:
        data, kind = self._data, self._kind
        self._data, self._kind = [], ""
        return Event(kind or "message", json_or_text("\n".join(data))) if data else None


def json_or_text(text: str) -> Any:
    """A text as the JSON that it is, or as it is."""
    try:
        return parsed_json(text.encode())
    except ValueError:
        return text
