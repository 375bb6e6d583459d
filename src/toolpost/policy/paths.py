"""Which files a tool may touch: below the allowed folders, symlinks followed before judging."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def is_path_allowed(path: str | os.PathLike[str], allowed_paths: Sequence[str] | None) -> bool:
    """Whether `path` lies in or below an allowed folder; None allows everything, an empty list nothing."""
    if allowed_paths is None:
        return True
    try:
        real = os.path.realpath(path)
    except ValueError:  # a null byte; no file has such a name
        return False
    return any(_within(real, os.path.realpath(folder)) for folder in allowed_paths)


def _within(real: str, folder: str) -> bool:
    try:
        return os.path.commonpath([real, folder]) == folder
    except ValueError:  # different drives, or a mix of absolute and relative
        return False
