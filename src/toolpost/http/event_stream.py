"""Decode streams of lines and of server-sent events."""

from __future__ import annotations

import codecs
import math
from collections.abc import Iterator

from toolpost.contracts.errors import ToolClientError
from toolpost.processes.line_splitter import LineSplitter

_MAX_LINE_BYTES = 16 * 1024 * 1024


class SseDecoder:
    """Decode chunks of bytes into server-sent events: their fields `data`, `event`, `id` and `retry`.

    Events without data are skipped, unless `without_data` is true.
    """

    def __init__(
        self, lines: LineSplitter | None = None, *, max_event_bytes: float = math.inf, without_data: bool = False
    ) -> None:
        self._lines = LineDecoder(lines)
        self._max_event_bytes = max_event_bytes
        self._without_data = without_data
        self._fields: dict[str, str] = {}

    def feed(self, chunk: bytes) -> Iterator[dict[str, str]]:
        """Yield the events that a chunk completes."""
        for line in self._lines.feed(chunk):
            if line:
                self._read_field(line)
            else:
                yield from self._take_event()

    def flush(self) -> Iterator[dict[str, str]]:
        """Yield a last event without its final empty line; the standard drops it, but servers omit the line."""
        for line in self._lines.flush():
            self._read_field(line)
        yield from self._take_event()

    def _read_field(self, line: str) -> None:
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "data" and name in self._fields:
            self._fields[name] += f"\n{value}"
            if len(self._fields[name]) > self._max_event_bytes:
                message = f"an event of the stream is longer than {self._max_event_bytes:,} bytes"
                raise ToolClientError(message, code="response_too_large")
        elif name in ("data", "event", "id", "retry"):
            self._fields[name] = value

    def _take_event(self) -> Iterator[dict[str, str]]:
        fields, self._fields = self._fields, {}
        if "data" in fields or (fields and self._without_data):
            yield fields


class LineDecoder:
    """Decode chunks of bytes into lines that end with LF, CR or CRLF; a given splitter applies its own size limit."""

    def __init__(self, lines: LineSplitter | None = None) -> None:
        self._lines = lines or LineSplitter(universal=True)
        self._max_pending = _MAX_LINE_BYTES if lines is None else math.inf
        self._bom = codecs.BOM_UTF8  # until the first line

    def feed(self, chunk: bytes) -> Iterator[str]:
        """Yield the lines that a chunk completes."""
        for line in self._lines.feed(chunk):
            yield self._decode(line)
        if self._lines.pending_bytes > self._max_pending:
            message = f"a line of the stream is longer than {_MAX_LINE_BYTES:,} bytes"
            raise ToolClientError(message, code="response_too_large")

    def flush(self) -> Iterator[str]:
        """Yield the last line if it has no line ending."""
        if left := self._decode(self._lines.take_rest()):
            yield left

    def _decode(self, line: bytes) -> str:
        text, self._bom = line.removeprefix(self._bom).decode("utf-8", "replace"), b""
        return text
