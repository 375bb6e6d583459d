"""Decompression of response bodies, in bounded pieces."""

from __future__ import annotations

import zlib
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

ACCEPTED_ENCODINGS = "gzip, deflate"
PIECE_BYTES = 64 * 1024
_SLICE = 4 * 1024
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP = 16 + zlib.MAX_WBITS
_RAW = -zlib.MAX_WBITS


def body_decoder(encoding: str, subject: str) -> Inflater | None:
    """Return the decoder of a content encoding; None for identity."""
    encodings = [name for part in encoding.split(",") if (name := part.strip()) not in {"", "identity"}]
    if not encodings:
        return None
    if encodings in (["gzip"], ["x-gzip"], ["deflate"]):
        return Inflater(encodings[0], subject)
    message = f"{subject}: the answer is encoded as {', '.join(encodings)!r}; only {ACCEPTED_ENCODINGS} can be read"
    raise ToolClientError(message, code="unknown_encoding")


class Inflater:
    """Decompress in pieces of bounded size; the caller can stop between two."""

    def __init__(self, encoding: str, subject: str) -> None:
        self._subject = subject
        self._deflate = encoding == "deflate"
        self._engine: Any = None
        self._first_byte = b""  # one byte, which does not identify the format yet
        self._over = False

    @property
    def complete(self) -> bool:
        """Whether the end marker of the compressed data was reached."""
        return self._engine is not None and self._engine.eof

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        try:
            # zlib copies unconsumed data. With small slices, many members or a high ratio cost no extra time.
            for start in range(0, len(chunk), _SLICE):
                data, self._first_byte = self._first_byte + chunk[start : start + _SLICE], b""
                yield from self._inflate(data)
        except zlib.error as broken:
            message = f"{self._subject}: the answer cannot be decompressed ({broken})"
            raise ToolClientError(message, code="unreadable_response") from broken

    def _inflate(self, data: bytes) -> Iterator[bytes]:
        while data and not self._over:
            if self._engine is None or self._engine.eof:
                if len(data) < 2:
                    self._first_byte = data
                    return
                self._begin(data)
                continue
            piece: bytes = self._engine.decompress(data, PIECE_BYTES)
            data = self._engine.unused_data if self._engine.eof else self._engine.unconsumed_tail
            if not data and len(piece) == PIECE_BYTES:  # all input is consumed, but output is pending
                piece += self._engine.decompress(b"")
            if piece:
                yield piece

    def _begin(self, data: bytes) -> None:
        if self._engine is None and self._deflate:
            self._engine = zlib.decompressobj(zlib.MAX_WBITS if _has_zlib_header(data) else _RAW)
        elif self._engine is None or (not self._deflate and data.startswith(_GZIP_MAGIC)):
            self._engine = zlib.decompressobj(_GZIP)  # RFC 1952 §2.2: members may follow one another
        else:
            self._over = True  # anything else after the end is padding


def _has_zlib_header(data: bytes) -> bool:
    """RFC 1950 §2.2; some servers send RFC 1951 data under the same name."""
    return data[0] & 0x0F == 8 and int.from_bytes(data[:2], "big") % 31 == 0
