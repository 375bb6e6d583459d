"""The program itself: its version, its help, and what a wrong command line gets."""

import json
import os
import subprocess
import sys
import sysconfig

import pytest

from tests.cli.program import SRC, Run
from toolpost import __version__


def test_the_version_is_told_without_importing_anything_heavy() -> None:
    program = (
        "import json, sys; from toolpost.cli import main; main(['--version']);"
        "print(json.dumps([name for name in ('typer', 'pydantic', 'rich', 'yaml', 'asyncio') if name in sys.modules]))"
    )
    path = os.pathsep.join([str(SRC), sysconfig.get_path("purelib")])
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],  # -S: without coverage's own start-up hook
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    version, imported = done.stdout.splitlines()
    assert version == f"toolpost {__version__}"
    assert json.loads(imported) == []


def test_the_version_is_told_among_other_options_too(toolpost: Run) -> None:
    assert toolpost("--version", "tools").out == f"toolpost {__version__}\n"


def test_the_help_names_every_command_and_the_exit_codes(toolpost: Run) -> None:
    done = toolpost("--help")

    assert done.code == 0
    for word in ("demo", "bench", "tools", "pending", "runs", "events", "config", "doctor", "3 paused"):
        assert word in done.out


@pytest.mark.parametrize(
    "arguments",
    [
        ["tols"],
        ["tools", "call"],
        ["tools", "call", "local.add", "--args", "{"],
        ["tools", "call", "local.add", "--args", '{"a": NaN}'],
        ["tools", "call", "local.add", "--args", "[" * 100_000],
        ["tools", "call", "local.add", "--args", "@missing.json"],
        ["tools", "call", "local.add", "--timeout", "soon"],
        ["tools", "list", "--category", "furniture"],
        ["tools", "list", "--user", "acme:"],
        ["pending", "approve", "x", "--args", "nonsense"],
        ["pending", "list", "--status", "odd"],
        ["runs", "list", "--limit", "0"],
    ],
)
def test_a_wrong_command_line_exits_2_and_says_why_on_stderr(toolpost: Run, arguments: list[str]) -> None:
    done = toolpost(*arguments)

    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err
