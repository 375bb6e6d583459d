"""Texts of documents, cut to what a reader needs."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from toolpost.sources.openapi.operation import Operation

# What OpenAI's function calling takes.
LONGEST = 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")
_SENTENCE_END = re.compile(r"[.!?](?=\s)|\n\s*\n")


def described(operation: Operation, *, limit: int = LONGEST) -> str:
    """What an operation does: its summary and its description, or at least its method and path."""
    summary, description = operation.summary, operation.description
    if summary and not description.startswith(summary):
        description = f"{summary}\n\n{description}".strip()
    whole = _CONTROL.sub("", description) or f"{operation.method} {operation.path}"
    return shortened(whole, limit)


def shortened(text: str, limit: int) -> str:
    """The text, or as many whole sentences as fit, or as many words."""
    text = text.strip()
    if len(text) <= limit:
        return text
    head = text[:limit]
    ends = [found.end() for found in _SENTENCE_END.finditer(text, 0, limit + 1) if found.end() <= limit]
    if ends and ends[-1] >= limit // 3:
        return head[: ends[-1]].rstrip()
    words = head[: max(limit - 1, 0)].rsplit(maxsplit=1)[0] if " " in head else head[: max(limit - 1, 0)]
    return f"{words}…" if words else ""
