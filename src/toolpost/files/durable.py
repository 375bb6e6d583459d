"""Durable writes: private files, synced to the disk with the folder that has their name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


def make_private_folder(path: Path) -> None:
    """Create a folder that only its owner can enter, and those above it that are missing, whatever the umask is.

    `Path.mkdir(parents=True)` gives its mode to the last folder alone.
    """
    if not path.parent.exists():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def write_synced(path: Path, parts: Iterable[bytes]) -> None:
    """Write a new file that only its owner can read, and sync it; FileExistsError where there is one."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        for part in parts:
            file.write(part)
        file.flush()
        os.fsync(file.fileno())


def sync_file(path: Path) -> None:
    """Sync a file that others have written."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_folder(path: Path) -> None:
    """Sync a folder, so that a new name in it is durable; not possible, nor needed, on Windows."""
    with contextlib.suppress(PermissionError):
        sync_file(path)
