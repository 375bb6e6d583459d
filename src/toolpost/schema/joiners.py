"""Tell where scripts and emoji need characters that are hidden elsewhere: joiners, direction marks, selectors."""

from __future__ import annotations

import re

_FLAG_TAGS = re.compile("[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f")
_BLACK_FLAG = "\U0001f3f4"
_KEYCAP = "\u20e3"
_NEAR = 24
# By the characters that do their work there: what must stand before them, and what after. One alone is kept; more of
# them in a row, or elsewhere, show nothing and could say something to a model.
_PICTURE = re.compile(
    "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"  # emoji
)
_JOINING = re.compile(
    "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\u1a20-\u1aaf\u1b00-\u1c4f\ua800-\ua82f\ua880-\uaaff"
    "\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010a5f\U00010d00-\U00010d3f\U00011000-\U00011fff]"
)
_RIGHT_TO_LEFT = re.compile(
    "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
)
_MONGOLIAN = re.compile("[\u1807-\u18aa]")


def has_place(found: re.Match[str]) -> bool:
    """Return whether hidden characters are needed here: in Persian, Hebrew, Indic scripts, emoji and keycaps."""
    run, text, (start, end) = found[0], found.string, found.span()
    before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
    last, first = before[-1:], after[:1]
    match run:
        case "\ufe0e" | "\ufe0f":
            return _PICTURE.match(last) is not None or first == _KEYCAP
        case "\ufe0f\u200d":
            return _PICTURE.match(last) is not None and _PICTURE.match(first) is not None
        case "\u200c" | "\u200d":
            pictures = run == "\u200d" and _PICTURE.match(last) and _PICTURE.match(first)
            return bool(pictures) or _JOINING.match(last) is not None
        case "\u200e" | "\u200f" | "\u061c":  # beside what has no direction, near what has one
            return _RIGHT_TO_LEFT.search(before) is not None or _RIGHT_TO_LEFT.search(after) is not None
        case "\u180b" | "\u180c" | "\u180d" | "\u180e" | "\u180f":
            return _MONGOLIAN.match(last) is not None
        case _:
            return last == _BLACK_FLAG and _FLAG_TAGS.fullmatch(run) is not None
