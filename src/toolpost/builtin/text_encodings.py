"""How the bytes of a file are read as text, and written back the same way."""

from __future__ import annotations

import codecs
from typing import NamedTuple

from toolpost.contracts.errors import ToolClientError

FALLBACK = "latin-1"
_LOOK = 8192
# UTF-32's mark begins like that of UTF-16, so it is looked for first.
_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
# Not for files: some cannot be read by parts, and others turn what looks like text into something else.
_NOT_FOR_FILES = frozenset({"idna", "punycode", "unicode-escape", "raw-unicode-escape"})
_NEED_MARK = {"utf-16": codecs.BOM_UTF16_LE, "utf-32": codecs.BOM_UTF32_LE, "utf-8-sig": codecs.BOM_UTF8}
_AFTER_MARK = {"utf-16": "utf-16-le", "utf-32": "utf-32-le", "utf-8-sig": "utf-8"}


class Encoding(NamedTuple):
    """A codec with the byte order mark that stands before the text."""

    codec: str
    mark: bytes = b""
    guessed: bool = False

    @property
    def told(self) -> str:
        """The name as a caller may give it back."""
        return "utf-8-sig" if self.mark == codecs.BOM_UTF8 else self.codec

    @property
    def ends_lines_with_a_byte(self) -> bool:
        """Whether a newline is the byte 10, and that byte nothing else."""
        return not self.codec.startswith(("utf-16", "utf-32")) and "\n".encode(self.codec) == b"\n"

    def decode(self, data: bytes) -> str:
        """The text, without its mark; what was only taken for UTF-8 and is not raises UnicodeDecodeError."""
        return data.removeprefix(self.mark).decode(self.codec)

    def encode(self, text: str) -> bytes:
        """The text with its mark."""
        return self.mark + text.encode(self.codec)


UTF8 = Encoding("utf-8")


def encoding_named(name: str, *, tool_name: str) -> Encoding:
    """The encoding that a caller asks for."""
    try:
        known = codecs.lookup(name)
        codec = known.name
        "\n".encode(codec)  # some codecs turn bytes into bytes
        if codec.replace("_", "-") in _NOT_FOR_FILES:
            raise LookupError(codec)  # noqa: TRY301 - told as any other that cannot be used
    except (LookupError, ValueError):
        message = f"unknown encoding {name[:40]!r}; write a name such as utf-8, utf-16, latin-1 or cp1252"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_unknown") from None
    return Encoding(_AFTER_MARK.get(codec, codec), _NEED_MARK.get(codec, b""))


def encoding_of(head: bytes) -> Encoding | None:
    """The encoding that the first bytes of a file show; UTF-8 when nothing speaks against it, None for binary files."""
    for mark, codec in _MARKS:
        if head.startswith(mark):
            return Encoding(codec, mark)
    return None if b"\0" in head[:_LOOK] else Encoding("utf-8", guessed=True)


def marked_like(asked: Encoding, head: bytes) -> Encoding:
    """An encoding that was asked for, with the mark that is really there."""
    for mark, codec in _MARKS:
        if head.startswith(mark) and codec[:6] == asked.codec[:6]:
            return Encoding(codec, mark)
    return asked._replace(mark=b"")


def decoded(data: bytes, encoding: Encoding, *, path: str, tool_name: str) -> tuple[str, Encoding]:
    """A text and how it was read: bytes that were only taken for UTF-8 and are not, are read as latin-1."""
    try:
        return encoding.decode(data), encoding
    except UnicodeDecodeError as wrong:
        if encoding.guessed:
            return data.decode(FALLBACK), Encoding(FALLBACK, guessed=True)
        where = f"{wrong.reason} at byte {wrong.start}"
        message = f"{path!r} is not {encoding.told}: {where}; leave `encoding` out, or name another"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None


def encoded(text: str, encoding: Encoding, *, tool_name: str) -> bytes:
    """The bytes of a text."""
    try:
        return encoding.encode(text)
    except UnicodeEncodeError as wrong:
        character = wrong.object[wrong.start].encode("unicode_escape").decode()
        message = f"the character {character} cannot be written as {encoding.told}; leave it out, or use utf-8"
        raise ToolClientError(message, tool_name=tool_name, code="encoding_wrong") from None
