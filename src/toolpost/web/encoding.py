"""Values as the text that a URL, a header, a cookie or a body can carry; what a place cannot carry is refused."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal
from typing import Any, TypeAlias
from urllib.parse import quote

from toolpost.schema.jsontypes import json_type

Pair: TypeAlias = tuple[str, str]

# RFC 6265's cookie-octets, without `%`: servers that decode cookies and servers that do not read the same value.
_COOKIE_OCTETS = "!#$&'()*+/:<=>?@[]^`{|}"
_COOKIE_NAME = "!#$&'*+^`|"
_UNRESERVED = re.compile(r"[A-Za-z0-9_.~-]*")
_PERCENT = [quote(bytes([octet]), safe="") for octet in range(256)]  # looked up three times faster than quoted
_UNFIT_FOR_HEADER = re.compile(r"[\x00-\x08\x0a-\x1f\x7f]")


class UnsendableError(ValueError):
    """A value that its place cannot carry; the text is the reason and never quotes the value."""


def compact_json(value: Any) -> str:
    """A value as JSON in ASCII, which is right in every charset."""
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":"))
    except (TypeError, ValueError, RecursionError) as error:
        raise UnsendableError(f"it is not JSON: {error}") from error


def text_of(value: Any) -> str:
    """One value as text, not yet encoded; what is nested where a style knows no nesting becomes JSON."""
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


def percent(text: str) -> str:
    """A text with everything but RFC 3986's unreserved characters encoded."""
    return text if _UNRESERVED.fullmatch(text) else "".join(map(_PERCENT.__getitem__, text.encode()))


def cookie_name(text: str) -> str:
    """A text as a cookie's name."""
    return quote(text, safe=_COOKIE_NAME)


def cookie_value(text: str) -> str:
    """A text as a cookie's value."""
    return quote(text, safe=_COOKIE_OCTETS)


def sendable_header(text: str) -> str:
    """The text, if a header can carry it; it travels as UTF-8."""
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
    """A number without exponent; a whole one without fraction, because `3.0` is an integer to JSON Schema."""
    if not math.isfinite(value):
        raise UnsendableError("it is not a finite number")
    if value == int(value):
        return str(int(value))
    return format(Decimal(repr(value)) if isinstance(value, float) else value, "f")
