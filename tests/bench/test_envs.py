import subprocess
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from bench.envs import HERE, environment, home_of

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


@pytest.mark.parametrize("name", ["langgraph", "penguiflow"])
def test_a_peer_that_calls_our_tools_has_what_we_need(name: str) -> None:
    project = tomllib.loads((HERE.parent / "pyproject.toml").read_text())["project"]
    listed = (HERE / "requirements" / f"{name}.txt").read_text().splitlines()
    versions = {canonicalize_name(line.partition("==")[0]): line.partition("==")[2] for line in listed}

    needed = [Requirement(text) for text in project["dependencies"]]

    assert [each.name for each in needed if versions.get(canonicalize_name(each.name), "") not in each.specifier] == []
