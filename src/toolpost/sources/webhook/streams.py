"""The answer of a workflow that streams: lines of JSON that begin, continue or end a text, or tell of an error."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_object
from toolpost.sources.webhook.n8n_failures import workflow_failed
from toolpost.web.contents import parsed_json
from toolpost.wire.headers import Headers

if TYPE_CHECKING:
    from toolpost.web.sending import Reply

_KINDS = frozenset({"begin", "item", "end", "error"})


def put_together(subject: str, reply: Reply) -> Reply:
    """The answer with its pieces put together; one that is no such stream stays as it is.

    An error that nothing follows is where the workflow stopped; other nodes go on after theirs.
    """
    lines = _lines(reply.body)
    if lines is None:
        return reply
    if lines[-1]["type"] == "error":
        raise workflow_failed(subject)
    pieces = [line["content"] for line in lines if line["type"] == "item" and isinstance(line.get("content"), str)]
    return reply._replace(headers=Headers(()), body="".join(pieces).encode("utf-8", "replace"))


def _lines(body: bytes) -> list[dict[str, Any]] | None:
    try:
        lines = [parsed_json(line) for line in body.splitlines() if line.strip()]
    except ValueError:
        return None
    told = [line for line in lines if is_object(line) and line.get("type") in _KINDS]
    return told if told and len(told) == len(lines) else None
