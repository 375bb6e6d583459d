"""Encode and decode messages: JSON, correlation ids, and the result or error in an answer."""

from __future__ import annotations

import base64
import json
from json.encoder import encode_basestring_ascii
from json.scanner import make_scanner
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn, cast

from toolpost.contracts.errors import ToolClientError, ToolOutputError, ToolValidationError
from toolpost.schema.json_values import is_object
from toolpost.web.failures import sanitize

if TYPE_CHECKING:
    from collections.abc import Callable

    from toolpost.contracts.config import WebSocketOptions

_SHOWN = 80


def json_text(value: Any) -> str:
    """Encode a value as JSON in ASCII."""
    if isinstance(value, str):
        return encode_basestring_ascii(value)
    try:
        return _encode(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise ToolValidationError(f"the message is not JSON: {error}") from None


def json_value(message: str | bytes) -> Any:
    """Parse a JSON message; raise a ToolOutputError with its beginning when it is none."""
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
    """Return the beginning of a message for an error."""
    head = message[: 4 * _SHOWN]
    return repr(beginning(sanitize(head if isinstance(head, str) else head.decode(errors="replace"), ()), _SHOWN))


def beginning(text: str, longest: int) -> str:
    """Shorten a text; an ellipsis marks the cut, since a secret may have been cut in two."""
    return text if len(text) <= longest else f"{text[:longest]}…"


def sendable_text(text: str) -> str:
    """Return a text that can be sent; raise for half of a surrogate pair, which has no bytes."""
    octets(text)
    return text


def octets(text: str) -> bytes:
    """Encode a text; raise a ToolValidationError when it has no bytes."""
    try:
        return text.encode()
    except UnicodeEncodeError as error:
        raise ToolValidationError(f"the message cannot be sent: {error.reason}") from None


def listed(value: Any) -> Any:
    """Convert a value for a JSON list: bytes become base64."""
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


Path = tuple[str, ...]

_JSON_RPC = "2.0"


def path_of(field: str) -> Path:
    """Split a dotted path."""
    return tuple(field.split("."))


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a path, or None."""
    for key in path:
        if not is_object(value):
            return None
        value = value.get(key)
    return value


class Correlation(NamedTuple):
    """Where messages carry their correlation ids."""

    sent: Path
    returned: Path
    as_text: bool = False

    @classmethod
    def of(cls, options: WebSocketOptions) -> Correlation:
        """Read the paths of the source's configuration."""
        returned = options.reply_id_field or options.id_field
        return cls(path_of(options.id_field), path_of(returned), options.id_type == "text")

    def taken(self, answer: Any) -> int | None:
        """Remove the id from an answer and return its number; None for a message that answers no call.

        Such a message may lose the value at the place of the id.
        """
        path = self.returned
        holder = answer if len(path) == 1 else value_at(answer, path[:-1])
        if not is_object(holder) or ("method" in answer and _is_request(answer)):
            return None
        written = holder.pop(path[-1], None)
        return written if type(written) is int else _number(written)


def _is_request(message: dict[str, Any]) -> bool:
    """Whether a message is a JSON-RPC request of the server, whose id is not one of a call."""
    return message.get("jsonrpc") == _JSON_RPC and "result" not in message and "error" not in message


def _number(written: Any) -> int | None:
    """Parse an id, also one that a server turned into a text. `True` is a number to Python, but no id."""
    if type(written) is str and written.isdecimal() and len(written) < 20:
        return int(written)
    return None


def result_of(answer: Any) -> Any:
    """Return the result of an answer: its JSON-RPC `result`, or all of it; raise a ToolClientError for an error."""
    if not is_object(answer):
        return answer
    if (error := answer.get("error")) and _is_told(error):
        raise ToolClientError(f"the server answered with an error: {_words(error, answer)}", code="error_answer")
    if answer.get("jsonrpc") == _JSON_RPC and "result" in answer:
        return answer["result"]
    return answer


def _is_told(error: Any) -> bool:
    """Whether an `error` value describes a failure; a number may as well be the error of a measurement."""
    return error is True or isinstance(error, (str, dict))


def _words(error: Any, answer: dict[str, Any]) -> str:
    told = answer.get("message", "no reason is given") if error is True else error
    if not is_object(told):
        return sanitize(told if isinstance(told, str) else json_text(told), ())
    message, code = told.get("message"), told.get("code")
    if not isinstance(message, str):
        return sanitize(json_text(told), ())
    return sanitize(message if code is None else f"{message} (code {code})", ())
