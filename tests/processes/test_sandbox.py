"""Control groups, and the report of what the machine has to contain processes."""

import sys
from pathlib import Path

import pytest
from msgspec.structs import replace

from toolpost.processes.sandbox import SandboxReport, create_control_group, sandbox_report

LINUX = pytest.mark.skipif(sys.platform != "linux", reason="these are mechanisms of Linux")
ALL = SandboxReport(supervisor=True, subreaper=True, parent_death_signal=True, cgroup_kill=True, pid_namespace=True)


@LINUX
def test_linux_has_supervisors_subreapers_and_parent_death_signals() -> None:
    found = sandbox_report()

    assert (found.supervisor, found.subreaper, found.parent_death_signal) == (True, True, True)


@LINUX
def test_looking_leaves_no_group_behind() -> None:
    group = create_control_group()
    own = group.path.parent if group else Path("/nonexistent")
    if group:
        assert group.remove()
    before = {entry.name for entry in own.glob("toolpost-*")}

    found = sandbox_report()

    assert found.cgroup_kill is (group is not None)
    assert {entry.name for entry in own.glob("toolpost-*")} <= before


@LINUX
@pytest.mark.parametrize(
    ("mounts", "membership"),
    [
        ("", "0::/\n"),
        ("30 23 0:26 / {folder} rw,relatime shared:4 - tmpfs tmpfs rw\n", "0::/\n"),
        ("30 23 0:26 / {folder} rw,relatime shared:4 - cgroup2 cgroup2 rw\n", "3:cpu:/\n"),
        ("30 23 0:26 / {folder} rw,relatime shared:4 - cgroup2 cgroup2 rw\n", "0::/../sibling\n"),
        ("30 23 0:26 /docker/1 {folder} rw,relatime - cgroup2 cgroup2 rw\n", "0::/elsewhere\n"),
        ("30 23 0:26 / {folder} rw,relatime - cgroup2 cgroup2 rw\n", "0::/\n"),
    ],
    ids=["no mount", "a tmpfs", "only version 1", "outside the namespace", "outside the mount", "no cgroup.kill"],
)
def test_no_group_is_made_where_it_would_hold_no_one(
    mounts: str, membership: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "group"
    folder.mkdir()
    (folder / "cgroup.procs").touch()
    for name, text in (("_MOUNTS", mounts.format(folder=folder)), ("_MEMBERSHIPS", membership)):
        (tmp_path / name).write_text(text)
        monkeypatch.setattr(f"toolpost.processes.sandbox.{name}", tmp_path / name)

    assert create_control_group() is None
    assert [entry.name for entry in folder.iterdir()] == ["cgroup.procs"]


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (ALL, "control groups contain them"),
        (replace(ALL, cgroup_kill=False), "A control group closes that gap"),
        (replace(ALL, subreaper=False, parent_death_signal=False, cgroup_kill=False), "by process group"),
        (replace(ALL, supervisor=False), "its child processes may remain"),
    ],
)
def test_the_summary_says_what_holds_and_what_would_be_better(found: SandboxReport, says: str) -> None:
    assert says in found.summary
