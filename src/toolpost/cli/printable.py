"""Text made harmless for a terminal."""

from __future__ import annotations

import re

# Control characters and changes of direction: a tool's text must not repaint the screen that a person decides on.
_UNPRINTABLE = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def printable(text: str) -> str:
    """A text that cannot command a terminal."""
    return _UNPRINTABLE.sub("\N{REPLACEMENT CHARACTER}", text)
