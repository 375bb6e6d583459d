"""Messages of WebSocket servers: encode them, decode them, and quote them in errors."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from functools import cache
from json.encoder import encode_basestring_ascii
from typing import Any, Literal, NoReturn

from toolpost.contracts.errors import ToolOutputError, ToolValidationError
from toolpost.http.response_errors import sanitize
from toolpost.schema.json_size import MAX_DIRECT_VALUES, SMALL, measure_json

_SHOWN = 80
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


def codec(form: Literal["json", "text", "bytes"]) -> tuple[Callable[[str], str | bytes], Callable[[str | bytes], Any]]:
    """Return the functions that encode and decode the messages of a format."""
    match form:
        case "json":
            return str, json_value
        case "text":
            return sendable_text, _decode_text
        case "bytes":
            return octets, _bytes


def json_text(value: Any) -> str:
    """Encode a value as JSON in ASCII."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolValidationError(f"the message is not JSON: {error}") from None


def json_value(message: str | bytes) -> Any:
    """Parse a JSON message; raise a ToolOutputError with its beginning if it is invalid."""
    if len(message) > SMALL:
        measure_json(
            message.encode("utf-8", "surrogatepass") if isinstance(message, str) else message, MAX_DIRECT_VALUES
        )
    try:
        text = message if isinstance(message, str) else message.decode()
        return _decoder().decode(text)
    except (ValueError, RecursionError):
        raise ToolOutputError(f"the answer is not JSON: {excerpt(message)}") from None


def excerpt(message: str | bytes) -> str:
    """Return the beginning of a message for an error."""
    head = message[: 4 * _SHOWN]
    return repr(beginning(sanitize(head if isinstance(head, str) else head.decode(errors="replace"), ()), _SHOWN))


def beginning(text: str, longest: int) -> str:
    """Shorten a text; an ellipsis marks the cut for redaction, because a secret may have been cut in two."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def sendable_text(text: str) -> str:
    """Return a text that can be sent; raise an error for half of a surrogate pair, which cannot be encoded."""
    octets(text)
    return text


def octets(text: str) -> bytes:
    """Encode a text; raise a ToolValidationError if it cannot be encoded."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolValidationError(f"the message cannot be sent: {error.reason}") from None


def listed(value: Any) -> Any:
    """Convert a value for a JSON list: bytes become base64."""
    return base64.b64encode(value).decode() if isinstance(value, bytes) else value


def _decode_text(message: str | bytes) -> str:
    try:
        return message if isinstance(message, str) else message.decode()
    except UnicodeDecodeError:
        raise ToolOutputError("the answer is not text; use `format: bytes` for binary data") from None


def _bytes(message: str | bytes) -> bytes:
    return message.encode() if isinstance(message, str) else message


@cache
def _decoder() -> json.JSONDecoder:
    return json.JSONDecoder(parse_constant=_no_number)


def _no_number(text: str) -> NoReturn:
    raise ValueError(f"{text} is not a number in JSON")
