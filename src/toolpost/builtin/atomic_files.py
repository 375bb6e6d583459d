"""Files written whole or not at all: beside the old one, onto the disk, then in its place."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolPermissionError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from toolpost.builtin.file_access import FileAccess, Place

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PRIVATE, _USUAL = 0o600, 0o666
_TEMPORARY = re.compile(r"\.toolpost-[0-9a-f]{16}\.tmp")


def replace_file(
    place: Place,
    blocks: Iterable[bytes],
    *,
    old: os.stat_result | None,
    put: Callable[[Place, str], None] | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Write the blocks to a place and return how many bytes they were; mode and owner of `old` are kept.

    `check` is asked last before the new file takes the place, and `put` may put it there in another way.
    """
    name = _temporary_name(place)
    written = 0
    fd = os.open(name, _NEW | _BINARY, _USUAL if old is None else _PRIVATE, dir_fd=place.folder)
    try:
        with os.fdopen(fd, "wb") as file:
            for block in blocks:
                written += file.write(block)
            file.flush()
            _keep_mode(file.fileno(), old)
            os.fsync(file.fileno())
        if check is not None:
            check()
        (put or _put)(place, name)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(name, dir_fd=place.folder)
        raise
    sync_folder(place)
    return written


def check_writable(access: FileAccess, place: Place) -> os.stat_result | None:
    """What lies at a place now, which must be a plain file that may be written; None when nothing does."""
    if place.is_root:
        raise access.refusal(f"{place.given!r} is a folder; name a file in it", "is_a_folder")
    status = place.status_or_none()
    if status is None:
        return None
    access.check_regular(place, status)
    # A new file in its place would get round the mode of the old one.
    if not os.access(place.name, os.W_OK, dir_fd=place.folder, follow_symlinks=True):
        message = f"{place.given!r} may not be written by this process; check its mode and its owner"
        raise ToolPermissionError(message, tool_name=access.tool_name, code="file_permission")
    return status


def remove_leftovers(place: Place) -> None:
    """Remove what writers that were killed left in the folder of a place; only for who holds all others off."""
    if place.folder is None:
        return
    with contextlib.suppress(OSError):
        fd = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=place.folder)
        try:
            with os.scandir(fd) as found:
                names = [entry.name for entry in found if _TEMPORARY.fullmatch(entry.name)]
            for name in names:
                os.unlink(name, dir_fd=fd)
        finally:
            os.close(fd)


def sync_folder(place: Place) -> None:
    """Have the disk remember what the folder of a place holds; not every file system can."""
    if place.folder is None:
        return
    with contextlib.suppress(OSError):
        fd = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=place.folder)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


def _put(place: Place, name: str) -> None:
    os.replace(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _temporary_name(place: Place) -> str:
    above = "" if place.folder is not None else f"{Path(place.name).parent}{os.sep}"
    return f"{above}.toolpost-{secrets.token_hex(8)}.tmp"


def _keep_mode(fd: int, old: os.stat_result | None) -> None:
    if old is None or not hasattr(os, "fchmod"):
        return
    now = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
        with contextlib.suppress(OSError):  # only the superuser may give files away
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))
