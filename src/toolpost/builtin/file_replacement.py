"""Atomic file replacement: written beside the old file, then renamed over it, under a lock."""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
import sys
import time
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.builtin.file_access import (
    FileAccess,
    OpenFile,
    Place,
    display_path,
    tool_error_from_os,
)
from toolpost.contracts.errors import ToolPermissionError, ToolServerError

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable


_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PRIVATE, _USUAL = 0o600, 0o666
# Systems without hard links, or without permission to create one.
_NO_LINKS = frozenset({errno.EPERM, errno.ENOTSUP, errno.EMLINK, errno.ENOSYS})
_TEMPORARY = re.compile(r"\.toolpost-[0-9a-f]{16}\.tmp")
_WAIT_S = 10.0
_PAUSE_S = 0.01


def replace_file(
    place: Place,
    blocks: Iterable[bytes],
    *,
    old: os.stat_result | None,
    put: Callable[[Place, str], None] | None = None,
    check: Callable[[], None] | None = None,
) -> int:
    """Write blocks to a temporary file and rename it to the place; return the number of bytes.

    The mode and owner of `old` are kept. `check` runs directly before the rename, which `put` may replace.
    """
    above = "" if place.folder is not None else f"{Path(place.name).parent}{os.sep}"
    name = f"{above}.toolpost-{secrets.token_hex(8)}.tmp"
    size = 0
    fd = os.open(name, _NEW | _BINARY, _USUAL if old is None else _PRIVATE, dir_fd=place.folder)
    try:
        with os.fdopen(fd, "wb") as file:
            for block in blocks:
                size += file.write(block)
            file.flush()
            _keep_mode(file.fileno(), old)
            os.fsync(file.fileno())
        if check is not None:
            check()
        (put or _put)(place, name)
    except BaseException:
        with suppress(OSError):
            os.unlink(name, dir_fd=place.folder)
        raise
    sync_folder(place)
    return size


def check_writable(access: FileAccess, place: Place) -> os.stat_result | None:
    """Return the status of a file that may be written, or None if it does not exist."""
    if place.is_root:
        raise access.refusal(f"{place.path!r} is a folder; name a file in it", "is_a_folder")
    status = place.status_or_none()
    if status is None:
        return None
    access.check_regular(place, status)
    # A replacement would bypass the mode of the old file.
    if not os.access(place.name, os.W_OK, dir_fd=place.folder, follow_symlinks=True):
        message = f"{place.path!r} may not be written by this process; check its mode and its owner"
        raise ToolPermissionError(message, tool_name=access.tool_name, code="file_permission")
    return status


def remove_leftovers(place: Place) -> None:
    """Delete temporary files of killed writers beside a place; the caller must hold the folder's lock."""
    with suppress(OSError), _folder_handle(place) as fd, os.scandir(fd) as entries:
        for name in [entry.name for entry in entries if _TEMPORARY.fullmatch(entry.name)]:
            os.unlink(name, dir_fd=fd)


def sync_folder(place: Place) -> None:
    """Sync the folder of a place to disk, if the file system supports it."""
    with suppress(OSError), _folder_handle(place) as fd:
        os.fsync(fd)


@contextmanager
def _folder_handle(place: Place) -> Generator[int]:
    """Open the folder of a place for reading; the handle of a place is only for traversal."""
    if place.folder is None:
        raise OSError("no handles of folders")
    fd = os.open(".", os.O_RDONLY | getattr(os, "O_CLOEXEC", 0), dir_fd=place.folder)
    try:
        yield fd
    finally:
        os.close(fd)


def _put(place: Place, name: str) -> None:
    os.replace(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def _keep_mode(fd: int, old: os.stat_result | None) -> None:
    if old is None or not hasattr(os, "fchmod"):
        return
    now = os.fstat(fd)
    if (old.st_uid, old.st_gid) != (now.st_uid, now.st_gid):
        with suppress(OSError):  # only the superuser may change owners
            os.fchown(fd, old.st_uid, old.st_gid)
    os.fchmod(fd, stat.S_IMODE(old.st_mode))


@contextmanager
def locked_file(access: FileAccess, path: str, check_cancelled: Callable[[], None]) -> Generator[OpenFile]:
    """Open a file for reading and lock it against other edits, in this process and others."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        check_cancelled()
        with access.open_file(path) as opened:
            if _try_lock(opened.fd) and _is_current(opened):
                yield opened
                return
        if time.monotonic() > deadline:
            message = f"{display_path(path)!r} was locked by another writer for {_WAIT_S:g} s; nothing was written"
            raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
        time.sleep(_PAUSE_S)


@contextmanager
def folder_lock(access: FileAccess, folder: str, check_cancelled: Callable[[], None]) -> Generator[None]:
    """Lock a folder for one writer at a time; the lock ends with its process."""
    if sys.platform == "win32":  # Untested: Windows cannot open folders, so writers are not serialized.
        yield
        return
    deadline = time.monotonic() + _WAIT_S
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _try_lock(fd):
            check_cancelled()
            if time.monotonic() > deadline:
                message = (
                    f"{display_path(folder)!r} was locked by another writer for {_WAIT_S:g} s; nothing was written"
                )
                raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_current(opened: OpenFile) -> bool:
    """Return whether the locked file still has its name: the previous lock holder may have replaced it."""
    now = opened.place.status_or_none()
    return now is not None and (now.st_dev, now.st_ino) == (opened.status.st_dev, opened.status.st_ino)


def put_new(access: FileAccess, place: Place, name: str) -> None:
    """Rename a complete file to its place, unless a file exists there."""
    temporary = Place(place.folder, name, place.path, place.real)
    if not link_new(access, temporary, place):
        os.rename(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def link_new(access: FileAccess, old: Place, new: Place) -> bool:
    """Move a file with a hard link, which fails if the name is taken; return False without hard links."""
    try:
        os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)
    except OSError as refused:
        if refused.errno in _NO_LINKS:
            return False
        raise
    remove_old_name(access, old, new)
    return True


def remove_old_name(access: FileAccess, old: Place, new: Place) -> None:
    """Remove the old name; on failure remove the new one instead, to undo the move."""
    try:
        os.unlink(old.name, dir_fd=old.folder)
    except OSError as refused:
        os.unlink(new.name, dir_fd=new.folder)
        raise tool_error_from_os(refused, old.path, tool_name=access.tool_name) from refused
