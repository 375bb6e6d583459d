"""Correlation ids: where a message carries its own, and where its answer brings it back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.contracts.options import WebSocketOptions

Path = tuple[str, ...]

_JSON_RPC = "2.0"


def path_of(field: str) -> Path:
    """A dotted path, taken apart."""
    return tuple(field.split("."))


def value_at(value: Any, path: Path) -> Any:
    """What stands at a path, or None."""
    for key in path:
        if not is_object(value):
            return None
        value = value.get(key)
    return value


class Correlation(NamedTuple):
    """How ids are written down."""

    sent: Path
    returned: Path
    as_text: bool = False

    @classmethod
    def of(cls, options: WebSocketOptions) -> Correlation:
        """As an operator says."""
        returned = options.reply_id_field or options.id_field
        return cls(path_of(options.id_field), path_of(returned), options.id_type == "text")

    def taken(self, answer: Any) -> int | None:
        """The number that an answer is for, taken out of it: it means nothing to whoever asked.

        What has none is nobody's, and may lose whatever stands in its place.
        """
        path = self.returned
        holder = answer if len(path) == 1 else value_at(answer, path[:-1])
        if not is_object(holder) or ("method" in answer and _is_request(answer)):
            return None
        written = holder.pop(path[-1], None)
        return written if type(written) is int else _number(written)


def _is_request(message: dict[str, Any]) -> bool:
    """Whether it is a JSON-RPC request of the server's own, whose id is none of ours."""
    return message.get("jsonrpc") == _JSON_RPC and "result" not in message and "error" not in message


def _number(written: Any) -> int | None:
    """An id that came back as a text, as some servers make of every number. To Python `True` would be a number."""
    if type(written) is str and written.isdecimal() and len(written) < 20:
        return int(written)
    return None
