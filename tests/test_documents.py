"""Nothing in the repository depends on the machine it was written on, or names where packages come from."""

import json
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent

# A bracket in each pattern keeps this file from matching itself.
FOREIGN = re.compile(
    r"""
    (?<![\w.])[/]work/ | (?<![\w.])[/]root/ | [/]tmp/bash_jobs
    | pypi[.]org/simple | files[.]pythonhosted | registry[.]npmjs
    | registry[ ]*[=][ ]*"?http | index-url[ =]+"?http
    """,
    re.VERBOSE,
)


@pytest.mark.programs
def test_no_file_names_a_registry_or_a_path_of_one_machine() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:120]}"
        for path in _files()
        for number, line in enumerate(_lines(path), start=1)
        if FOREIGN.search(line)
    ]

    assert found == []


def test_the_lock_file_of_npm_records_no_download_addresses() -> None:
    lock = json.loads((ROOT / "package-lock.json").read_text(encoding="utf-8"))

    assert [name for name, package in lock["packages"].items() if "resolved" in package] == []


def test_the_constraints_are_names_and_versions_only() -> None:
    lines = _lines(ROOT / "constraints.txt")

    assert [line for line in lines if not re.fullmatch(r"[A-Za-z0-9._-]+==[A-Za-z0-9.!+_-]+|#.*|", line)] == []


def _files() -> list[Path]:
    """What is tracked, and what is about to be."""
    # The folder may belong to another user than the one who runs the tests.
    listed = subprocess.run(
        ["git", "-c", "safe.directory=*", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for name in listed.stdout.split("\0") if name and (path := ROOT / name).is_file()]


def _lines(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8", errors="replace").splitlines()
