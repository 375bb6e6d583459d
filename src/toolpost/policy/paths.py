"""Which files a tool may touch: below the allowed folders and not protected, symlinks followed before judging."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolpost.policy.protection import Protection

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.context import ProtectedPath


def is_path_allowed(
    path: str | os.PathLike[str],
    allowed_paths: Sequence[str] | None,
    protected_paths: Sequence[ProtectedPath] = (),
) -> bool:
    """Whether `path` lies in or below an allowed folder, and in no protected one.

    None for the allowed folders allows everything, an empty list nothing.
    """
    if allowed_paths is None and not protected_paths:
        return True
    try:
        real = os.path.realpath(path)
    except ValueError:  # a null byte; no file has such a name
        return False
    if is_protected(real, protected_paths, writes=True):
        return False
    return allowed_paths is None or any(_within(real, os.path.realpath(folder)) for folder in allowed_paths)


def _within(real: str, folder: str) -> bool:
    try:
        return os.path.commonpath([real, folder]) == folder
    except ValueError:  # different drives, or a mix of absolute and relative
        return False


def is_protected(real: str, protected_paths: Sequence[ProtectedPath], *, writes: bool) -> bool:
    """Whether a path without links may not be read, or written, by its name or by what lies there."""
    protection = Protection(protected_paths)
    if protection.of_path(real, writes=writes) is not None:
        return True
    try:
        return protection.of_status(os.lstat(real), writes=writes) is not None
    except (OSError, ValueError):
        return False
