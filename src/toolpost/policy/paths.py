"""Which files a tool may touch: below the allowed folders, symlinks followed before judging."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolPermissionError

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


def check_path(path: str | os.PathLike[str], allowed_paths: Sequence[str] | None, *, tool_name: str) -> None:
    """Raise ToolPermissionError for a path outside the allowed folders."""
    if not is_path_allowed(path, allowed_paths):
        allowed = ", ".join(allowed_paths or []) or "none"
        msg = f"Path {os.fspath(path)!r} not in allowed paths ({allowed}); add its folder to tools.allowedPaths"
        raise ToolPermissionError(msg, tool_name=tool_name, code="path_refused")


def _within(real: str, folder: str) -> bool:
    try:
        return os.path.commonpath([real, folder]) == folder
    except ValueError:  # different drives, or a mix of absolute and relative
        return False
