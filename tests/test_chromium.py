"""How the browser of the browser tests is brought: by the system's package manager, or not at all and loudly."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.programs

ROOT = Path(__file__).parent.parent
MANAGER = '#!/bin/sh\necho "$@" >> "$(dirname "$0")/asked"\n'
BRINGS_IT = 'case "$1" in install) printf "#!/bin/sh\\n" > "$0.d/chromium"; chmod +x "$0.d/chromium";; esac\n'


def program(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(text)
    path.chmod(0o755)


def setup(folder: Path) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(folder), str(folder / "apt-get.d")])
    (folder / "apt-get.d").mkdir(exist_ok=True)
    for needed in ("sh", "dirname", "chmod", "true"):
        if not (folder / needed).exists():
            (folder / needed).symlink_to(f"/bin/{needed}")
    return subprocess.run(
        [sys.executable, "-m", "tools.chromium"],
        cwd=ROOT,
        env={"PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_the_package_manager_brings_the_browser_once(tmp_path: Path) -> None:
    program(tmp_path, "apt-get", MANAGER + BRINGS_IT)
    program(tmp_path, "sudo", '#!/bin/sh\nshift\nexec "$@"\n')

    first, second = setup(tmp_path), setup(tmp_path)

    assert (first.returncode, first.stderr) == (0, "")
    assert (second.returncode, second.stdout) == (0, "")
    assert (tmp_path / "asked").read_text().splitlines() == [
        "update",
        "install --yes --no-install-recommends chromium",
    ]


@pytest.mark.parametrize("manager", [MANAGER + "exit 100\n", None], ids=["fails", "none"])
def test_a_browser_that_cannot_be_brought_is_reported_loudly_and_fails_nothing(
    tmp_path: Path, manager: str | None
) -> None:
    if manager is not None:
        program(tmp_path, "apt-get", manager)

    done = setup(tmp_path)

    assert done.returncode == 0
    assert "NO CHROMIUM: the tests in tests/browser will be SKIPPED." in done.stderr
    assert "make setup" in done.stderr
