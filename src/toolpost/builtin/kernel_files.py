"""Which file systems hold no files but windows into the kernel: /proc, /sys and their like, wherever they are."""

from __future__ import annotations

import os
import sys
from pathlib import Path

_KINDS = frozenset(
    {
        *("proc", "sysfs", "debugfs", "tracefs", "securityfs", "configfs", "bpf", "pstore", "efivarfs"),
        *("cgroup", "cgroup2", "fusectl", "binfmt_misc", "selinuxfs", "devpts", "mqueue", "rpc_pipefs", "nsfs"),
    }
)
_MOUNTS = Path("/proc/self/mountinfo")


def is_kernel_device(device: int) -> bool:
    """Whether a file on this device belongs to the kernel."""
    if sys.platform != "linux" or os.major(device) != 0:  # real disks have a number
        return False
    return device in _kernel_devices()


def _kernel_devices() -> set[int]:
    """Read anew each time: mounts come and go, and few files have such a device."""
    try:
        lines = _MOUNTS.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return {folder.stat().st_dev for folder in (Path("/proc"), Path("/sys")) if folder.is_dir()}
    return {_device(line) for line in lines if _kind(line) in _KINDS}


def _device(line: str) -> int:
    major, _, minor = line.split(" ", 3)[2].partition(":")
    return os.makedev(int(major), int(minor))


def _kind(line: str) -> str:
    return line.partition(" - ")[2].partition(" ")[0]
