"""What this machine offers to keep a tool's processes from outliving Toolpost; it only looks, and starts nothing."""

from __future__ import annotations

import ctypes
import shutil
import sys
from dataclasses import dataclass

from toolpost.wire.cgroups import make_group

_PR_GET_PDEATHSIG = 2
_PR_GET_CHILD_SUBREAPER = 37


@dataclass(frozen=True, slots=True, kw_only=True)
class Containment:
    """Which mechanisms there are.

    The keepers use all but `pid_namespace`: that is bubblewrap, for sandboxes; servers that leave their
    process id in lock files would not find each other in namespaces of their own.
    """

    lifeline: bool
    subreaper: bool
    parent_death_signal: bool
    cgroup_kill: bool
    pid_namespace: bool

    @property
    def summary(self) -> str:
        """What that means for whoever runs tools here, and what would be better."""
        if not self.lifeline:
            return _WITHOUT_KEEPER
        if not (self.subreaper and self.parent_death_signal):
            return _GROUPS_ONLY
        return _EVERYTHING if self.cgroup_kill else _WITHOUT_CGROUP


_WITHOUT_KEEPER = (
    "A server is ended when its source is closed, but what it started may stay, and so may the server when "
    "Toolpost is killed; run Toolpost on Linux, or in a container that ends with it."
)
_GROUPS_ONLY = (
    "Servers end with Toolpost even when it is killed, by process group: a program that leaves its server's group "
    "may stay; run Toolpost on Linux, or in a container that ends with it."
)
_WITHOUT_CGROUP = (
    "Servers and all that they start end with Toolpost, even when it or any one keeper is killed; only when "
    "both keepers of a server are killed at once may a program in a session of its own stay. A control group "
    "closes that gap: run Toolpost where it may make one, such as `systemd-run --user --scope -p Delegate=yes`."
)
_EVERYTHING = (
    "Servers and all that they start end with Toolpost, even when it or their keepers are killed: "
    "keepers adopt what they leave behind, and control groups hold it."
)


def containment() -> Containment:
    """Look at what this machine offers."""
    return Containment(
        lifeline=sys.platform != "win32",
        subreaper=_answers(_PR_GET_CHILD_SUBREAPER),
        parent_death_signal=_answers(_PR_GET_PDEATHSIG),
        cgroup_kill=_can_make_groups(),
        pid_namespace=sys.platform == "linux" and shutil.which("bwrap") is not None,
    )


def _answers(option: int) -> bool:
    """Whether the system knows what the option asks about."""
    if sys.platform != "linux":
        return False
    return bool(ctypes.CDLL(None).prctl(option, ctypes.byref(ctypes.c_int()), 0, 0, 0) == 0)


def _can_make_groups() -> bool:
    group = make_group()
    return group is not None and group.remove()
