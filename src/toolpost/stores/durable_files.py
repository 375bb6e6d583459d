"""Durable writes: private files, synced to the disk with their folder."""

from __future__ import annotations

import contextlib
import os
import secrets
import stat
import sys
from collections.abc import Generator, Iterable
from pathlib import Path

from toolpost.contracts.errors import StoreError


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, with missing parents, regardless of the umask.

    `Path.mkdir(parents=True)` applies its mode to the last folder only.
    """
    if not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def write_synced(path: Path, parts: Iterable[bytes]) -> None:
    """Write a new file that only its owner can read, and sync it; FileExistsError if it exists."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Sync an existing file."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync a folder to make a new name in it durable; Windows neither supports nor needs this."""
    with contextlib.suppress(PermissionError):
        sync_file(path)


def read_private(path: Path) -> bytes | None:
    """Return the content of a file that only its owner can read, or None if there is none."""
    try:
        with path.open("rb") as file:
            mode, raw = os.fstat(file.fileno()).st_mode, file.read()
    except FileNotFoundError:
        refuse_dangling(path)
        return None
    except OSError as error:
        raise _unusable(path, error) from error
    if os.name == "posix" and stat.S_IMODE(mode) & 0o077:
        raise StoreError(f"{path} can be read by others; run: chmod 600 {path}")
    return raw


def refuse_dangling(path: Path) -> None:
    """Raise StoreError if a private file is a link to a file that does not exist."""
    if path.is_symlink():
        raise StoreError(
            f"{path} is a link to {os.readlink(path)}, which does not exist; restore that file, or remove the link if "  # noqa: PTH115 - as it is written
            "nothing was encrypted with it yet"
        )


def write_private(path: Path, data: bytes, *, first: bool) -> None:
    """Replace a file that only its owner can read; with `first`, only if there is none.

    If two processes write the first version concurrently, one of them wins, and both must read the file.
    """
    aside = path.with_name(f"{path.name}.{secrets.token_hex(8)}")
    try:
        make_private_folder(path.parent)
        write_synced(aside, [data])
        if first:
            with contextlib.suppress(FileExistsError):
                os.link(aside, path)
        else:
            aside.replace(path)
        sync_folder(path.parent)
    except OSError as error:
        raise _unusable(path, error) from error
    finally:
        with contextlib.suppress(OSError):
            aside.unlink()


@contextlib.contextmanager
def folder_lock(folder: Path) -> Generator[None]:
    """Hold an exclusive lock on a folder; Windows has no such locks, so there it does nothing."""
    if sys.platform == "win32":
        yield
        return
    try:
        make_private_folder(folder)
        descriptor = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise _unusable(folder, error) from error
    import fcntl  # noqa: PLC0415 - not on Windows

    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _unusable(path: Path, error: OSError) -> StoreError:
    return StoreError(f"{path} cannot be read or created: {error.strerror}", cause=error)


if sys.platform == "win32":
    import msvcrt

    def try_lock(descriptor: int, *, shared: bool) -> bool:  # noqa: ARG001 - Windows has one kind
        """Try to lock a file."""
        try:
            msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

else:

    def try_lock(descriptor: int, *, shared: bool) -> bool:
        """Try to lock a file; a check uses a shared lock, so two checks do not mistake each other for the owner."""
        import fcntl  # noqa: PLC0415 - not on Windows

        kind = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        try:
            fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
