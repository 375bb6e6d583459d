"""JSON as editors write it: with comments, trailing commas and a byte order mark."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from toolpost.contracts.errors import ConfigError

MAX_BYTES = 32 * 1024 * 1024  # some programs keep their history in the same file

# A string comes first, so that what looks like a comment or a comma in it stays.
_COMMENT = re.compile(r'"(?:\\.|[^"\\\n])*"?|//[^\n]*|/\*.*?(?:\*/|\Z)', re.DOTALL)
_TRAILING = re.compile(r'"(?:\\.|[^"\\\n])*"?|,(?=\s*[}\]])', re.DOTALL)
_NOT_BLANK = re.compile(r"[^\n]")


def unreadable(message: str) -> ConfigError:
    """The error for a file of another program that cannot be read as it is."""
    return ConfigError(message, code="file_unreadable")


def read_lenient_json(path: Path) -> Any:
    """The value in a file; ConfigError names the file, the line and the column of a mistake."""
    text = _text(path)
    try:
        return json.loads(strict_json(text), object_pairs_hook=_unique)
    except json.JSONDecodeError as error:
        place = f"{path}, line {error.lineno}, column {error.colno}"
        raise unreadable(f"{place}: this is not JSON: {error.msg}") from None
    except _TwiceError as twice:
        raise unreadable(f"{path}: key {str(twice)!r} is there twice in one object; keep one") from None
    except RecursionError:
        raise unreadable(f"{path} is nested too deeply to be read") from None


def strict_json(text: str) -> str:
    """The text with comments and trailing commas blanked out; everything else keeps its place."""
    return _TRAILING.sub(_blanked, _COMMENT.sub(_blanked, text))


class _TwiceError(ValueError):
    """A key that an object has twice; JSON would silently keep the last one."""


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for key, value in pairs:
        if key in made:
            raise _TwiceError(key)
        made[key] = value
    return made


def _blanked(found: re.Match[str]) -> str:
    return found[0] if found[0].startswith('"') else _NOT_BLANK.sub(" ", found[0])


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise unreadable(f"{path} does not exist; check the path") from None
    except OSError as error:
        raise unreadable(f"{path} cannot be read: {error.strerror}") from error
    if len(raw) > MAX_BYTES:
        raise unreadable(f"{path} is larger than {MAX_BYTES} bytes; that is no list of servers")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise unreadable(f"{path} is not UTF-8 text (byte {error.start})") from None
