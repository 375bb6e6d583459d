"""Correlation of responses with calls by an id in each message, and the result in a response."""

from __future__ import annotations

from typing import Any, NamedTuple

from toolpost.contracts.errors import ToolClientError
from toolpost.http.response_errors import sanitize
from toolpost.schema.json_values import is_object
from toolpost.sources.websocket.messages import json_text
from toolpost.sources.websocket.options import WebSocketOptions

Path = tuple[str, ...]
_JSON_RPC = "2.0"


class Correlation(NamedTuple):
    """The places of correlation ids in messages."""

    sent: Path
    returned: Path
    as_text: bool = False

    @classmethod
    def of(cls, options: WebSocketOptions) -> Correlation:
        returned = options.reply_id_field or options.id_field
        return cls(path_of(options.id_field), path_of(returned), options.id_type == "text")

    def taken(self, answer: Any) -> int | None:
        """Remove the id from an answer and return its number; None for a message that does not answer a call.

        Such a message may lose the value at the place of the id.
        """
        path = self.returned
        holder = answer if len(path) == 1 else value_at(answer, path[:-1])
        if not is_object(holder) or ("method" in answer and _is_request(answer)):
            return None
        value = holder.pop(path[-1], None)
        return value if type(value) is int else _number(value)


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


def _is_request(message: dict[str, Any]) -> bool:
    """Return whether a message is a JSON-RPC request of the server; its id is not the id of a call."""
    return message.get("jsonrpc") == _JSON_RPC and "result" not in message and "error" not in message


def _number(value: Any) -> int | None:
    """Parse an id, also one that the server converted to a string; `True` is a Python number, but not an id."""
    if type(value) is str and value.isdecimal() and len(value) < 20:
        return int(value)
    return None


def result_of(answer: Any) -> Any:
    """Return the result of an answer: its JSON-RPC `result`, or all of it; raise a ToolClientError for an error."""
    if not is_object(answer):
        return answer
    if (error := answer.get("error")) and _describes_failure(error):
        raise ToolClientError(f"the server answered with an error: {_words(error, answer)}", code="error_answer")
    if answer.get("jsonrpc") == _JSON_RPC and "result" in answer:
        return answer["result"]
    return answer


def _describes_failure(error: Any) -> bool:
    """Return whether an `error` value describes a failure; a number may be the error of a measurement."""
    return error is True or isinstance(error, (str, dict))


def _words(error: Any, answer: dict[str, Any]) -> str:
    reason = answer.get("message", "no reason is given") if error is True else error
    if not is_object(reason):
        return sanitize(reason if isinstance(reason, str) else json_text(reason), ())
    message, code = reason.get("message"), reason.get("code")
    if not isinstance(message, str):
        return sanitize(json_text(reason), ())
    return sanitize(message if code is None else f"{message} (code {code})", ())
