"""Durable writes: private files, synced to the disk with the folder that has their name."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from pathlib import Path


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
