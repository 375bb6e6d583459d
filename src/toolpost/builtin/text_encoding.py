"""Encodings of text files: detection by byte order marks, decoding and encoding."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from toolpost.contracts.errors import ToolClientError

FALLBACK = "latin-1"
_LOOK = 8192
# UTF-32's mark begins like that of UTF-16, so it is tested first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Unusable for files: some cannot be decoded incrementally, others change what looks like text.
_NOT_FOR_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
_NEED_MARK = {"utf-16": codecs.BOM_UTF16_LE, "utf-32": codecs.BOM_UTF32_LE, "utf-8-sig": codecs.BOM_UTF8}
_AFTER_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}


class Encoding(NamedTuple):
    """A codec, with the byte order mark before the text."""

    codec: str
    mark: bytes = b""
    guessed: bool = False

    @property
    def name(self) -> str:
        """The name that a caller may pass as `encoding`."""
        return "utf-8-sig" if self.mark == codecs.BOM_UTF8 else self.codec

    @property
    def ends_lines_with_a_byte(self) -> bool:
        """Whether the byte 10 is always a newline."""
        return not self.codec.startswith(("utf-16", "utf-32")) and "\n".encode(self.codec) == b"\n"

    def decode(self, data: bytes) -> str:
        return data.removeprefix(self.mark).decode(self.codec)

    def encode(self, text: str) -> bytes:
        return self.mark + text.encode(self.codec)


def parse_encoding(name: str, *, tool_name: str) -> Encoding:
    """Parse the name of an encoding; raise a ToolClientError for one that is unusable for files."""
    try:
        info = codecs.lookup(name)
        codec = info.name
        "\n".encode(codec)  # some codecs convert bytes to bytes
        if codec.replace("_", "-") in _NOT_FOR_FILES:
            raise LookupError(codec)  # noqa: TRY301 - reported like any unusable encoding
    except (LookupError, ValueError):
        message = f"unknown encoding {name[:40]!r}; write a name such as utf-8, utf-16, latin-1 or cp1252"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_unknown") from None
    return Encoding(_AFTER_MARK.get(codec, codec), _NEED_MARK.get(codec, b""))


def detect_encoding(head: bytes) -> Encoding | None:
    """Detect the encoding by the first bytes of a file: its mark, else UTF-8; None for binary files."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    return None if b"\0" in head[:_LOOK] else Encoding("utf-8", guessed=True)


def with_actual_mark(encoding: Encoding, head: bytes) -> Encoding:
    """Return an encoding with the byte order mark of the file."""
    for mark, codec in _MARKS:
        if head.startswith(mark) and codec[:6] == encoding.codec[:6]:
            return Encoding(codec, mark)
    return encoding._replace(mark=b"")


def decode_text(data: bytes, encoding: Encoding, *, path: str, tool_name: str) -> tuple[str, Encoding]:
    """Decode bytes and return the encoding used: latin-1 if a guess of UTF-8 was wrong."""
    try:
        return encoding.decode(data), encoding
    except UnicodeDecodeError as wrong:
        if encoding.guessed:
            return data.decode(FALLBACK), Encoding(FALLBACK, guessed=True)
        where = f"{wrong.reason} at byte {wrong.start}"
        message = f"{path!r} is not {encoding.name}: {where}; leave `encoding` out, or name another"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


def encode_text(text: str, encoding: Encoding, *, tool_name: str) -> bytes:
    """Encode a text; raise a ToolClientError for a character that the encoding lacks."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as wrong:
        character = wrong.object[wrong.start].encode("unicode_escape").decode()
        message = f"the character {character} cannot be written as {encoding.name}; leave it out, or use utf-8"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None
