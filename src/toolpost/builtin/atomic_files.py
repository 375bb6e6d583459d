"""Replaces files as a whole, under a lock, and only if they are still what a person was shown."""

from __future__ import annotations

import errno
import hashlib
import os
import re
import secrets
import stat
import sys
import time
from contextlib import contextmanager, suppress
from io import FileIO
from pathlib import Path

from toolpost.builtin.file_access import READ_FLAGS, FileAccess, OpenFile, Place, display_path, tool_error_from_os
from toolpost.builtin.file_walk import walk
from toolpost.contracts.errors import ToolConflictError, ToolPermissionError, ToolServerError

if sys.platform != "win32":
    import fcntl

from collections.abc import Callable, Generator, Iterable, Iterator

from toolpost.contracts.questions import CallPreview

_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_CLOEXEC", 0)
_BINARY = getattr(os, "O_BINARY", 0)
_PRIVATE, _USUAL = 0o600, 0o666
ABSENT = "absent"
LARGEST_READ = 1 << 20
_MOST_LISTED = 20
_MOST_ENTRIES = 10_000
# Systems that have no hard links, or do not let us make one.
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

    Mode and owner of `old` are kept. `check` runs last before the rename, which `put` may replace.
    """
    above = "" if place.folder is not None else f"{Path(place.name).parent}{os.sep}"
    name = f"{above}.toolpost-{secrets.token_hex(8)}.tmp"
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
        with suppress(OSError):
            os.unlink(name, dir_fd=place.folder)
        raise
    sync_folder(place)
    return written


def check_writable(access: FileAccess, place: Place) -> os.stat_result | None:
    """Return the status of a file that may be written; None when there is none."""
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
    """Remove temporary files of killed writers from the folder of a place; the caller must hold the folder's lock."""
    with suppress(OSError), _folder_handle(place) as fd, os.scandir(fd) as found:
        for name in [entry.name for entry in found if _TEMPORARY.fullmatch(entry.name)]:
            os.unlink(name, dir_fd=fd)


def sync_folder(place: Place) -> None:
    """Sync the folder of a place to the disk, where the file system can."""
    with suppress(OSError), _folder_handle(place) as fd:
        os.fsync(fd)


@contextmanager
def _folder_handle(place: Place) -> Generator[int]:
    """Open the folder of a place for reading: the handle of a place can only be walked through."""
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
        with suppress(OSError):  # only the superuser may give files away
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
            message = f"{display_path(path)!r} was held by somebody else for {_WAIT_S:g} s; try again later"
            raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
        time.sleep(_PAUSE_S)


@contextmanager
def folder_lock(access: FileAccess, folder: str, check_cancelled: Callable[[], None]) -> Generator[None]:
    """Lock a folder, so that one writer at a time changes its files; the lock ends with its process."""
    if sys.platform == "win32":  # No test covers it: Windows cannot open folders, so writers are not kept apart.
        yield
        return
    deadline = time.monotonic() + _WAIT_S
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _try_lock(fd):
            check_cancelled()
            if time.monotonic() > deadline:
                message = f"{display_path(folder)!r} was held by somebody else for {_WAIT_S:g} s; try again later"
                raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
            time.sleep(_PAUSE_S)
        yield
    finally:
        os.close(fd)


def _try_lock(fd: int) -> bool:
    if sys.platform == "win32":
        return True
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    except OSError:  # a file system without locks
        return True
    return True


def _is_current(opened: OpenFile) -> bool:
    """Whether the locked file still has the name: the previous holder of the lock may have replaced it."""
    now = opened.place.status_or_none()
    return now is not None and (now.st_dev, now.st_ino) == (opened.status.st_dev, opened.status.st_ino)


def check_unchanged(access: FileAccess, place: Place, preview: CallPreview | None) -> None:
    """Refuse to go on where the file is not the one of the preview."""
    if preview is not None and preview.state != fingerprint(place):
        raise stale_preview_error(access, place.given)


def stale_preview_error(access: FileAccess, path: str) -> ToolConflictError:
    """Build the error for a file that changed after its preview; nothing was done."""
    message = f"{display_path(path)!r} was changed after it was looked at, and nothing was done; call the tool again"
    return ToolConflictError(message, tool_name=access.tool_name, code="file_changed")


def fingerprint(place: Place) -> str:
    """Return a digest of the file or folder at a place, which changes with it."""
    status = place.status_or_none()
    if status is None:
        return ABSENT
    digest = hashlib.sha256(f"{stat.S_IFMT(status.st_mode)} {status.st_size}".encode())
    if stat.S_ISDIR(status.st_mode):
        for line in _entries(place):
            digest.update(os.fsencode(line))
    elif stat.S_ISREG(status.st_mode) and status.st_size <= LARGEST_READ:
        digest.update(read_start(place))
    else:
        digest.update(f"{status.st_dev} {status.st_ino} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def describe_entry(place: Place, status: os.stat_result) -> str:
    """Describe a file, link or folder in a few words; of a folder also its first entries."""
    name = repr(display_path(place.given))
    if stat.S_ISLNK(status.st_mode):
        return f"the link {name}, and not what it leads to"
    if not stat.S_ISDIR(status.st_mode):
        return f"the file {name} ({status.st_size} bytes)"
    entries = [line.partition("\0")[0] for line in _entries(place)]
    count = f"{len(entries)} entries" if len(entries) < _MOST_ENTRIES else f"{_MOST_ENTRIES} entries or more"
    more = "" if len(entries) <= _MOST_LISTED else "\n  ..."
    listed = "".join(
        f"\n  {os.fsencode(entry).decode('utf-8', 'backslashreplace')}" for entry in entries[:_MOST_LISTED]
    )
    return f"the folder {name} with {count}{':' if listed else ''}{listed}{more}"


def read_start(place: Place) -> bytes:
    """Read the first `LARGEST_READ` bytes of a file, and one more if there is more."""
    fd = os.open(place.name, READ_FLAGS, dir_fd=place.folder)
    with FileIO(fd) as file:
        return file.read(LARGEST_READ + 1) or b""


def _entries(place: Place) -> Iterator[str]:
    """Yield the paths in a folder, each with its size and time of change."""
    count = 0
    fd = os.open(place.name, os.O_RDONLY | getattr(os, "O_DIRECTORY", 0), dir_fd=place.folder)
    try:
        for listed in walk(fd):
            for entry in sorted(listed.entries, key=lambda entry: entry.name):
                count += 1
                if count > _MOST_ENTRIES:
                    return
                status = entry.stat(follow_symlinks=False)
                yield f"{listed.folder}{entry.name}\0{status.st_ino} {status.st_size} {status.st_mtime_ns}\n"
    finally:
        os.close(fd)


def put_new(access: FileAccess, place: Place, name: str) -> None:
    """Rename a finished file to its place, unless a file is there by now."""
    made = Place(place.folder, name, place.given, place.real)
    if not link_new(access, made, place):
        os.rename(name, place.name, src_dir_fd=place.folder, dst_dir_fd=place.folder)


def link_new(access: FileAccess, old: Place, new: Place) -> bool:
    """Move a file by a hard link, which unlike a rename fails when the name is taken; False without hard links."""
    try:
        os.link(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder, follow_symlinks=False)
    except OSError as refused:
        if refused.errno in _NO_LINKS:
            return False
        raise
    remove_old_name(access, old, new)
    return True


def remove_old_name(access: FileAccess, old: Place, new: Place) -> None:
    """Remove the old name; on failure remove the new one instead, so that nothing was moved."""
    try:
        os.unlink(old.name, dir_fd=old.folder)
    except OSError as refused:
        os.unlink(new.name, dir_fd=new.folder)
        raise tool_error_from_os(refused, old.given, tool_name=access.tool_name) from refused
