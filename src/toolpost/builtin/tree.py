"""A walk over a folder and those below it by their handles, so that no link leads out of it; standard library only."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Skip = Callable[[str, str], bool]

# Folders that hold what others made: versions, packages, builds and caches.
GENERATED = frozenset(
    {
        *(".git", ".hg", ".svn", "node_modules", "bower_components", "dist", "build", "target"),
        *("__pycache__", ".venv", "venv", ".tox", ".nox", ".mypy_cache", ".pytest_cache", ".ruff_cache"),
        *(".next", ".nuxt", ".cache", ".gradle", ".terraform", "coverage"),
    }
)
_OPEN = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)


class Listed(NamedTuple):
    """One folder while it is open: its path below the start (empty, or ending with `/`), its handle and entries."""

    folder: str
    fd: int
    entries: list[os.DirEntry[str]]


def walk(start: int, *, deep: bool = True, skip: Skip | None = None) -> Iterator[Listed]:
    """Each folder in turn, those of one folder in the order of their names; one that cannot be read is passed over.

    `skip` is told a folder's path and name, and whether to leave it out.
    """
    waiting = [""]
    while waiting:
        folder = waiting.pop()
        try:
            fd = _reach(start, folder)
        except OSError:
            continue
        try:
            with os.scandir(fd) as found:
                entries = [*found]
            yield Listed(folder, fd, entries)
        finally:
            os.close(fd)
        if deep:
            below = sorted([entry.name for entry in entries if entry.is_dir(follow_symlinks=False)], reverse=True)
            waiting += [f"{folder}{name}/" for name in below if skip is None or not skip(folder, name)]


def _reach(start: int, folder: str) -> int:
    """The handle of a folder below the start, opened part by part without following a link."""
    fd = os.open(".", _OPEN, dir_fd=start)
    for part in folder.split("/")[:-1]:
        try:
            below = os.open(part, _OPEN, dir_fd=fd)
        finally:
            os.close(fd)
        fd = below
    return fd


def is_generated(_folder: str, name: str) -> bool:
    """Whether a folder holds nothing that a person wrote."""
    return name in GENERATED


def is_kernels(folder: str, name: str) -> bool:
    """Whether a folder below the root of the system belongs to the kernel; for walks that begin there."""
    return not folder and name in ("proc", "sys", "dev")
