"""What to start, and where its program is; nothing is started here."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError

if TYPE_CHECKING:
    from collections.abc import Mapping

_WHY = {
    errno.E2BIG: "its arguments and environment together are too long, or one of them is; "
    "shorten them, or have it read what is long from its stdin",
    errno.EACCES: "permission denied; check that it and the folders above it may be read and executed",
    errno.EAGAIN: "no more processes may be had; check the limit on them",
    errno.ENOENT: "the interpreter that its first line names is missing; install that, or correct the line",
    errno.ENOEXEC: "it is not a program for this machine; a script needs a first line such as `#!/bin/sh`",
    errno.ETXTBSY: "somebody is still writing it; let that come to its end",
}
_PYTHON = frozenset({"python", "python3"})
_PASSING = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY})


@dataclass(frozen=True, slots=True, kw_only=True)
class Launch:
    """A program with its arguments, its whole environment, and the folder that it runs in (None: our own)."""

    argv: tuple[str, ...]
    env: Mapping[str, str] = field(repr=False)
    cwd: str | None = None


def locate(launch: Launch) -> str:
    """The path of the program, found on the child's own PATH; raises with what to do when it cannot be started."""
    if not launch.argv or not launch.argv[0]:
        raise refusal("No command is given; write the program and its arguments.")
    if launch.cwd is not None and not (_accessible(Path(launch.cwd), os.X_OK) and Path(launch.cwd).is_dir()):
        raise bad_folder(launch)
    command, candidates = launch.argv[0], _candidates(launch)
    for path in candidates:
        if _accessible(path, os.X_OK) and path.is_file():
            return str(path)
    for path in candidates:
        if _accessible(path, os.F_OK):
            raise refusal(f"Command {command!r} cannot be started: {str(path)!r} is no executable file; see its mode.")
    if command in _PYTHON:  # an environment that is not activated has no `python` on its PATH; this program has one
        return sys.executable
    where = "its path" if os.sep in command else "that PATH holds its folder"
    raise refusal(f"Command {command!r} was not found; install it, or check {where}.")


def bad_folder(launch: Launch) -> ToolConnectionError:
    """The folder to run in cannot be entered."""
    return refusal(
        f"Command {launch.argv[0]!r} cannot run in {launch.cwd!r}: no such folder, or no permission; correct `cwd`."
    )


def not_executable(launch: Launch, number: int) -> ToolConnectionError:
    """The program was found, but the system would not run it."""
    why = _WHY.get(number, f"{os.strerror(number)}; check that it runs from a shell")
    message = f"Command {launch.argv[0]!r} could not be started: {why}."
    return ToolConnectionError(message, sent=False) if number in _PASSING else refusal(message)


def unfit(launch: Launch) -> ToolConnectionError:
    """What it is given cannot be handed to any process."""
    return refusal(
        f"Command {launch.argv[0]!r} cannot be started: its arguments, its environment or its folder hold what no "
        "process can be given; look for NUL, for half a surrogate pair, and for variables whose name is empty or "
        "holds `=`."
    )


def refusal(message: str) -> ToolConnectionError:
    """Nothing was started, and trying again will not help."""
    return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)


def _candidates(launch: Launch) -> list[Path]:
    """Where the program may be, in the order of PATH; relative paths start from the folder it runs in."""
    command, base = launch.argv[0], Path(launch.cwd or ".").absolute()
    if sys.platform == "win32":  # PATHEXT makes npx into npx.cmd
        found = shutil.which(command, path=launch.env.get("PATH"))
        return [Path(found)] if found else []
    if os.sep in command:
        return [base / command]
    return [base / folder / command for folder in launch.env.get("PATH", os.defpath).split(os.pathsep)]


def _accessible(path: Path, mode: int) -> bool:
    """Whether it is there for us; a folder of PATH that we may not look into is passed over, as shells do."""
    try:
        return os.access(path, mode)
    except ValueError:  # a name that no file can have
        return False
