"""What a call of a file tool would destroy: shown to whoever decides, and looked at again before it happens."""

from __future__ import annotations

import difflib
import hashlib
import os
import stat
from functools import partial
from io import FileIO
from typing import TYPE_CHECKING, Any

from toolpost.builtin.atomic_files import check_writable
from toolpost.builtin.file_access import READ_FLAGS, FileAccess, Place
from toolpost.builtin.file_failures import shown
from toolpost.builtin.text_encodings import encoded, encoding_named, encoding_of
from toolpost.builtin.tree import walk
from toolpost.builtin.workers import in_worker
from toolpost.contracts.errors import ToolClientError, ToolConflictError
from toolpost.contracts.questions import CallPreview

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from toolpost.contracts.context import ToolContext

ABSENT = "absent"
_LARGEST_READ = 1 << 20
_MOST_LINES = 2000
_MOST_LISTED = 20
_MOST_ENTRIES = 10_000
_LONGEST = 64 << 10  # whoever shows it cuts it once more, after secrets are taken out


async def preview_write(params: dict[str, Any], ctx: ToolContext) -> CallPreview:
    """A new file destroys nothing; for one that is there, the lines that go and come."""
    access = FileAccess.of(ctx, "write_file", writes=True)
    encoding = encoding_named(params.get("encoding", "utf-8"), tool_name=access.tool_name)
    data = encoded(params["content"], encoding, tool_name=access.tool_name)
    return await in_worker(partial(_preview_write, access, params["path"], data))


def check_unchanged(access: FileAccess, place: Place, preview: CallPreview | None) -> None:
    """Refuse to go on where something else lies there than the preview was made of."""
    if preview is not None and preview.state != state_of(place):
        raise outdated(access, place.given)


def outdated(access: FileAccess, path: str) -> ToolConflictError:
    """Something else lies there than what was judged, or agreed to; nothing was done."""
    message = f"{shown(path)!r} was changed after it was looked at, and nothing was done; call the tool again"
    return ToolConflictError(message, tool_name=access.tool_name, code="file_changed")


def state_of(place: Place) -> str:
    """What lies at a place, in a text that changes with it."""
    status = place.status_or_none()
    if status is None:
        return ABSENT
    digest = hashlib.sha256(f"{stat.S_IFMT(status.st_mode)} {status.st_size}".encode())
    if stat.S_ISDIR(status.st_mode):
        for line in _entries(place):
            digest.update(os.fsencode(line))
    elif stat.S_ISREG(status.st_mode) and status.st_size <= _LARGEST_READ:
        digest.update(_content(place))
    else:
        digest.update(f"{status.st_dev} {status.st_ino} {status.st_mtime_ns}".encode())
    return digest.hexdigest()


def what_lies_there(place: Place, status: os.stat_result) -> str:
    """A file, link or folder in a few words, a folder with the first of what is in it."""
    name = repr(shown(place.given))
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


def _preview_write(access: FileAccess, path: str, data: bytes, goes_on: Callable[[], None]) -> CallPreview:
    goes_on()
    try:
        with access.place(path) as place:
            status, state = check_writable(access, place), state_of(place)
            old = None if status is None or status.st_size > _LARGEST_READ else _content(place)
    except ToolClientError as refused:
        if refused.error_code != "file_not_found":  # a folder above it is missing, and will be made
            raise
        return CallPreview(destructive=False, state=ABSENT)
    if status is None:
        return CallPreview(destructive=False, state=state)
    reason = f"it overwrites {shown(path)!r} ({status.st_size} bytes)"
    goes_on()
    return CallPreview(old != data, reason, _diff(shown(path), old, data, status.st_size)[:_LONGEST], state)


def _diff(name: str, old: bytes | None, new: bytes, size: int) -> str:
    before, after = _lines(old), _lines(new)
    if before is None or after is None:
        return f"{name}: {size} bytes are replaced by {len(new)} bytes, too many or no text for a comparison"
    lines = difflib.unified_diff(before, after, f"{name} (now)", f"{name} (new)", lineterm="")
    return "\n".join(line.rstrip("\r\n") for line in lines)


def _lines(data: bytes | None) -> list[str] | None:
    encoding = None if data is None else encoding_of(data)
    if data is None or encoding is None:
        return None
    try:
        lines = encoding.decode(data).splitlines(keepends=True)
    except UnicodeDecodeError:
        return None
    return lines if len(lines) <= _MOST_LINES else None


def _content(place: Place) -> bytes:
    fd = os.open(place.name, READ_FLAGS, dir_fd=place.folder)
    with FileIO(fd) as file:
        return file.read(_LARGEST_READ + 1) or b""


def _entries(place: Place) -> Iterator[str]:
    """The paths of what is in a folder, each with what changes when it does."""
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
