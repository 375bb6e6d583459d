"""A lock on a file that is about to be replaced, held against other edits in this and other processes."""

from __future__ import annotations

import os
import sys
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

from toolpost.builtin.file_failures import shown
from toolpost.contracts.errors import ToolServerError

if sys.platform != "win32":
    import fcntl

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from toolpost.builtin.file_access import FileAccess, Opened

_WAIT_S = 10.0
_PAUSE_S = 0.01


@contextmanager
def locked(access: FileAccess, path: str, goes_on: Callable[[], None]) -> Generator[Opened]:
    """A file open for reading, locked, and still the one of that name."""
    deadline = time.monotonic() + _WAIT_S
    while True:
        goes_on()
        with access.open_file(path) as opened:
            if _try_lock(opened.fd) and _is_current(opened):
                yield opened
                return
        if time.monotonic() > deadline:
            message = f"{shown(path)!r} was held by somebody else for {_WAIT_S:g} s; try again later"
            raise ToolServerError(message, tool_name=access.tool_name, code="file_locked")
        time.sleep(_PAUSE_S)


@contextmanager
def folder_turn(access: FileAccess, folder: str, goes_on: Callable[[], None]) -> Generator[None]:
    """One writer at a time to all files of a folder, new ones included; the lock ends with whoever holds it."""
    if sys.platform == "win32":  # No test covers it: Windows cannot open folders, so writers are not kept apart.
        yield
        return
    deadline = time.monotonic() + _WAIT_S
    fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        while not _try_lock(fd):
            goes_on()
            if time.monotonic() > deadline:
                message = f"{shown(folder)!r} was held by somebody else for {_WAIT_S:g} s; try again later"
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


def _is_current(opened: Opened) -> bool:
    """Whether the lock is on the file that has the name now: whoever held it before has put another in its place."""
    now = opened.place.status_or_none()
    return now is not None and (now.st_dev, now.st_ino) == (opened.status.st_dev, opened.status.st_ino)
