"""The environment of a child process: the few variables that programs need to find their way, and what it is given."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

_WINDOWS = (
    "APPDATA",
    "COMSPEC",
    "HOMEDRIVE",
    "HOMEPATH",
    "LOCALAPPDATA",
    "PATH",
    "PATHEXT",
    "SYSTEMDRIVE",
    "SYSTEMROOT",
    "TEMP",
    "USERNAME",
    "USERPROFILE",
)
INHERITED = _WINDOWS if sys.platform == "win32" else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""What a child takes over from this process; everything else may be a secret of somebody else's."""

_LOADER = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """The whole environment of a child: what all children inherit, then what this one is given."""
    return {**_own(INHERITED), **extra}


def keeper_environment() -> dict[str, str]:
    """What this interpreter itself needs to start once more; the server never sees it."""
    return _own(_LOADER)


def _own(names: tuple[str, ...]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}
