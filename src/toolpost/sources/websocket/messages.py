"""Messages on the wire: values as JSON, and answers as values again."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any, NoReturn, cast

from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.web.failures import presentable

if TYPE_CHECKING:
    from collections.abc import Callable

_SHOWN = 80


def json_text(value: Any) -> str:
    """A value as JSON in ASCII."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolValidationError(f"the message is not JSON: {error}") from None


def json_value(message: str | bytes) -> Any:
    """The value that a message holds; a ToolOutputError shows how it begins when it is not JSON."""
    try:
        text = message if isinstance(message, str) else message.decode()
        if text[:1] == "{":  # half the price of `decode`, where there is no white space around it
            value, end = _scan(text, 0)
            if end == len(text):
                return value
        return _decoder.decode(text)
    except (ValueError, RecursionError, StopIteration):
        raise ToolOutputError(f"the answer is not JSON: {excerpt(message)}") from None


def excerpt(message: str | bytes) -> str:
    """How a message begins, as an error may show it."""
    head = message[: 4 * _SHOWN]
    return repr(beginning(presentable(head if isinstance(head, str) else head.decode(errors="replace"), ()), _SHOWN))


def beginning(text: str, longest: int) -> str:
    """A text that is not too long; one that was cut says so, since a secret may have been cut with it."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def sendable_text(text: str) -> str:
    """A text that can be sent; half of a surrogate pair has no bytes."""
    octets(text)
    return text


def octets(text: str) -> bytes:
    """A text as bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolValidationError(f"the message cannot be sent: {error.reason}") from None


def listed(value: Any) -> Any:
    """A value as one of a list, where bytes have no place: they become base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _text(message: str | bytes) -> str:
    try:
        return message if isinstance(message, str) else message.decode()
    except UnicodeDecodeError:
        raise ToolOutputError("the answer is not text; `format: bytes` takes it as it is") from None


def _bytes(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else message


ENCODERS: dict[str, Callable[[str], str | bytes]] = {"json": str, "text": sendable_text, "bytes": octets}
DECODERS: dict[str, Callable[[str | bytes], Any]] = {"json": json_value, "text": _text, "bytes": _bytes}


def _no_number(written: str) -> NoReturn:
    raise ValueError(f"{written} is not a number in JSON")


_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode
_decoder = json.JSONDecoder(parse_constant=_no_number)
_scan = make_scanner(cast("Any", _decoder))  # its stub wants a scanner of a decoder
