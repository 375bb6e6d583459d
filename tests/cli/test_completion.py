"""Shell completion: names and ids, without starting a source or making a folder."""

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment, command, warm_command

pytestmark = pytest.mark.programs

STARTED = "import pathlib\npathlib.Path(__file__).with_name('started').touch()\n"


def completed(home: Path, *words: str, program: Callable[[], list[str]] = warm_command) -> list[str]:
    """What bash offers for the last word."""
    asked = {"_TOOLPOST_COMPLETE": "complete_bash", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    done = subprocess.run(
        program(), cwd=home, env=child_environment(**asked), capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_a_shell_is_shown(home: Path, shell: str) -> None:
    done = subprocess.run(
        command("--show-completion", shell),
        cwd=home,
        env=child_environment(_TYPER_COMPLETE_TEST_DISABLE_SHELL_DETECTION="1"),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )

    assert done.returncode == 0
    assert "_TOOLPOST_COMPLETE" in done.stdout


def test_names_and_ids_are_completed_from_what_earlier_commands_saw(toolpost: Run, home: Path) -> None:
    paused = toolpost("tools", "call", "local.wipe", "--args", '{"name": "disk"}', "--json").json
    (home / "tools.py").write_text(STARTED + (home / "tools.py").read_text())

    for program in (command, warm_command):
        assert completed(home, "toolpost", "tools", "call", "local.a", program=program) == ["local.add", "local.ask"]
    assert completed(home, "toolpost", "tools", "show", "base64_e") == ["base64_encode"]
    assert completed(home, "toolpost", "tools", "list", "--source", "lo") == ["local"]
    assert completed(home, "toolpost", "tools", "disconnect", "lo") == ["local"]
    assert completed(home, "toolpost", "tools", "connect", "filesy") == ["filesystem"]
    assert completed(home, "toolpost", "run", "x", "--tools", "local.add,local.as") == ["local.add,local.ask"]
    assert completed(home, "toolpost", "chat", "--tools", "data_") == ["data_tools"]
    assert completed(home, "toolpost", "pending", "approve", "ask") == [paused["pending"]["id"]]
    assert completed(home, "toolpost", "runs", "show", "run_") == [paused["run_id"]]
    assert completed(home, "toolpost", "events", "--run", "run_") == [paused["run_id"]]
    assert completed(home, "toolpost", "pending", "approve", "--user", "other:eve", "ask") == []
    assert not (home / "started").exists()


def test_built_in_names_are_completed_in_a_folder_without_a_configuration(toolpost: Run, home: Path) -> None:
    (home / "toolpost.yaml").unlink()
    (home / ".toolpost").mkdir()

    assert toolpost("tools", "list").code == 0

    assert completed(home, "toolpost", "tools", "show", "base64_e") == ["base64_encode"]


@pytest.mark.parametrize("written", ["sources: [", "[]", "sources: 7", None], ids=["broken", "list", "odd", "none"])
def test_a_file_that_cannot_be_read_completes_nothing_and_complains_of_nothing(home: Path, written: str | None) -> None:
    (home / "toolpost.yaml").unlink()
    if written is not None:
        (home / "toolpost.yaml").write_text(written)

    assert completed(home, "toolpost", "tools", "list", "--source", "lo") == []
    assert completed(home, "toolpost", "pending", "approve", "ask") == []
    assert not (home / ".toolpost").exists()
