"""Bodies of several parts, as RFC 7578 writes them."""

from __future__ import annotations

import re
import secrets
from typing import TYPE_CHECKING, NamedTuple

from toolpost.web.encoding import sendable_header

if TYPE_CHECKING:
    from collections.abc import Iterable

    from toolpost.web.encoding import Pair

_UNQUOTABLE = re.compile(r'[\x00-\x1f"\x7f]')


class FormPart(NamedTuple):
    """One part; with a `filename` it is a file."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None
    headers: tuple[Pair, ...] = ()


def multipart_body(parts: Iterable[FormPart]) -> tuple[bytes, str]:
    """The body and the boundary that its content type must name."""
    boundary = secrets.token_hex(16)
    opening = b"--" + boundary.encode()
    pieces = [piece for part in parts for piece in (opening, _head(part), part.data)]
    return b"\r\n".join([*pieces, opening + b"--", b""]), boundary


def _head(part: FormPart) -> bytes:
    disposition = f'form-data; name="{_quoted(part.name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quoted(part.filename)}"'
    lines = [f"Content-Disposition: {disposition}"]
    if part.content_type:
        lines.append(f"Content-Type: {sendable_header(part.content_type)}")
    lines += [f"{sendable_header(name)}: {sendable_header(value)}" for name, value in part.headers]
    return "\r\n".join([*lines, ""]).encode()


def _quoted(text: str) -> str:
    """A name between quotes: browsers and RFC 7578 write UTF-8, and percent-encode what would end the quotes."""
    return _UNQUOTABLE.sub(lambda found: f"%{ord(found[0]):02X}", text)
