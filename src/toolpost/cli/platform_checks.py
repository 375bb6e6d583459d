"""Checks of `toolpost doctor` for features that this platform or this installation lacks.

The check `processes` reports which mechanisms end child processes.
"""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

BASH = Path("/bin/bash")
_PROGRAMS = ("node", "npx", "uvx", "docker", "git")  # that start the sources of presets


class PlatformFeature(NamedTuple):
    """A feature of the operating system, whether it is there, and the consequence if it is not."""

    name: str
    is_there: Callable[[], bool]
    without: str


FEATURES = (
    PlatformFeature(
        "file locks (flock)",
        lambda: _has_module("fcntl"),
        "writers of the file tools are not serialized, and two processes can both create the encryption key; start "
        "the first process alone",
    ),
    PlatformFeature(
        "Unix sockets",
        lambda: sys.platform != "win32",
        "`toolpost up --workers` is not available; run one worker",
    ),
    PlatformFeature(
        "signals (SIGHUP, and SIGTERM in the event loop)",
        lambda: hasattr(signal, "SIGHUP") and sys.platform != "win32",
        "a changed configuration is applied within seconds instead of immediately, and a gateway that is ended from "
        "outside leaves its calls to the recovery of the next start: stop it with Ctrl-C",
    ),
    PlatformFeature(
        "resource limits",
        lambda: _has_module("resource"),
        "the limit of open files is unknown, so the gateway assumes a small one",
    ),
    PlatformFeature(
        "file modes",
        lambda: os.name == "posix",
        "Toolpost cannot check who may read the data folder and secret files; restrict the folder to your user",
    ),
    PlatformFeature(
        "handles of folders (openat)",
        lambda: os.open in os.supports_dir_fd,
        "a folder that is replaced by a link during a call of a file tool can lead outside of the allowed folders",
    ),
    PlatformFeature(
        "bash",
        lambda: os.access(BASH, os.X_OK),
        "UTCP manuals with command-line tools cannot be called",
    ),
)


def missing_features() -> Iterator[PlatformFeature]:
    """Yield the features that this platform lacks."""
    yield from (feature for feature in FEATURES if not feature.is_there())


def describe_extras(extras: dict[str, bool]) -> str:
    """Describe which extras are installed, and how to install the others."""
    shown = {name: is_there for name, is_there in sorted(extras.items()) if name not in ("all", "dev")}
    if not shown:
        return "unknown: toolpost is not installed as a package"
    missing = [name for name, is_there in shown.items() if not is_there]
    installed = ", ".join(name for name, is_there in shown.items() if is_there) or "none"
    if not missing:
        return f"installed: {installed}"
    return f"installed: {installed}; not installed: {', '.join(missing)} (`pip install 'toolpost[{missing[0]}]'`)"


def describe_programs() -> str:
    """Describe which programs that start sources are on the PATH."""
    found = {name: shutil.which(name) is not None for name in _PROGRAMS}
    missing = [name for name, is_there in found.items() if not is_there]
    there = ", ".join(name for name, is_there in found.items() if is_there) or "none"
    unused = f"; not found: {', '.join(missing)} (only the sources that use one need it)" if missing else ""
    return f"found: {there}{unused}"


def _has_module(name: str) -> bool:
    modules: dict[str, object] = {**sys.modules}
    return modules[name] is not None if name in modules else find_spec(name) is not None
