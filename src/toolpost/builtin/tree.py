"""A walk over a folder and those below it by their handles, so that no link leads out of it; standard library only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Skip = Callable[[str, str], bool]
    Hides = Callable[[os.DirEntry[str]], bool]

# Folders that hold what others made: versions, packages, builds and caches.
GENERATED = frozenset(
    {
        *(".git", ".hg", ".svn", "node_modules", "bower_components", "dist", "build", "target"),
        *("__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".next", ".nuxt", ".cache", ".gradle", ".terraform", "coverage"),
    }
)
_MOST_HELD = 32
_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Listed(NamedTuple):
    """One folder while it is open: its path below the start (empty, or ending with `/`), its handle and entries."""

    folder: str
    fd: int
    entries: list[os.DirEntry[str]]


def walk(start: int, *, deep: bool = True, skip: Skip | None = None, hides: Hides | None = None) -> Iterator[Listed]:
    """Each folder in turn, those of one folder in the order of their names; one that cannot be read is passed over.

    `skip` is told a folder's path and name and says whether to leave it out, `hides` the same of any entry.
    """
    waiting, handles = [""], _Handles(start)
    try:
        while waiting:
            folder = waiting.pop()
            try:
                fd = handles.reach(folder)
            except OSError:
                continue
            with os.scandir(fd) as found:
                entries = [*found] if hides is None else [entry for entry in found if not hides(entry)]
            yield Listed(folder, fd, entries)
            if deep:
                below = sorted([entry.name for entry in entries if entry.is_dir(follow_symlinks=False)], reverse=True)
                waiting += [f"{folder}{name}/" for name in below if skip is None or not skip(folder, name)]
    finally:
        handles.close()


class _Handles:
    """The last folders on the way to where a walk is, held open: most steps then cost one opening, however deep."""

    def __init__(self, start: int) -> None:
        self._start = start
        self._held: list[tuple[str, int]] = []

    def reach(self, folder: str) -> int:
        """The handle of a folder below the start, opened part by part without following a link."""
        while self._held and not folder.startswith(self._held[-1][0]):
            os.close(self._held.pop()[1])
        path, fd = self._held[-1] if self._held else ("", self._start)
        if not self._held:
            fd = self._hold("", ".", fd)
        for part in folder[len(path) :].split("/")[:-1]:
            path += f"{part}/"
            fd = self._hold(path, part, fd)
        return fd

    def _hold(self, path: str, name: str, above: int) -> int:
        fd = os.open(name, _OPEN, dir_fd=above)
        self._held.append((path, fd))
        if len(self._held) > _MOST_HELD:
            os.close(self._held.pop(0)[1])
        return fd

    def close(self) -> None:
        """Close all of them."""
        while self._held:
            os.close(self._held.pop()[1])


def is_generated(_folder: str, name: str) -> bool:
    """Whether a folder holds nothing that a person wrote."""
    return name in GENERATED


def is_kernels(folder: str, name: str) -> bool:
    """Whether a folder below the root of the system belongs to the kernel; for walks that begin there."""
    return not folder and name in ("proc", "sys", "dev")
