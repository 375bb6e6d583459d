"""Launch of a program: its arguments and environment, its file, and errors of starting it."""

from __future__ import annotations

import errno
import os
import shutil
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path

from msgspec import Struct

from toolpost.contracts.errors import ErrorCategory, ToolConnectionError
from toolpost.contracts.records import represent
from toolpost.processes.network_variables import network_variables

_WINDOWS = (
    "APPDATA", "COMSPEC", "HOMEDRIVE", "HOMEPATH", "LOCALAPPDATA", "PATH", "PATHEXT", "SYSTEMDRIVE", "SYSTEMROOT",
    "TEMP", "USERNAME", "USERPROFILE",
)  # fmt: skip
INHERITED = _WINDOWS if sys.platform == "win32" else ("HOME", "LOGNAME", "PATH", "SHELL", "TERM", "USER")
"""Variables that every child inherits from this process, besides those for the network; others may be secret."""
LOCALE_VARIABLES = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")

_LOADER = ("DYLD_LIBRARY_PATH", "LD_LIBRARY_PATH")
_REASONS = {
    errno.E2BIG: "its arguments or its environment are too long; shorten them, or pass long data by stdin",
    errno.EACCES: "permission denied; check that it and the folders above it may be read and executed",
    errno.EAGAIN: "the limit on processes is reached; check it",
    errno.ENOENT: "the interpreter in its first line is missing; install it, or correct the line",
    errno.ENOEXEC: "it is not a program for this machine; a script needs a first line such as `#!/bin/sh`",
    errno.ETXTBSY: "another program is still writing the file; wait until it has finished",
}
_PYTHON = frozenset({"python", "python3"})
_TEMPORARY = frozenset({errno.EAGAIN, errno.ENOMEM, errno.ETXTBSY})


class Launch(Struct, frozen=True, kw_only=True):
    """A program with its arguments, its complete environment and its working directory (None: that of this process)."""

    argv: tuple[str, ...]
    env: Mapping[str, str]
    cwd: str | None = None

    def __repr__(self) -> str:
        return represent(self, without=("env",))


def child_environment(extra: Mapping[str, str]) -> dict[str, str]:
    """Return the complete environment of a child: inherited variables and those for the network, then the given ones.

    A proxy that is given in one case is not inherited in the other case.
    """
    given = {name.upper() for name in extra}
    network = network_variables().passed_on
    inherited = {name: value for name, value in network.items() if name.upper() not in given}
    return {**inherited_variables(INHERITED), **inherited, **extra}


def supervisor_environment() -> dict[str, str]:
    """Return the variables that this interpreter needs to start again; programs do not inherit them."""
    return inherited_variables(_LOADER)


def inherited_variables(names: Iterable[str]) -> dict[str, str]:
    """Return the named variables that this process has."""
    return {name: os.environ[name] for name in names if name in os.environ}


def locate(launch: Launch) -> str:
    """Find the program's file on the child's PATH; raise an error with the remedy if it cannot be started."""
    if not launch.argv or not launch.argv[0]:
        raise launch_error("No command is given; write the program and its arguments.")
    if launch.cwd is not None and not (_accessible(Path(launch.cwd), os.X_OK) and Path(launch.cwd).is_dir()):
        raise bad_folder_error(launch)
    command, candidates = launch.argv[0], _candidates(launch)
    for path in candidates:
        if _accessible(path, os.X_OK) and path.is_file():
            return str(path)
    for path in candidates:
        if _accessible(path, os.F_OK):
            raise launch_error(
                f"Command {command!r} cannot be started: {str(path)!r} is not an executable file; check its mode."
            )
    if command in _PYTHON:  # without an activated environment, PATH may have no `python`
        return sys.executable
    where = "its path" if os.sep in command else "that PATH contains its folder"
    raise launch_error(f"Command {command!r} was not found; install it, or check {where}.")


def working_directory(launch: Launch) -> str:
    """Return the absolute path of the working directory; a supervisor runs in another directory than this process."""
    try:
        return str(Path(launch.cwd or ".").absolute())
    except FileNotFoundError:
        raise launch_error("The working directory of this process was deleted; set `cwd`.") from None


def launch_error(message: str) -> ToolConnectionError:
    """Return an error for a program that was not started; trying again will not help."""
    return ToolConnectionError(message, sent=False, category=ErrorCategory.NON_RETRYABLE_CLIENT)


def bad_folder_error(launch: Launch) -> ToolConnectionError:
    """Return the error for a working directory that cannot be entered."""
    return launch_error(
        f"Command {launch.argv[0]!r} cannot run in {launch.cwd!r}: no such folder, or no permission; correct `cwd`."
    )


def exec_error(launch: Launch, number: int) -> ToolConnectionError:
    """Return the error for a program that was found but that the system does not run."""
    why = _REASONS.get(number, f"{os.strerror(number)}; check that it runs from a shell")
    message = f"Command {launch.argv[0]!r} could not be started: {why}."
    return ToolConnectionError(message, sent=False) if number in _TEMPORARY else launch_error(message)


def invalid_launch_error(launch: Launch) -> ToolConnectionError:
    """Return the error for arguments or variables that cannot be passed to a process."""
    return launch_error(
        f"Command {launch.argv[0]!r} cannot be started: its arguments, its environment or its folder contain values "
        "that cannot be passed to a process; look for NUL, for half a surrogate pair, and for variables with an empty "
        "name or with `=` in it."
    )


def _candidates(launch: Launch) -> list[Path]:
    """List the possible files of the program in the order of PATH; relative paths start at its working directory."""
    command, base = launch.argv[0], Path(launch.cwd or ".").absolute()
    if sys.platform == "win32":  # PATHEXT makes npx into npx.cmd
        program = shutil.which(command, path=launch.env.get("PATH"))
        return [Path(program)] if program else []
    if os.sep in command:
        return [base / command]
    return [base / folder / command for folder in launch.env.get("PATH", os.defpath).split(os.pathsep)]


def _accessible(path: Path, mode: int) -> bool:
    """Check access to a path; a path without permission is skipped, as by shells."""
    try:
        return os.access(path, mode)
    except ValueError:  # an invalid file name
        return False
