"""Previews of file changes: fingerprints detect a change after a file was shown."""

from __future__ import annotations

import hashlib
import os
import stat
from io import FileIO
from typing import TYPE_CHECKING

from toolpost.builtin.file_access import READ_FLAGS, FileAccess, Place, display_path
from toolpost.builtin.file_walk import walk
from toolpost.contracts.errors import ToolConflictError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.contracts.questions import CallPreview

ABSENT = "absent"
LARGEST_READ = 1 << 20
_MOST_LISTED = 20
_MOST_ENTRIES = 10_000


def check_unchanged(access: FileAccess, place: Place, preview: CallPreview | None) -> None:
    """Reject a file that changed since its preview."""
    if preview is not None and preview.state != fingerprint(place):
        raise stale_preview_error(access, place.path)


def stale_preview_error(access: FileAccess, path: str) -> ToolConflictError:
    """Build the error for a file that changed after its preview; nothing was done."""
    message = f"{display_path(path)!r} was changed after its preview, and nothing was done; call the tool again"
    return ToolConflictError(message, tool_name=access.tool_name, code="file_changed")


def fingerprint(place: Place) -> str:
    """Return a digest of a file or folder, which changes with its content."""
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
    """Describe a file, link or folder in a few words, and the first entries of a folder."""
    name = repr(display_path(place.path))
    if stat.S_ISLNK(status.st_mode):
        return f"the link {name}, not its target"
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
    """Yield the paths in a folder, each with its size and modification time."""
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
