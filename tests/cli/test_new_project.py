"""`toolpost new`: what it writes works as it is."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.program import Run, child_environment
from tests.cli.test_agent import provider
from toolpost.testing import tool_calls


@pytest.mark.req("CLI-03")
def test_a_new_project_has_tools_that_are_listed_and_called(
    toolpost: Run, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done = toolpost("new", "my notes")
    monkeypatch.chdir(home / "my notes")

    assert (done.code, done.out.splitlines()) == (
        0,
        ["written: my notes/toolpost.yaml", "written: my notes/tools.py", "written: my notes/.gitignore"],
    )
    assert "  cd 'my notes'\n  toolpost tools list\n" in done.err
    names = [tool["name"] for tool in toolpost("tools", "list", "--json").json]
    assert [name for name in names if name.startswith("notes.")] == [
        *("notes.read_note", "notes.write_note", "notes.delete_note"),
    ]
    assert toolpost("tools", "call", "notes.write_note", "name=milk", "text=two litres").out.splitlines()[0] == "10"
    assert toolpost("tools", "call", "notes.delete_note", "name=milk").code == 3


@pytest.mark.req("CLI-03")
@pytest.mark.programs
def test_the_agent_of_a_new_project_calls_its_tools_and_asks_its_person(toolpost: Run, home: Path) -> None:
    assert toolpost("new", "one", "--template", "agent").code == 0
    write = tool_calls(("notes__write_note", {"name": "milk", "text": "two litres"}))
    delete = tool_calls(("notes__delete_note", {"name": "milk"}))

    with provider(write, delete, "Written and deleted.") as (_, model):
        done = run_agent(home / "one", "Note", "milk.", model=model)
    unsaid = run_agent(home / "one", model="")

    assert (done.returncode, "Written and deleted." in done.stdout) == (0, True), done.stderr
    assert "Allow notes.delete_note?" in done.stdout
    assert not (home / "one" / "milk.txt").exists()
    assert (unsaid.returncode, unsaid.stderr.startswith("usage: ")) == (1, True)


def run_agent(folder: Path, *words: str, model: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "agent.py", *words],
        cwd=folder,
        env=child_environment(TOOLPOST_MODEL=model),
        input="y\n",
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


def test_no_file_is_replaced(toolpost: Run, home: Path) -> None:
    before = (home / "tools.py").read_text()

    done = toolpost("new", ".", "--template", "agent")

    assert (done.code, "toolpost.yaml, tools.py already exists" in done.err) == (1, True)
    assert (home / "tools.py").read_text() == before
    assert not (home / "agent.py").exists()


def test_json_names_the_files(toolpost: Run) -> None:
    done = toolpost("new", "two", "--json")

    assert done.json["files"] == ["two/toolpost.yaml", "two/tools.py", "two/.gitignore"]


def test_a_folder_that_cannot_be_made_is_named(toolpost: Run) -> None:
    done = toolpost("new", "tools.py/inside")

    assert (done.code, done.err.splitlines()[0]) == (1, "failed: tools.py/inside: Not a directory")
