"""Brings the browser that tests/browser drives: the system's own, by its package manager where that is allowed."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

NAMES = ("chromium", "chromium-browser", "google-chrome")
_TIMEOUT_S = 900
# A manager's steps to bring it; the first that this machine has is asked.
_MANAGERS: dict[str, list[list[str]]] = {
    "apt-get": [["update"], ["install", "--yes", "--no-install-recommends", "chromium"]],
    "dnf": [["install", "--assumeyes", "chromium"]],
    "apk": [["add", "chromium"]],
    "pacman": [["-S", "--noconfirm", "chromium"]],
}


def main() -> int:
    """Install it if it is not there; that it cannot be had is said, and is no failure."""
    if _is_there():
        return 0
    manager = next((name for name in _MANAGERS if shutil.which(name)), None)
    print("There is no Chromium yet, which tests/browser drives.", flush=True)
    if manager is not None and _is_installed_by(manager):
        return 0
    _say_what_is_missing(manager)
    return 0


def _is_there() -> bool:
    return any(shutil.which(name) for name in NAMES)


def _is_installed_by(manager: str) -> bool:
    before = _privileges()
    if before is None:
        return False
    for step in _MANAGERS[manager]:
        command = [*before, manager, *step]
        print(" ".join(command), flush=True)
        if not _runs(command) and step is _MANAGERS[manager][-1]:
            return False
    return _is_there()


def _privileges() -> list[str] | None:
    """What goes before a command that only root may run; None where nobody lets us."""
    if os.geteuid() == 0:
        return []
    sudo = ["sudo", "-n"]
    return sudo if shutil.which("sudo") and _runs([*sudo, "true"]) else None


def _runs(command: list[str]) -> bool:
    quiet = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    try:
        done = subprocess.run(  # noqa: S603 - a package manager of this machine
            command, check=False, env=quiet, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, timeout=_TIMEOUT_S
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def _say_what_is_missing(manager: str | None) -> None:
    lines = list(_remedy(manager))
    width = max(map(len, lines))
    print(
        "\n".join(["!" * (width + 4), *(f"! {line:<{width}} !" for line in lines), "!" * (width + 4)]), file=sys.stderr
    )


def _remedy(manager: str | None) -> Iterator[str]:
    yield "NO CHROMIUM: the tests in tests/browser will be SKIPPED."
    if manager is None:
        yield f"Install one so that {' or '.join(NAMES)} is on the PATH, and run `make setup` again."
    else:
        yield f"Install it, and run `make setup` again: sudo {manager} {' '.join(_MANAGERS[manager][-1])}"


if __name__ == "__main__":
    sys.exit(main())
