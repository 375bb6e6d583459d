"""The workflows of the repository run make targets, so that everybody can run the same commands."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parent.parent
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
TARGETS = set(re.findall(r"^([a-z][a-z0-9-]*):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))


def steps(workflow: Path) -> list[dict[str, Any]]:
    jobs = yaml.safe_load(workflow.read_text(encoding="utf-8"))["jobs"]
    return [step for job in jobs.values() for step in job["steps"]]


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_every_command_of_a_workflow_is_a_make_target(workflow: Path) -> None:
    commands = [step["run"] for step in steps(workflow) if "run" in step]

    assert commands
    assert [command for command in commands if command.split() != ["make", command.split()[-1]]] == []
    assert {command.split()[-1] for command in commands} <= TARGETS


def test_pull_requests_are_checked_on_every_supported_python() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))["jobs"]
    declared = set(re.findall(r'"Programming Language :: Python :: (3\.\d+)"', (ROOT / "pyproject.toml").read_text()))

    assert set(jobs["linux"]["strategy"]["matrix"]["python"]) == declared
    assert jobs["elsewhere"]["continue-on-error"] is True
