"""Whether the gateway can record calls: the last write to the store, and the free space of the data folder."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from pathlib import Path

    from toolpost.toolbox.box import Toolbox

LOW_SPACE = 256 * 1024 * 1024  # bytes
_LEAST_SPACE = 64 * 1024  # bytes; a transaction writes a few pages


class DiskSpace(NamedTuple):
    """The disk of the data folder, in bytes."""

    free: int
    total: int


def disk_space(box: Toolbox) -> DiskSpace | None:
    """Return the space of the disk with the data folder; None without a folder, or if it cannot be determined."""
    folder = box.settings.data_dir
    return None if folder is None else space_of(folder)


def space_of(folder: Path) -> DiskSpace | None:
    """Return the space of the disk with a folder; None if it cannot be determined."""
    try:
        usage = shutil.disk_usage(folder)
    except OSError:  # such as a network file system that was unmounted
        return None
    return DiskSpace(usage.free, usage.total)


def write_problem(box: Toolbox) -> str:
    """Return why calls cannot be recorded, without the path of the data folder; empty if they can."""
    if reason := box.store.events.health.reason:
        return reason
    space = disk_space(box)
    if space is None:
        return "" if box.settings.data_dir is None else "the data folder cannot be read"
    return "the disk is full" if space.free < _LEAST_SPACE else ""
