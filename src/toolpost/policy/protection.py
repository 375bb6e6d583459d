"""Paths that no file tool touches, whatever folders are allowed: found again behind links, other cases and other names.

A path is compared as text after links are resolved, and what lies there by device and inode: a hard link, a bind mount
or a file system that ignores case gives the same file another path, but not another inode.
"""

from __future__ import annotations

import os
import stat
import unicodedata
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from toolpost.contracts.context import ProtectedPath

_MOST_LINKS = 40  # as many as Linux follows
Identity = tuple[int, int]


class _Known(NamedTuple):
    """Where a protected path leads now: `ends` are its own and those that it links to, `ways` the folders above."""

    path: ProtectedPath
    ends: tuple[str, ...]
    things: frozenset[Identity]
    ways: frozenset[Identity]


class Protection:
    """Answers for one call which protected path a file belongs to; the file system is read when first asked."""

    __slots__ = ("_inodes", "_known", "_linked", "_paths")

    def __init__(self, paths: Sequence[ProtectedPath] = ()) -> None:
        self._paths = paths
        self._known: dict[bool, list[_Known]] = {}
        self._inodes: frozenset[int] | None = None
        self._linked: dict[Identity, ProtectedPath] | None = None

    def of_path(self, real: str, *, writes: bool) -> ProtectedPath | None:
        """The protected path that a path without links is, or lies in."""
        place = _folded(real)
        for known in self._applying(writes=writes):
            if any(place == end or place.startswith(end + os.sep) for end in known.ends):
                return known.path
        return None

    def of_status(self, status: os.stat_result, *, writes: bool) -> ProtectedPath | None:
        """The protected path that a file or folder is, by whatever name it was reached."""
        identity = (status.st_dev, status.st_ino)
        for known in self._applying(writes=writes):
            if identity in known.things:
                return known.path
        # A file in a protected folder may have a second name elsewhere; few have, so the folders are read late.
        if status.st_nlink > 1 and self._paths and stat.S_ISREG(status.st_mode):
            return self._hard_links().get(identity)
        return None

    def of_name(self, folder: os.stat_result, name: str, *, writes: bool) -> ProtectedPath | None:
        """The protected path that an entry of a folder would be, whether it is there yet or not."""
        own = _folded(name)
        for known in self._applying(writes=writes):
            for end in known.ends:
                above, _, last = end.rpartition(os.sep)
                if last == own and (there := _status(above or os.sep)) is not None and os.path.samestat(there, folder):
                    return known.path
        return None

    def below(self, real: str, status: os.stat_result) -> ProtectedPath | None:
        """The protected path that lies in a folder, or behind a link, and would go with it."""
        place, identity = _folded(real) + os.sep, (status.st_dev, status.st_ino)
        for known in self._applying(writes=True):
            if identity in known.ways or any(end.startswith(place) for end in known.ends):
                return known.path
        return None

    def hides(self, entry: os.DirEntry[str]) -> bool:
        """Whether an entry of a folder is left out where folders are listed; most are told by their inode alone."""
        if self._inodes is None:
            applying = self._applying(writes=False)
            self._inodes = frozenset(inode for known in applying for _, inode in known.things)
        if entry.inode() not in self._inodes:
            return False
        try:
            return self.of_status(entry.stat(follow_symlinks=False), writes=False) is not None
        except OSError:  # gone since
            return True

    def _applying(self, *, writes: bool) -> list[_Known]:
        if writes not in self._known:
            folders = _Folders()
            self._known[writes] = [folders.look_up(path) for path in self._paths if writes or not path.readable]
        return self._known[writes]

    def _hard_links(self) -> dict[Identity, ProtectedPath]:
        """The files in protected folders that have a second name somewhere."""
        if self._linked is None:
            self._linked = {}
            for known in self._applying(writes=False):
                for identity in _linked_files(known.path.path):
                    self._linked[identity] = known.path
        return self._linked


class _Folders:
    """Folders resolved by hand, so that every link on the way is known; each once, since most paths share some."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, frozenset[Identity]]] = {}

    def look_up(self, path: ProtectedPath) -> _Known:
        """Where an absolute path leads."""
        ends, things, ways = list[str](), set[Identity](), frozenset[Identity]()
        place: str | None = path.path
        while place is not None and len(ends) <= _MOST_LINKS:
            above, passed = self._resolved(_above(place))
            place = f"{above}{os.sep}{place.rpartition(os.sep)[2]}"
            status = _status(place)
            ends.append(_folded(place))
            ways |= passed
            things |= _identity(status)
            place = _target(place, above, status)
        return _Known(path, tuple(ends), frozenset(things), ways - things)

    def _resolved(self, folder: str) -> tuple[str, frozenset[Identity]]:
        """The path of a folder without links, and all that is passed on the way to it."""
        known = self._known.get(folder)
        if known is not None:
            return known
        self._known[folder] = folder, frozenset()  # a link in a circle leads here again
        above, name = _above(folder), folder.rpartition(os.sep)[2]
        if above == folder:
            return self._known[folder]
        real, passed = self._resolved(above)
        if name in (os.curdir, os.pardir, ""):
            found = real if name != os.pardir else _above(real), passed
        else:
            place = f"{real}{os.sep}{name}"
            status = _status(place)
            passed |= _identity(status)
            target = _target(place, real, status)
            if target is not None:
                place, more = self._resolved(target)
                passed |= more
            found = place, passed
        self._known[folder] = found
        return found


def _above(path: str) -> str:
    """The folder that holds a path; the root is written as nothing, or as its drive."""
    return path.rpartition(os.sep)[0] if os.sep in path else path


def _target(place: str, above: str, status: os.stat_result | None) -> str | None:
    """What a link leads to, as an absolute path; None for what is no link."""
    if status is None or not stat.S_ISLNK(status.st_mode):
        return None
    try:
        target = os.readlink(place)  # noqa: PTH115 - a path as text, like all here
    except OSError:  # it is another thing by now
        return None
    is_whole = target.startswith(os.sep) or os.path.splitdrive(target)[0]
    return target.rstrip(os.sep) if is_whole else f"{above}{os.sep}{target}"


def _identity(status: os.stat_result | None) -> frozenset[Identity]:
    return frozenset() if status is None else frozenset({(status.st_dev, status.st_ino)})


def _status(path: str) -> os.stat_result | None:
    try:
        return os.lstat(path)
    except (OSError, ValueError):
        return None


def _linked_files(folder: str) -> Iterator[Identity]:
    for above, _, names in os.walk(folder):
        for name in names:
            try:
                status = os.lstat(os.path.join(above, name))  # noqa: PTH118
            except OSError:
                continue
            if stat.S_ISREG(status.st_mode) and status.st_nlink > 1:
                yield status.st_dev, status.st_ino


def _folded(path: str) -> str:
    """A path in the one spelling that file systems which ignore case, accents' forms and the like have for it."""
    if path.isascii():
        return path.lower() if os.name != "nt" else path.lower().rstrip(". ")
    plain = "".join(letter for letter in path if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", plain).casefold())
