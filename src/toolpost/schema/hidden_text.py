"""Remove or escape hidden characters in external texts.

Hidden characters are invisible to a person but not to a model, or they disguise the text around them.
"""

from __future__ import annotations

import json
import re
from typing import Any, NamedTuple

from toolpost.contracts.errors import ToolOutputError
from toolpost.schema.json_values import SCHEMA_MAPS, is_array, is_object

# Invisible or disguising characters: control characters, format characters without a shape (not the Arabic number
# signs, which have one), fillers, variation selectors and tag characters.
_CONTROLS = "\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f"
_HIDDEN = (
    "\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f"
    "\u2028-\u202e\u2060-\u206f\u3164\ud800-\udfff\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb"
    "\U0001bca0-\U0001bca3\U0001d173-\U0001d17a\U000e0000-\U000e0fff"
)
_RUNS = re.compile(f"[{_CONTROLS}{_HIDDEN}]+")
_ASCII_CONTROLS = bytes({*range(32), 127} - {9, 10, 13})
_BREAKS = str.maketrans({"\x0b": " ", "\x0c": " ", "\x85": "\n", "\u2028": "\n", "\u2029": "\n"})
_TAGS = re.compile("[\U000e0020-\U000e007e]+")
_TAG_BASE = 0xE0000
_encode = json.JSONEncoder(separators=(",", ":")).encode

# Keywords of JSON Schema: texts for readers, and plain values.
_TEXTS = frozenset({"description", "title", "$comment"})
_VALUES = frozenset({"const", "default", "enum", "examples", "example"})
_write = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode
_AROUND = 40

# Patterns as strings, compiled by `re` at their first use: they take long to compile, and few texts need them.
_FLAG_TAGS = "[\U000e0030-\U000e0039\U000e0061-\U000e007a]{3,6}\U000e007f"
_BLACK_FLAG = "\U0001f3f4"
_KEYCAP = "\u20e3"
_NEAR = 24
# Characters with a function, by the pattern that must precede or follow them. A single one is kept. Several in a row,
# or one in another place, are invisible and could carry instructions to a model.
_PICTURE = "[\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff]"  # emoji
_JOINING = (
    "[\u0600-\u08ff\u0900-\u0dff\u1000-\u109f\u1780-\u18af\u1a20-\u1aaf\u1b00-\u1c4f\ua800-\ua82f\ua880-\uaaff"
    "\uabc0-\uabff\ufb50-\ufdff\ufe70-\ufefc\U00010a00-\U00010a5f\U00010d00-\U00010d3f\U00011000-\U00011fff]"
)
_RIGHT_TO_LEFT = "[\u0590-\u061b\u061d-\u08ff\ufb1d-\ufdff\ufe70-\ufefc\U00010800-\U00010fff\U0001e800-\U0001efff]"
_MONGOLIAN = "[\u1807-\u18aa]"


class CleanText(NamedTuple):
    """A text without hidden characters, and how many were removed."""

    text: str
    hidden: int = 0


def clean_value(value: Any) -> tuple[Any, int]:
    """Remove hidden characters from the texts and names of a JSON value; return the value and how many were removed."""
    if value is None or isinstance(value, bool | int | float):
        return value, 0
    try:
        return (value, 0) if _is_printable_ascii(value) else _clean_value(value)
    except RecursionError:
        raise ToolOutputError("the result is nested too deeply to be looked through") from None


def strip_invisible(text: str) -> str:
    """Remove every invisible character; words written in tag characters become these words."""
    return _RUNS.sub(lambda found: _spelled(found[0]), text)


def _spelled(run: str) -> str:
    return "".join(chr(ord(char) - _TAG_BASE) for tags in _TAGS.findall(run) for char in tags)


def clean_text(text: str) -> CleanText:
    """Remove hidden characters from a text; words written in tag characters are shown.

    Joiners, direction marks and variation selectors stay if scripts or emoji need them.
    """
    # Most texts are plain ASCII, which this pass over the bytes detects quickly.
    if text.isascii() and len(text.encode().translate(None, _ASCII_CONTROLS)) == len(text):
        return CleanText(text)
    hidden = 0

    def shown(found: re.Match[str]) -> str:
        nonlocal hidden
        run = found[0]
        if _has_place(found):
            return run
        hidden += len(run)
        spelled = _spelled(run)
        if spelled:
            return f"[hidden text: {spelled}]"
        return "".join(char for char in run.translate(_BREAKS) if char in " \n")

    return CleanText(_RUNS.sub(shown, text), hidden)


def escape_hidden(text: str) -> str:
    """Replace hidden characters by Python escapes."""

    def spelled(found: re.Match[str]) -> str:
        return found[0] if _has_place(found) else found[0].encode("unicode_escape").decode()

    return _RUNS.sub(spelled, text)


def hidden_excerpt(text: str) -> str:
    """Return the part of a text around its first hidden characters, escaped; empty if there are none."""
    for run in _RUNS.finditer(text):
        if not _has_place(run):
            start, end = run.span()
            return escape_hidden(text[max(0, start - _AROUND) : end + _AROUND][: 3 * _AROUND])
    return ""


def may_hide_characters(text: str) -> bool:
    """Return whether a text may have hidden characters; a quick check with false positives."""
    return not (text.isascii() and text.isprintable()) and _RUNS.search(text) is not None


def may_hide(value: Any) -> bool:
    """Return whether a JSON value may have hidden characters; a quick check with false positives."""
    try:
        written = _write(value)
    except (TypeError, ValueError, RecursionError):
        return True
    return may_hide_in(written)


def may_hide_in(written: str) -> bool:
    """Return whether JSON text that was written without ASCII escapes may have hidden characters."""
    if "\\" in written and ("\\u00" in written or "\\b" in written or "\\f" in written):  # control characters
        return True
    return "\x7f" in written or (not written.isascii() and _RUNS.search(written) is not None)


def find_hidden(value: Any) -> str:
    """Return the first text or name in a JSON value with hidden characters; empty if there is none."""
    if isinstance(value, str):
        return value if hidden_excerpt(value) else ""
    parts = [*value, *value.values()] if is_object(value) else value if is_array(value) else []
    for part in parts:
        if excerpt := find_hidden(part):
            return excerpt
    return ""


def clean_schema(schema: Any) -> Any:
    """Remove hidden characters from a schema's descriptions and titles; keywords that validate are unchanged."""
    if is_array(schema):
        return [clean_schema(part) for part in schema]
    if not is_object(schema):
        return schema
    return {key: _readable_part(key, part) for key, part in schema.items()}


def _readable_part(key: str, part: Any) -> Any:
    if key in _TEXTS and isinstance(part, str):
        return clean_text(part).text
    if key in SCHEMA_MAPS and is_object(part):
        return {name: clean_schema(inner) for name, inner in part.items()}
    return part if key in _VALUES else clean_schema(part)


def _is_printable_ascii(value: Any) -> bool:
    """Return whether a value is printable ASCII: encoding it is many times faster than examining each text.

    The encoder escapes all other characters.
    """
    if isinstance(value, str):
        return False  # examining one text is faster than encoding it
    try:
        written = _encode(value)
    except (TypeError, ValueError):
        return False
    return "\\u" not in written and "\\b" not in written and "\\f" not in written


def _clean_value(value: Any) -> tuple[Any, int]:
    """Return the value itself, not a copy, if nothing is hidden."""
    if isinstance(value, str):
        return clean_text(value)
    if is_object(value):
        return _clean_object(value)
    if not is_array(value):
        return value, 0
    items: list[Any] = []
    hidden = 0
    for item in value:
        seen, count = (item, 0) if item is None or isinstance(item, bool | int | float) else _clean_value(item)
        items.append(seen)
        hidden += count
    return (items, hidden) if hidden else (value, 0)


def _clean_object(value: dict[str, Any]) -> tuple[Any, int]:
    members: dict[str, Any] = {}
    hidden = 0
    for name, item in value.items():
        key, in_name = clean_text(name)
        seen, count = _clean_value(item)
        while in_name and (key in members or key in value):  # names that only looked alike stay distinct
            key += "_"
        members[key] = seen
        hidden += in_name + count
    return (members, hidden) if hidden else (value, 0)


def _has_place(found: re.Match[str]) -> bool:
    """Return whether hidden characters are needed here: in Persian, Hebrew, Indic scripts, emoji and keycaps."""
    run, text, (start, end) = found[0], found.string, found.span()
    before, after = text[max(0, start - _NEAR) : start], text[end : end + _NEAR]
    last, first = before[-1:], after[:1]
    match run:
        case "\ufe0e" | "\ufe0f":
            return re.match(_PICTURE, last) is not None or first == _KEYCAP
        case "\ufe0f\u200d":
            return re.match(_PICTURE, last) is not None and re.match(_PICTURE, first) is not None
        case "\u200c" | "\u200d":
            pictures = run == "\u200d" and re.match(_PICTURE, last) and re.match(_PICTURE, first)
            return bool(pictures) or re.match(_JOINING, last) is not None
        case "\u200e" | "\u200f" | "\u061c":  # beside neutral characters, near text with a direction
            return re.search(_RIGHT_TO_LEFT, before) is not None or re.search(_RIGHT_TO_LEFT, after) is not None
        case "\u180b" | "\u180c" | "\u180d" | "\u180e" | "\u180f":
            return re.match(_MONGOLIAN, last) is not None
        case _:
            return last == _BLACK_FLAG and re.fullmatch(_FLAG_TAGS, run) is not None
