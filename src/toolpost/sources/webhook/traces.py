"""Failures without their stack traces, which name files and versions of the server and are told to nobody."""

from __future__ import annotations

import re
from typing import Any

from toolpost.schema.jsontypes import is_array, is_object
from toolpost.web.contents import decoded, parsed_json
from toolpost.web.encoding import compact_json

_LONGEST_LOOK = 20_000
_DEEPEST = 5
_TRACES = frozenset({"stacktrace", "stack"})
_BREAK = re.compile(r"<br\s{0,9}/?>", re.IGNORECASE)
_FRAME_LINE = re.compile(r"(?:\s|&nbsp;){0,80}at\s")
# A frame of a JavaScript stack within a line: `at name (file:1:2)` or `at file:1:2`.
_FRAME = re.compile(r"\s?\bat (?:[^\s()]{1,200} ){0,4}\(?[^\s()]{1,500}:\d{1,9}:\d{1,9}\)?")


def without_traces(body: bytes) -> bytes:
    """The body of a failure without traces; one that has none stays as it is."""
    try:
        told = parsed_json(body)
    except ValueError:
        text = decoded(body[:_LONGEST_LOOK])
        kept = without_frames(text)
        return body if kept == text else kept.encode()
    cleaned = _cleaned(told)
    if cleaned == told:
        return body
    return compact_json(cleaned).encode() if cleaned else b""


def without_frames(text: str) -> str:
    """A text without the lines, and the parts of lines, that are frames of a stack."""
    lines = _BREAK.sub("\n", text[:_LONGEST_LOOK]).splitlines()
    if len(lines) > 1:
        text = "\n".join(line for line in lines if not _FRAME_LINE.match(line))
    return _FRAME.sub("", text[:_LONGEST_LOOK])


def _cleaned(value: Any, depth: int = 0) -> Any:
    """A value without traces, as deep as anything is told of it."""
    if isinstance(value, str):
        return without_frames(value)
    if depth > _DEEPEST:
        return None
    if is_array(value):
        return [_cleaned(item, depth + 1) for item in value]
    if is_object(value):
        return {name: _cleaned(inner, depth + 1) for name, inner in value.items() if name.lower() not in _TRACES}
    return value
