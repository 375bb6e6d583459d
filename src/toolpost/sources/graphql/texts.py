"""Descriptions of a schema, cut to what a reader needs."""

from __future__ import annotations

import re

# What OpenAI's function calling takes.
LONGEST = 1024
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]")


def shortened(text: str | None, limit: int = LONGEST) -> str:
    """The text, or as many whole words as fit."""
    plain = _CONTROL.sub("", text or "").strip() if limit else ""
    if len(plain) <= limit:
        return plain
    head = plain[: limit - 1]
    return f"{head.rsplit(maxsplit=1)[0] if ' ' in head else head}…"
