"""Encode values for URLs, headers, cookies and multipart bodies; refuse values that the place cannot carry."""

from __future__ import annotations

import json
import math
import re
import secrets
from decimal import Decimal
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias
from urllib.parse import quote

from toolpost.schema.json_values import json_type

if TYPE_CHECKING:
    from collections.abc import Iterable

Pair: TypeAlias = tuple[str, str]

# RFC 6265's cookie-octets, without `%`: servers that decode cookies and servers that do not read the same value.
_COOKIE_OCTETS = "!#$&'()*+/:<=>?@[]^`{|}"
_COOKIE_NAME = "!#$&'*+^`|"
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")
_PERCENT = [quote(bytes([octet]), safe="") for octet in range(256)]  # looked up three times faster than quoted
_UNQUOTABLE = re.compile(r'[\x00-\x1f"\x7f]')
_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class UnsendableError(ValueError):
    """Raised for a value that its place cannot carry; the text is the reason and never quotes the value."""


def compact_json(value: Any) -> str:
    """Encode a value as JSON in ASCII, which is valid in every charset."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsendableError(f"it is not JSON: {error}") from error


def format_value(value: Any) -> str:
    """Format one value as text, not yet percent-encoded; objects and arrays become JSON."""
    match value:
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int():
            return _integer_text(value)
        case float() | Decimal():
            return _number_text(value)
        case dict() | list():
            return compact_json(value)
        case _:
            raise UnsendableError(f"it is {json_type(value)}, which has no text")


def percent_encode(text: str) -> str:
    """Percent-encode everything but RFC 3986's unreserved characters."""
    return text if _UNRESERVED.fullmatch(text) else "".join(map(_PERCENT.__getitem__, text.encode()))


def encode_cookie_name(text: str) -> str:
    """Encode the name of a cookie."""
    return quote(text, safe=_COOKIE_NAME)


def encode_cookie_value(text: str) -> str:
    """Encode the value of a cookie."""
    return quote(text, safe=_COOKIE_OCTETS)


def check_header_value(text: str) -> str:
    """Return a text that a header can carry, sent as UTF-8; raise UnsendableError otherwise."""
    if _UNFIT_FOR_HEADER.search(text):
        raise UnsendableError("it holds a line break or another control character, which a header cannot carry")
    if text != text.strip(" \t"):
        raise UnsendableError("it begins or ends with white space, which a header cannot carry")
    text.encode()  # half of a surrogate pair has no bytes
    return text


def _integer_text(value: int) -> str:
    try:
        return str(int(value))  # `int` also for members of an enum
    except ValueError as error:
        raise UnsendableError("it is a number of thousands of digits") from error


def _number_text(value: float | Decimal) -> str:
    """Format a number without exponent; a whole one without fraction, because `3.0` is an integer to JSON Schema."""
    if not math.isfinite(value):
        raise UnsendableError("it is not a finite number")
    if value == int(value):
        return str(int(value))
    return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")


class FormPart(NamedTuple):
    """One part of a multipart body; with a `filename` it is a file."""

    name: str
    data: bytes
    content_type: str | None = None
    filename: str | None = None
    headers: tuple[Pair, ...] = ()


def encode_multipart(parts: Iterable[FormPart]) -> tuple[bytes, str]:
    """Encode a multipart body (RFC 7578); return it with the boundary for its Content-Type."""
    boundary = secrets.token_hex(16)
    opening = b"--" + boundary.encode()
    pieces = [piece for part in parts for piece in (opening, _part_head(part), part.data)]
    return b"\r\n".join([*pieces, opening + b"--", b""]), boundary


def _part_head(part: FormPart) -> bytes:
    disposition = f'form-data; name="{_quoted(part.name)}"'
    if part.filename is not None:
        disposition += f'; filename="{_quoted(part.filename)}"'
    lines = [f"Content-Disposition: {disposition}"]
    if part.content_type:
        lines.append(f"Content-Type: {check_header_value(part.content_type)}")
    lines += [f"{check_header_value(name)}: {check_header_value(value)}" for name, value in part.headers]
    return "\r\n".join([*lines, ""]).encode()


def _quoted(text: str) -> str:
    """Escape a name for quotes: browsers and RFC 7578 write UTF-8, and percent-encode what would end the quotes."""
    return _UNQUOTABLE.sub(lambda found: f"%{ord(found[0]):02X}", text)
