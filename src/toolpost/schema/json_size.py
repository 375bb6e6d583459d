"""The size of a JSON document before it is decoded: how many values it has, and how deeply they are nested."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple, Self

from toolpost.contracts.errors import ToolClientError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.config import ExternalToolConfig

MAX_VALUES = 2_500_000
MAX_INLINE_VALUES = 100_000
MAX_DIRECT_VALUES = 500_000
"""The limit for a document that cannot be decoded in another process."""
MAX_DEPTH = 200
SMALL = 256 * 1024
"""Documents up to this size, in bytes, are not measured: they are decoded within a few milliseconds."""

_SLICE = 1 << 20  # other threads run after each
# A string, or the beginning of one that continues in the next slice. Each byte is examined once.
_STRING = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\Z)', re.DOTALL)
_END = b"#"
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_TOO_DEEP = re.compile(rb"[\[{]{%d}" % (MAX_DEPTH + 1))


class CheckedJson(bytes):
    """A JSON document that was checked in another process, and has too many values to be decoded in this one."""


class JsonLimits(NamedTuple):
    """The most values that a document may have, and the most that are decoded in this process."""

    max_values: int = MAX_VALUES
    inline_values: int = MAX_INLINE_VALUES

    @classmethod
    def of(cls, config: ExternalToolConfig) -> Self:
        """Return the limits of a source."""
        return cls(config.max_values, config.inline_values)


def measure_json(data: bytes, max_values: int = MAX_VALUES) -> int:
    """Return an upper estimate of the number of values in a document.

    Raise ToolClientError with the code `message_too_large` if the document exceeds the limit or is nested too deeply.
    This counts commas and brackets, which is fast; those in strings are excluded only if it matters.
    """
    values = sum(map(_count, _slices(data)))
    if values <= MAX_DEPTH:
        return values
    if values > max_values:
        values = sum(map(_count, _without_strings(data)))
        if values > max_values:
            raise too_large(f"it has more than {max_values:,} values")
    if _is_too_deep(data):
        raise too_large(f"it is nested more than {MAX_DEPTH} levels deep")
    return values


def too_large(reason: str) -> ToolClientError:
    """Return the error for a message that must not be decoded."""
    message = f"the message is too large to be decoded: {reason}; ask for less, or raise the limit of the source"
    return ToolClientError(message, code="message_too_large")


def _count(data: bytes) -> int:
    return data.count(b",") + data.count(b"[") + data.count(b"{")


def _slices(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), _SLICE):
        yield data[start : start + _SLICE]


def _without_strings(data: bytes) -> Iterator[bytes]:
    """Yield a document in pieces without its strings."""
    begun = b""
    for piece in _slices(data):
        whole = begun + piece
        rest = _STRING.sub(b"", whole + _END)
        if rest.endswith(_END):
            begun = b""
            yield rest[:-1]
        else:  # the end is in a string, which continues in the next piece
            escapes = (len(whole) - len(whole.rstrip(b"\\"))) % 2
            begun = b'"\\' if escapes else b'"'
            yield rest


def _is_too_deep(data: bytes) -> bool:
    brackets = b"".join(piece.translate(None, _NO_BRACKETS) for piece in _without_strings(data))
    for _ in range(MAX_DEPTH):
        if _TOO_DEEP.search(brackets):
            return True
        inner = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(inner) == len(brackets):
            return False  # nothing is left, or it is not JSON, which the decoder reports
        brackets = inner
    return bool(brackets)
