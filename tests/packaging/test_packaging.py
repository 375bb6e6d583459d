"""What starts the gateway for a team: the unit of systemd, and the image of a container."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import child_environment

ROOT = Path(__file__).parents[2]
UNIT = ROOT / "packaging/toolpost.service"
needs_systemd = pytest.mark.skipif(
    shutil.which("systemd-analyze") is None, reason="systemd-analyze is missing: apt-get install systemd"
)
needs_namespaces = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or shutil.which("unshare") is None,
    reason="the steps of the Containerfile take root and unshare: apt-get install util-linux, and run this as root",
)


@pytest.mark.programs
@needs_systemd
def test_systemd_finds_nothing_wrong_with_the_unit(tmp_path: Path) -> None:
    program = tmp_path / "toolpost"
    program.write_text("#!/bin/sh\n")
    program.chmod(0o755)
    unit = tmp_path / "toolpost.service"
    unit.write_text(UNIT.read_text().replace("/opt/toolpost/bin/toolpost", str(program)))
    checked = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    command = ["systemd-analyze", "security", "--offline=true", "--threshold=30", str(unit)]
    exposed = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (checked.returncode, checked.stdout, checked.stderr) == (0, "", "")
    assert exposed.returncode == 0, exposed.stdout


@pytest.mark.programs
@needs_namespaces
async def test_the_steps_of_the_containerfile_make_an_image_that_serves_without_rights(tmp_path: Path) -> None:
    steps = Path(__file__).with_name("containerfile.py")
    (tmp_path / "root").mkdir()
    apart = ["unshare", "--mount", "--net", "--pid", "--fork", "--kill-child", "--mount-proc"]
    command = [*apart, sys.executable, str(steps), str(ROOT), str(tmp_path / "root")]
    done = await asyncio.to_thread(
        subprocess.run, command, env=child_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)

    assert seen["refused"][0] == 1
    assert "create a key" in seen["refused"][1]
    assert (seen["health_before"], seen["health"], seen["ended"]) == (1, 0, 0)
    assert (seen["uid"], seen["capabilities"], seen["no_new_privileges"]) == (10001, 0, "1")
    assert (seen["data"], seen["token"], seen["volume"]) == ([10001, "0o700"], "0o600", ["/data"])
    assert seen["module"].startswith("/opt/toolpost/")
    assert not seen["writable"]
