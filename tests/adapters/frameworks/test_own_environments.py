"""The adapters of frameworks that do not fit beside the pins, each in a separate environment."""

import subprocess
from importlib.metadata import distribution
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from tests.cli.program import child_environment
from tests.parts import ROOT, python_of_openai_agents

HERE = Path(__file__).parent
PATIENCE_S = 240


def run_trial(python: Path, trial: str) -> None:
    """Run the tests of an adapter with the interpreter of its framework."""
    options = [
        "-p",
        "tests.adapters.frameworks.measured",
        "-c",
        str(HERE / "own_environment.ini"),
        "--rootdir",
        str(ROOT),
    ]
    with TemporaryDirectory() as folder:
        write_metadata(Path(folder))
        done = subprocess.run(
            [str(python), "-m", "pytest", "-q", *options, str(HERE / f"{trial}.py")],
            cwd=ROOT,
            env=child_environment(PYTHONPATH=f"{ROOT / 'src'}:{ROOT}:{folder}"),
            capture_output=True,
            text=True,
            timeout=PATIENCE_S,
            check=False,
        )
    assert done.returncode == 0, done.stdout[-8000:] + done.stderr[-2000:]


def write_metadata(folder: Path) -> None:
    """Write what a process that stores files reads of the installed package."""
    package = distribution("toolpost")
    home = folder / f"toolpost-{package.version}.dist-info"
    home.mkdir()
    (home / "METADATA").write_text(package.read_text("METADATA") or "", encoding="utf-8")


@pytest.mark.req("FRAME-01", "FRAME-02", "FRAME-03")
@pytest.mark.programs
def test_the_adapter_for_the_openai_agents_sdk() -> None:
    run_trial(python_of_openai_agents(), "trial_openai_agents")
