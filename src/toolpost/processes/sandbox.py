"""Control groups for child processes (Linux, cgroup v2), and a report of the containment that this machine supports."""

from __future__ import annotations

import contextlib
import ctypes
import os
import re
import secrets
import shutil
import sys
from pathlib import Path

from msgspec import Struct

_MOUNTS = Path("/proc/self/mountinfo")
_MEMBERSHIPS = Path("/proc/self/cgroup")
_PR_GET_PDEATHSIG = 2
_PR_GET_CHILD_SUBREAPER = 37
_WITHOUT_SUPERVISOR = (
    "A server is ended when its source is closed, but its child processes may remain, and so may the server if "
    "Toolpost is killed; run Toolpost on Linux, or in a container that ends with it."
)
_GROUPS_ONLY = (
    "Servers and commands end with Toolpost even if it is killed, by process group: a program that leaves its "
    "group may remain; run Toolpost on Linux, or in a container that ends with it."
)
_WITHOUT_CGROUP = (
    "Servers and commands end with Toolpost, with all their child processes, even if it or one supervisor process is "
    "killed. If a program kills both processes above it, Toolpost finds the rest by their environment, unless "
    "the program has cleared it or Toolpost is killed too. A control group closes that gap: run Toolpost where it may "
    "create one, such as "
    "`systemd-run --user --scope -p Delegate=yes`."
)
_EVERYTHING = (
    "Servers and commands end with Toolpost, with all their child processes, even if it or their supervisors are "
    "killed: supervisors adopt orphans, and control groups contain them."
)


class ControlGroup(Struct, frozen=True, kw_only=True):
    """A group of processes that is killed as a whole: children of members are members, in any session."""

    path: Path

    def kill(self) -> None:
        """Kill every member, including those of subgroups."""
        with contextlib.suppress(OSError):
            (self.path / "cgroup.kill").write_bytes(b"1")

    def remove(self) -> bool:
        """Delete the group and its subgroups; return whether it is gone."""
        for folder, _, _ in os.walk(self.path, topdown=False):
            with contextlib.suppress(OSError):
                Path(folder).rmdir()
        return not self.path.exists()


def create_control_group() -> ControlGroup | None:
    """Create a group below that of this process; None if the system has none or does not permit it."""
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
    """Find the folder of this process's group."""
    try:
        mounts, memberships = _MOUNTS.read_text(), _MEMBERSHIPS.read_text()
    except OSError:
        return None
    group = re.search(r"^0::(/.*)$", memberships, re.MULTILINE)
    # The type of the file system decides: a tmpfs of that name also allows folders, which contain no processes.
    mount = re.search(r"^\S+ \S+ \S+ (\S+) (\S+) .* - cgroup2 ", mounts, re.MULTILINE)
    if group is None or mount is None:
        return None
    root, point = (_unescape(field) for field in mount.groups())
    try:
        below = Path(group[1]).relative_to(root)
    except ValueError:
        return None
    return None if ".." in below.parts else Path(point) / below


def _unescape(field: str) -> str:
    """Decode a path of mountinfo, where a space is written as an octal number."""
    return re.sub(r"\\([0-7]{3})", lambda octal: chr(int(octal[1], 8)), field)


class SandboxReport(Struct, frozen=True, kw_only=True):
    """Mechanisms of this machine that prevent child processes from outliving their host.

    Supervisors use all except `pid_namespace`, which is bubblewrap's, for sandboxes: servers that write their process
    id to lock files would not find each other in separate namespaces.
    """

    supervisor: bool
    subreaper: bool
    parent_death_signal: bool
    cgroup_kill: bool
    pid_namespace: bool

    @property
    def summary(self) -> str:
        """Describe the effect on programs that are started here, and possible improvements."""
        if not self.supervisor:
            return _WITHOUT_SUPERVISOR
        if not (self.subreaper and self.parent_death_signal):
            return _GROUPS_ONLY
        return _EVERYTHING if self.cgroup_kill else _WITHOUT_CGROUP


def sandbox_report() -> SandboxReport:
    """Inspect this machine without starting anything."""
    group = create_control_group()
    return SandboxReport(
        supervisor=sys.platform != "win32",
        subreaper=_prctl_knows(_PR_GET_CHILD_SUBREAPER),
        parent_death_signal=_prctl_knows(_PR_GET_PDEATHSIG),
        cgroup_kill=group is not None and group.remove(),
        pid_namespace=sys.platform == "linux" and shutil.which("bwrap") is not None,
    )


def _prctl_knows(option: int) -> bool:
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, ctypes.byref(ctypes.c_int()), 0, 0, 0) == 0)
