import subprocess
from pathlib import Path

import pytest

from bench.envs import environment, home_of

pytestmark = pytest.mark.slow


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "none.txt").write_text("# nothing\n")
    return tmp_path


@pytest.mark.programs
def test_an_environment_is_made_once(root: Path) -> None:
    python = environment("none", root=root)

    said = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)
    assert Path(said.stdout.strip()) == home_of("none", root=root)
    (root / "requirements" / "none.txt").touch()
    assert environment("none", root=root) == python


def test_other_requirements_are_another_environment(root: Path) -> None:
    before = home_of("none", root=root)

    (root / "requirements" / "none.txt").write_text("toolpost==0\n")

    assert home_of("none", root=root) != before
