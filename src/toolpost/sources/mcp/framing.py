"""Split byte streams into JSON-RPC lines and build the errors that replace unusable messages.

A message is one line, on a pipe as in an event stream. A line over the limit is replaced by an error with the id
of its request: dropping the line would leave that call waiting, closing the stream would fail every other call.
"""

from __future__ import annotations

import json
import re
import secrets
from functools import partial
from typing import Any

from toolpost.contracts.lines import EDGE_BYTES, LineSplitter
from toolpost.schema.json_values import is_object

# Key in an error's data for facts that only the transport knows. It is random, so that no server can forge
# "never sent" and have a call run again.
FACTS_KEY = f"toolpost-{secrets.token_hex(16)}"
_HEAD = re.compile(
    rb'^(?:data: ?)?\s*\{\s*(?:"jsonrpc"\s*:\s*"[^"]*"\s*,\s*)?"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})'
)
_TAIL = re.compile(rb'"id"\s*:\s*("(?:[^"\\]|\\.)*"|-?\d{1,18})\s*(?:,\s*"jsonrpc"\s*:\s*"[^"]*"\s*)?\}\s*$')


def split_messages(limit: int) -> LineSplitter:
    """Return a line splitter that replaces a message over the limit by an error with the id of its request."""
    return LineSplitter(limit, replace_long=partial(_too_long_error, limit))


def _too_long_error(limit: int, head: bytes, tail: bytes, size: int) -> bytes:
    """Build an error with the id of a message over the limit; return nothing when the id cannot be found."""
    request_id = _find_id(head, tail)
    if request_id is None:
        return b""
    prefix = b"data: " if head.startswith(b"data:") else b""
    return prefix + build_error(request_id, *describe_too_long(size, limit))


def unreadable_error(message: bytes) -> bytes | None:
    """Build an error in place of a response that cannot be parsed; None when it has no id."""
    request_id = _find_id(message[:EDGE_BYTES], message[-EDGE_BYTES:])
    if request_id is None:
        return None
    text = f"the server's answer of {len(message)} bytes cannot be read: no JSON-RPC 2.0, or nested too deeply"
    return build_error(request_id, text, {"kind": "unreadable"})


def _find_id(head: bytes, tail: bytes) -> int | str | None:
    """Find the id of a response in its first and last bytes."""
    match = _HEAD.search(head) or _TAIL.search(tail)
    try:
        return None if match is None else json.loads(match[1])
    except ValueError:
        return None


def split_batch(message: bytes) -> list[bytes]:
    """Return the messages of a JSON-RPC batch, or none. Protocol revision 2025-03-26 lets servers send batches."""
    if message.lstrip()[:1] != b"[":
        return []
    try:
        batch: Any = json.loads(message)
    except (ValueError, RecursionError):
        return []
    return [json.dumps(one).encode() for one in batch if is_object(one)]


def describe_too_long(size: int, limit: int) -> tuple[str, dict[str, Any]]:
    """Return the error text and facts for a message over the limit."""
    text = f"the server's answer has {size} bytes, more than the {limit} that mcp.max_message_bytes allows"
    return text, {"kind": "too_long", "size": size, "limit": limit}


def build_error(request_id: Any, text: str, facts: dict[str, Any], *, code: int = -32000) -> bytes:
    """Build a JSON-RPC error that the waiting request receives in place of a response."""
    error = {"code": code, "message": text, "data": {FACTS_KEY: facts}}
    return json.dumps({"jsonrpc": "2.0", "id": request_id, "error": error}).encode()
