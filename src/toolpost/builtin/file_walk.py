"""Folder walks by handles, and glob patterns."""

from __future__ import annotations

import fnmatch
import os
import re
from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

Skip = Callable[[str, str], bool]
Hides = Callable[[os.DirEntry[str]], bool]

# Folders of generated files: versions, packages, builds and caches.
GENERATED = frozenset(
    {
        *(".git", ".hg", ".svn", "node_modules", "bower_components", "dist", "build", "target"),
        *("__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".next", ".nuxt", ".cache", ".gradle", ".terraform", "coverage"),
    }
)
_MAX_HANDLES = 32
_OPEN_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
LONGEST = 1000
"""Longest pattern that tools accept: the time of some grows with the square of their length."""
_MOST_ALTERNATIVES = 256
_BRACES = re.compile(r"\{([^{}]*)\}")
_ANY_FOLDERS: Final = re.compile("")
_END = re.compile(r"(?!)")  # matches nothing


class OpenFolder(NamedTuple):
    """An open folder: its path below the start (empty, or ending with `/`), its handle and its entries."""

    folder: str
    fd: int
    entries: list[os.DirEntry[str]]


def walk(
    start: int, *, deep: bool = True, skip: Skip | None = None, hides: Hides | None = None
) -> Iterator[OpenFolder]:
    """Yield each folder below a handle, sorted by name; unreadable folders are skipped.

    Links are not followed. `skip` returns whether to skip a folder by its parent path and name, `hides` whether to hide
    any entry.
    """
    waiting, handles = [""], _Handles(start)
    try:
        while waiting:
            folder = waiting.pop()
            try:
                fd = handles.reach(folder)
            except OSError:
                continue
            with os.scandir(fd) as listing:
                entries = [*listing] if hides is None else [entry for entry in listing if not hides(entry)]
            yield OpenFolder(folder, fd, entries)
            if deep:
                below = sorted([entry.name for entry in entries if entry.is_dir(follow_symlinks=False)], reverse=True)
                waiting += [f"{folder}{name}/" for name in below if skip is None or not skip(folder, name)]
    finally:
        handles.close()


class _Handles:
    """Keeps the last folders of a walk open: most steps then cost one `open` at any depth."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._folders: list[tuple[str, int]] = []

    def reach(self, folder: str) -> int:
        """Return the handle of a folder below the start, opened part by part without following links."""
        while self._folders and not folder.startswith(self._folders[-1][0]):
            os.close(self._folders.pop()[1])
        path, fd = self._folders[-1] if self._folders else ("", self._start)
        if not self._folders:
            fd = self._hold("", ".", fd)
        for part in folder[len(path) :].split("/")[:-1]:
            path += f"{part}/"
            fd = self._hold(path, part, fd)
        return fd

    def _hold(self, path: str, name: str, above: int) -> int:
        fd = os.open(name, _OPEN_FOLDER, dir_fd=above)
        self._folders.append((path, fd))
        if len(self._folders) > _MAX_HANDLES:
            os.close(self._folders.pop(0)[1])
        return fd

    def close(self) -> None:
        while self._folders:
            os.close(self._folders.pop()[1])


def is_generated(_folder: str, name: str) -> bool:
    """Return whether a folder contains only generated files."""
    return name in GENERATED


def is_kernel_folder(folder: str, name: str) -> bool:
    """Return whether a folder at the root of the system belongs to the kernel, for walks that begin there."""
    return not folder and name in ("proc", "sys", "dev")


_Segments = list["re.Pattern[str]"]


class GlobError(ValueError):
    """The pattern cannot be parsed; the message contains the reason."""


class Glob:
    """A compiled pattern of relative paths with `/` as separator.

    With `anywhere`, a pattern without `/` matches names in every folder.
    """

    def __init__(self, pattern: str, *, anywhere: bool) -> None:
        alternatives = expand_braces(pattern.removeprefix("./"))
        self._name: re.Pattern[str] | None = None
        self._paths: list[_Segments] = []
        if anywhere and not any("/" in alternative for alternative in alternatives):
            self._name = re.compile("|".join(map(fnmatch.translate, alternatives)))
        else:
            self._paths = [[*map(_segment, alternative.split("/"))] for alternative in alternatives]

    def matches(self, folder: str, name: str) -> bool:
        """Return whether a file matches; `folder` is empty or ends with `/`."""
        if self._name is not None:
            return self._name.match(name) is not None
        parts = f"{folder}{name}".split("/")
        return any(_fits(parts, segments) for segments in self._paths)


def expand_braces(pattern: str) -> list[str]:
    """Expand a pattern with braces to patterns without braces."""
    patterns = [pattern]
    while any(_BRACES.search(text) for text in patterns):
        patterns = [other for text in patterns for other in _one_less(text)]
        if len(patterns) > _MOST_ALTERNATIVES:
            raise GlobError(f"the pattern expands to more than {_MOST_ALTERNATIVES} alternatives; use fewer braces")
    return patterns


def _one_less(text: str) -> list[str]:
    braces = _BRACES.search(text)
    if braces is None:
        return [text]
    return [text[: braces.start()] + option + text[braces.end() :] for option in braces[1].split(",")]


def _segment(text: str) -> re.Pattern[str]:
    return _ANY_FOLDERS if text == "**" else re.compile(fnmatch.translate(text))


def _fits(parts: list[str], segments: _Segments) -> bool:
    """Match part by part; after a mismatch, the last `**` takes one more part."""
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
