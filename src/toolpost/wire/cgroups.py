"""A control group for one child process and all that it starts (Linux, cgroup v2)."""

from __future__ import annotations

import contextlib
import os
import re
import secrets
from dataclasses import dataclass
from pathlib import Path

_MOUNTS = Path("/proc/self/mountinfo")
_MEMBERSHIPS = Path("/proc/self/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class ControlGroup:
    """A group that can be killed as one: whoever was started in it is in it, whatever session it made for itself."""

    path: Path

    def kill(self) -> None:
        """Kill every member."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_bytes(b"1")

    def remove(self) -> bool:
        """Remove the group with those below it; whether it is gone."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not self.path.exists()


def make_group() -> ControlGroup | None:
    """A new group below the own one; None where the system has none or does not let us."""
    own = _own_group()
    if own is None or not os.access(own / "cgroup.procs", os.W_OK):
        return None
    group = ControlGroup(path=own / f"toolpost-{os.getpid()}-{secrets.token_hex(4)}")
    try:
        group.path.mkdir()
    except OSError:
        return None
    if (group.path / "cgroup.kill").exists():
        return group
    group.remove()
    return None


def _own_group() -> Path | None:
    """The folder of the group that this process is in."""
    try:
        mounts, memberships = _MOUNTS.read_text(), _MEMBERSHIPS.read_text()
    except OSError:
        return None
    group = re.search(r"^0::(/.*)$", memberships, re.MULTILINE)
    # The file system's type decides: folders can be made in a tmpfs of that name, too, and hold nobody.
    mount = re.search(r"^\S+ \S+ \S+ (\S+) (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    if group is None or mount is None:
        return None
    root, point = (_unescaped(field) for field in mount.groups())
    try:
        below = Path(group[1]).relative_to(root)
    except ValueError:
        return None
    return None if ".." in below.parts else Path(point) / below


def _unescaped(field: str) -> str:
    """A path of mountinfo, where a space is written as an octal number."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)
