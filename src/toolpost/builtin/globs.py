"""Patterns of file names: `*`, `?`, `[a-z]`, `{a,b}`, and `**` for any folders between; standard library only."""

from __future__ import annotations

import fnmatch
import re
from typing import Final

LONGEST = 1000
"""Longer patterns are refused by whoever takes one: some take time that grows with the square of their length."""

_MOST_ALTERNATIVES = 256
_BRACES = re.compile(r"\{([^{}]*)\}")
_ANY_FOLDERS: Final = re.compile("")

_END = re.compile(r"(?!)")  # nothing fits after the last

_Segments = list["re.Pattern[str]"]


class GlobError(ValueError):
    """The pattern cannot be read; the message says why."""


class Glob:
    """A compiled pattern of relative paths with `/` between their parts.

    With `anywhere`, a pattern without `/` is one of names, whatever folder they lie in.
    """

    def __init__(self, pattern: str, *, anywhere: bool) -> None:
        alternatives = expanded(pattern.removeprefix("./"))
        self._name: re.Pattern[str] | None = None
        self._paths: list[_Segments] = []
        if anywhere and not any("/" in alternative for alternative in alternatives):
            self._name = re.compile("|".join(map(fnmatch.translate, alternatives)))
        else:
            self._paths = [[*map(_segment, alternative.split("/"))] for alternative in alternatives]

    def matches(self, folder: str, name: str) -> bool:
        """Whether a file fits; `folder` is empty or ends with `/`."""
        if self._name is not None:
            return self._name.match(name) is not None
        parts = f"{folder}{name}".split("/")
        return any(_fits(parts, segments) for segments in self._paths)


def expanded(pattern: str) -> list[str]:
    """The patterns without braces that one with braces stands for."""
    found = [pattern]
    while any(_BRACES.search(text) for text in found):
        found = [other for text in found for other in _one_less(text)]
        if len(found) > _MOST_ALTERNATIVES:
            raise GlobError(f"the pattern stands for more than {_MOST_ALTERNATIVES} alternatives; use fewer braces")
    return found


def _one_less(text: str) -> list[str]:
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    return [text[: braces.start()] + option + text[braces.end() :] for option in braces[1].split(",")]


def _segment(text: str) -> re.Pattern[str]:
    return _ANY_FOLDERS if text == "**" else re.compile(fnmatch.translate(text))


def _fits(parts: list[str], segments: _Segments) -> bool:
    """Match part by part; after a `**` that took too little, it takes one more."""
    at = of = 0
    retry: tuple[int, int] | None = None
    while at < len(parts):
        segment = segments[of] if of < len(segments) else _END
        if segment is _ANY_FOLDERS:
            retry = (at, of)
            of += 1
        elif segment.match(parts[at]):
            at, of = at + 1, of + 1
        elif retry is not None:
            retry = (retry[0] + 1, retry[1])
            at, of = retry[0], retry[1] + 1
        else:
            return False
    return all(segment is _ANY_FOLDERS for segment in segments[of:])
