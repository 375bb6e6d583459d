import subprocess
from pathlib import Path

import pytest

from bench import envs


@pytest.fixture
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "requirements").mkdir()
    (tmp_path / "requirements" / "none.txt").write_text("# nothing\n")
    monkeypatch.setattr(envs, "HERE", tmp_path)
    monkeypatch.setattr(envs, "ENVS", tmp_path / ".envs")


@pytest.mark.usefixtures("_elsewhere")
def test_an_environment_is_made_once_and_again_when_its_requirements_change(tmp_path: Path) -> None:
    python = envs.environment("none")
    said = subprocess.run([python, "-c", "import sys; print(sys.prefix)"], capture_output=True, text=True, check=True)

    assert Path(said.stdout.strip()).parent == tmp_path / ".envs"
    assert envs.environment("none") == python

    (tmp_path / "requirements" / "none.txt").write_text("# still nothing\n")
    assert envs.environment("none") != python
