"""Cuts a byte stream into lines; one that is longer than allowed is replaced by an error that says so.

A message is one line, on a pipe as in an event stream. Dropping the line instead would
leave its call waiting; breaking off would take every other call down with it.
"""

from __future__ import annotations

import json
import re
import secrets
from typing import Any

from toolpost.schema.jsontypes import is_object

# Where, in an error's data, we say what only the transport knows. No server can guess the word, so none can
# claim that a call was never sent and have it run again.
TOLD = f"toolpost-{secrets.token_hex(16)}"
_HEAD = re.compile(
    rb'^(?:data: ?)?\s*\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})'
)
_TAIL = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')
_EDGE = 512


class Lines:
    """Collects chunks and gives out whole lines, without their newline."""

    __slots__ = ("_head", "_limit", "_parts", "_size", "_tail")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._parts: list[bytes] = []
        self._size = 0
        self._head = b""
        self._tail = b""

    def feed(self, chunk: bytes) -> list[bytes]:
        """Take in a chunk; the lines it completes."""
        first, *rest = chunk.split(b"\n")
        self._add(first)
        lines: list[bytes] = []
        for part in rest:
            lines.append(self._take())
            self._add(part)
        return lines

    def rest(self) -> bytes:
        """What is left when the stream has ended."""
        return self._take()

    def _add(self, part: bytes) -> None:
        self._size += len(part)
        if self._size <= self._limit:
            self._parts.append(part)
            return
        if self._parts:
            kept = b"".join(self._parts)
            self._head, self._tail = kept[:_EDGE], kept[-_EDGE:]
            self._parts.clear()
        self._head = self._head or part[:_EDGE]
        self._tail = (self._tail + part)[-_EDGE:]

    def _take(self) -> bytes:
        size, parts = self._size, self._parts
        self._size, self._parts = 0, []
        if size <= self._limit:
            return parts[0] if len(parts) == 1 else b"".join(parts)
        head, tail, self._head, self._tail = self._head, self._tail, b"", b""
        return _stand_in(head, tail, size, self._limit)


def _stand_in(head: bytes, tail: bytes, size: int, limit: int) -> bytes:
    """An error with the id of the message that was too long; nothing when no id can be made out."""
    request_id = _id_in(head, tail)
    if request_id is None:
        return b""
    prefix = b"data: " if head.startswith(b"data:") else b""
    return prefix + error_message(request_id, *too_long(size, limit))


def unreadable(message: bytes) -> bytes | None:
    """An error in place of an answer that is no message; None for what is no answer at all."""
    request_id = _id_in(message[:_EDGE], message[-_EDGE:])
    if request_id is None:
        return None
    text = f"the server's answer of {len(message)} bytes cannot be read: no JSON-RPC 2.0, or nested too deeply"
    return error_message(request_id, text, {"kind": "unreadable"})


def _id_in(head: bytes, tail: bytes) -> int | str | None:
    """The id of an answer, of which only the edges can be trusted to be there."""
    found = _HEAD.search(head) or _TAIL.search(tail)
    try:
        return None if found is None else json.loads(found[1])
    except ValueError:
        return None


def unbatched(message: bytes) -> list[bytes]:
    """The messages of a batch, one by one; none where it is no batch. Revision 2025-03-26 let servers send them."""
    if message.lstrip()[:1] != b"[":
        return []
    try:
        batch: Any = json.loads(message)
    except (ValueError, RecursionError):
        return []
    return [json.dumps(one).encode() for one in batch if is_object(one)]


def too_long(size: int, limit: int) -> tuple[str, dict[str, Any]]:
    """What is said of a message that is over the limit."""
    text = f"the server's answer has {size} bytes, more than the {limit} that mcp.max_message_bytes allows"
    return text, {"kind": "too_long", "size": size, "limit": limit}


def error_message(request_id: Any, text: str, told: dict[str, Any], *, code: int = -32000) -> bytes:
    """A JSON-RPC error of our own making, which the waiting call gets in place of an answer."""
    error = {"code": code, "message": text, "data": {TOLD: told}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
