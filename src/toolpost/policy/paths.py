"""File access rules: which folders a user may reach, and whether a path lies in them and is not protected.

Links are resolved first.

A protected path is compared as text after links are resolved, and by device and inode: a hard link, a bind mount or a
file system that ignores case gives the same file another path, but not another inode.
"""

from __future__ import annotations

import os
import re
import stat
import unicodedata
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from toolpost.contracts.context import ProtectedPath
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.stores.path_segments import path_segment

_PLACEHOLDER = re.compile(r"\{\w+\}")
_MOST_KNOWN = 10_000
_MOST_LINKS = 40  # as many as Linux follows
TENANT, USER = "{tenant}", "{user}"
Identity = tuple[int, int]


class AllowedPaths:
    """The folders that the calls of each user may reach; None means no restriction.

    A path with `{tenant}` or `{user}` as a segment is a template. A list with a template applies to every tenant. Other
    lists apply only to the local tenant: the calls of every other tenant reach its folder below `tenants`.
    """

    __slots__ = ("_is_for_all", "_known", "_other", "_paths")

    def __init__(self, paths: Sequence[str] | None, *, tenants: str = "tenants") -> None:
        self._paths = None if paths is None else tuple(paths)
        self._is_for_all = any(map(is_template, paths or ()))
        self._other = f"{tenants}{os.sep}{TENANT}"
        self._known: dict[Principal, tuple[str, ...]] = {}

    def of(self, person: Principal) -> tuple[str, ...] | None:
        """Return the folders that the calls of a user may reach."""
        if self._paths is None:
            return None
        found = self._known.get(person)
        if found is None:
            is_listed = self._is_for_all or not self._paths or person.tenant == LOCAL_TENANT
            found = tuple(_fill(path, person) for path in (self._paths if is_listed else (self._other,)))
            if len(self._known) >= _MOST_KNOWN:
                self._known.clear()
            self._known[person] = found
        return found


def is_template(path: str | os.PathLike[str]) -> bool:
    """Return whether a path contains a placeholder for the tenant or the user."""
    return TENANT in os.fspath(path) or USER in os.fspath(path)


def template_problem(path: str | os.PathLike[str]) -> str:
    """Return the problem of a path template; empty for one that separates users, and for paths without placeholders."""
    segments = os.fspath(path).replace("\\", "/").split("/")
    for segment in segments:
        name = _PLACEHOLDER.search(segment)
        if name is not None and name[0] not in (TENANT, USER):
            return f"{name[0]} in {os.fspath(path)!r} is unknown; a path takes {TENANT} and {USER}"
        if name is not None and name[0] != segment:
            return f"{name[0]} in {os.fspath(path)!r} must be a whole segment, or two names could make one folder"
    if USER in segments and TENANT not in segments:
        return f"{os.fspath(path)!r} has {USER} without {TENANT}: users of two tenants may have the same name"
    return ""


def _fill(path: str, person: Principal) -> str:
    if not is_template(path):
        return path
    names = {TENANT: path_segment(person.tenant), USER: path_segment(person.user)}
    return str(Path(*(names.get(segment, segment) for segment in Path(path).parts)))


def is_path_allowed(
    path: str | os.PathLike[str],
    allowed_paths: Sequence[str] | None,
    protected_paths: Sequence[ProtectedPath] = (),
) -> bool:
    """Return whether `path` lies in or below an allowed folder, and in no protected one.

    If the allowed folders are None, every path is allowed; with an empty list, none is.
    """
    if allowed_paths is None and not protected_paths:
        return True
    try:
        real = os.path.realpath(path)
    except ValueError:  # a null byte
        return False
    if is_protected(real, protected_paths, writes=True):
        return False
    return allowed_paths is None or any(_within(real, os.path.realpath(folder)) for folder in allowed_paths)


def _within(real: str, folder: str) -> bool:
    try:
        return os.path.commonpath([real, folder]) == folder
    except ValueError:  # different drives, or a mix of absolute and relative
        return False


def is_protected(real: str, protected_paths: Sequence[ProtectedPath], *, writes: bool) -> bool:
    """Return whether a resolved path is protected from reading, or from writing, by its name or its inode."""
    protection = Protection(protected_paths)
    if protection.of_path(real, writes=writes) is not None:
        return True
    try:
        return protection.of_status(os.lstat(real), writes=writes) is not None
    except (OSError, ValueError):
        return False


class _Known(NamedTuple):
    """A resolved protected path: `ends` are the path and its link targets, `ways` the folders above."""

    path: ProtectedPath
    ends: tuple[str, ...]
    things: frozenset[Identity]
    ways: frozenset[Identity]


class Protection:
    """Lookup of protected paths for one call; reads the file system on first use."""

    __slots__ = ("_inodes", "_known", "_linked", "_paths")

    def __init__(self, paths: Sequence[ProtectedPath] = ()) -> None:
        self._paths = paths
        self._known: dict[bool, list[_Known]] = {}
        self._inodes: frozenset[int] | None = None
        self._linked: dict[Identity, ProtectedPath] | None = None

    def of_path(self, real: str, *, writes: bool) -> ProtectedPath | None:
        """Return the protected path that a resolved path equals or lies in."""
        place = _fold(real)
        for entry in self._applying(writes=writes):
            if any(place == end or place.startswith(end + os.sep) for end in entry.ends):
                return entry.path
        return None

    def of_status(self, status: os.stat_result, *, writes: bool) -> ProtectedPath | None:
        """Return the protected path with the inode of a file or folder, regardless of its name."""
        identity = (status.st_dev, status.st_ino)
        for entry in self._applying(writes=writes):
            if identity in entry.things:
                return entry.path
        # A file in a protected folder may have a hard link elsewhere; that is rare, so the folders are read last.
        if status.st_nlink > 1 and self._paths and stat.S_ISREG(status.st_mode):
            return self._hard_links().get(identity)
        return None

    def of_name(self, folder: os.stat_result, name: str, *, writes: bool) -> ProtectedPath | None:
        """Return the protected path that an entry of a folder is or would be."""
        own = _fold(name)
        for entry in self._applying(writes=writes):
            for end in entry.ends:
                above, _, last = end.rpartition(os.sep)
                if last == own and (there := _status(above or os.sep)) is not None and os.path.samestat(there, folder):
                    return entry.path
        return None

    def below(self, real: str, status: os.stat_result) -> ProtectedPath | None:
        """Return a protected path that lies in a folder, or behind a link, and would be moved or deleted with it."""
        place, identity = _fold(real) + os.sep, (status.st_dev, status.st_ino)
        for entry in self._applying(writes=True):
            if identity in entry.ways or any(end.startswith(place) for end in entry.ends):
                return entry.path
        return None

    def hides(self, entry: os.DirEntry[str]) -> bool:
        """Return whether a folder listing omits an entry; for most entries the inode is sufficient."""
        if self._inodes is None:
            applying = self._applying(writes=False)
            self._inodes = frozenset(inode for one in applying for _, inode in one.things)
        if entry.inode() not in self._inodes:
            return False
        try:
            return self.of_status(entry.stat(follow_symlinks=False), writes=False) is not None
        except OSError:  # deleted since
            return True

    def _applying(self, *, writes: bool) -> list[_Known]:
        if writes not in self._known:
            folders = _Folders()
            self._known[writes] = [folders.resolve(path) for path in self._paths if writes or not path.readable]
        return self._known[writes]

    def _hard_links(self) -> dict[Identity, ProtectedPath]:
        """Return the files in protected folders that have more than one hard link."""
        if self._linked is None:
            self._linked = {}
            for entry in self._applying(writes=False):
                for identity in _linked_files(entry.path.path):
                    self._linked[identity] = entry.path
        return self._linked


class _Folders:
    """Resolve folders link by link, to record every link on the way; results are cached."""

    def __init__(self) -> None:
        self._known: dict[str, tuple[str, frozenset[Identity]]] = {}

    def resolve(self, path: ProtectedPath) -> _Known:
        """Resolve an absolute protected path."""
        ends, things, ways = list[str](), set[Identity](), frozenset[Identity]()
        place: str | None = path.path
        while place is not None and len(ends) <= _MOST_LINKS:
            above, passed = self._resolve(_above(place))
            place = f"{above}{os.sep}{place.rpartition(os.sep)[2]}"
            status = _status(place)
            ends.append(_fold(place))
            ways |= passed
            things |= _identity(status)
            place = _target(place, above, status)
        return _Known(path, tuple(ends), frozenset(things), ways - things)

    def _resolve(self, folder: str) -> tuple[str, frozenset[Identity]]:
        """Return the path of a folder without links, and the identities of all folders on the way."""
        resolution = self._known.get(folder)
        if resolution is not None:
            return resolution
        self._known[folder] = folder, frozenset()  # a link in a circle leads here again
        above, name = _above(folder), folder.rpartition(os.sep)[2]
        if above == folder:
            return self._known[folder]
        real, passed = self._resolve(above)
        if name in (os.curdir, os.pardir, ""):
            result = real if name != os.pardir else _above(real), passed
        else:
            place = f"{real}{os.sep}{name}"
            status = _status(place)
            passed |= _identity(status)
            target = _target(place, real, status)
            if target is not None:
                place, more = self._resolve(target)
                passed |= more
            result = place, passed
        self._known[folder] = result
        return result


def _above(path: str) -> str:
    """Return the parent folder of a path; the root is empty, or its drive."""
    return path.rpartition(os.sep)[0] if os.sep in path else path


def _target(place: str, above: str, status: os.stat_result | None) -> str | None:
    """Return the target of a link as an absolute path; None if the path is not a link."""
    if status is None or not stat.S_ISLNK(status.st_mode):
        return None
    try:
        target = os.readlink(place)  # noqa: PTH115 - a path as text, like all here
    except OSError:  # replaced since
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


def _fold(path: str) -> str:
    """Return a path folded as by file systems that ignore case and Unicode forms."""
    if path.isascii():
        return path.lower() if os.name != "nt" else path.lower().rstrip(". ")
    plain = "".join(letter for letter in path if unicodedata.category(letter) != "Cf")
    return unicodedata.normalize("NFC", unicodedata.normalize("NFD", plain).casefold())
