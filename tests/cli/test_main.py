"""The program itself: its version, its help, and what a wrong command line gets."""

import getpass
import json
import os
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Annotated

import pytest
import typer

from tests.cli.program import SRC, Run, child_environment, command
from toolpost import __version__
from toolpost.cli.commands import Commands, default_user


@pytest.mark.programs
def test_the_version_is_reported_without_importing_anything_heavy() -> None:
    program = (
        "import json, sys; from toolpost.cli import main; main(['--version']);"
        "print(json.dumps([name for name in ('typer', 'pydantic', 'rich', 'yaml', 'asyncio') if name in sys.modules]))"
    )
    version, imported = run_python(program, cwd=None)
    assert version == f"toolpost {__version__}"
    assert json.loads(imported) == []


@pytest.mark.programs
def test_tools_are_listed_without_importing_what_a_list_does_not_need(tmp_path: Path) -> None:
    needless = (
        "yaml",
        "rich",
        "websockets",
        "cryptography",
        "pydantic",
        "pydantic_core",
        "mimetypes",
        "toolpost.stores.sqlite.store",
        "toolpost.catalog.search",
    )
    program = (
        "import json, sys; from toolpost.cli import main; main(['tools', 'list', '--json']);"
        f"print(json.dumps([name for name in {needless} if name in sys.modules]))"
    )
    assert json.loads(run_python(program, cwd=tmp_path)[-1]) == []


@pytest.mark.programs
@pytest.mark.parametrize(("start_s", "collects"), [(0.0, True), (600.0, False)])
def test_garbage_is_collected_in_commands_that_are_not_over_at_once(
    start_s: float, collects: bool, tmp_path: Path
) -> None:
    program = (
        "import gc, sys; from toolpost.cli import main, runner; sys.argv = ['toolpost', 'tools', 'list', '--json'];"
        f"runner._START_S = {start_s}; main(); print(gc.isenabled())"
    )
    assert run_python(program, cwd=tmp_path)[-1] == str(collects)


def run_python(program: str, *, cwd: Path | None) -> list[str]:
    """The lines that a program writes, which has the packages without coverage's own start-up hook."""
    done = subprocess.run(
        [sys.executable, "-S", "-c", program],
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(SRC), sysconfig.get_path("purelib")])},
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("arguments", [["--version"], ["--version", "tools"]])
def test_the_version_is_reported_alone_and_among_others(toolpost: Run, arguments: list[str]) -> None:
    done = toolpost(*arguments)

    assert (done.code, done.out) == (0, f"toolpost {__version__}\n")


def test_the_demo_is_told_how_to_speak_and_gives_the_exit_code(toolpost: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("toolpost.cli.demo.run", lambda *, json: 7 if json else 8)

    assert (toolpost("demo", "--json").code, toolpost("demo").code) == (7, 8)


def test_a_process_without_a_name_goes_by_its_number(monkeypatch: pytest.MonkeyPatch) -> None:
    def nameless() -> str:
        raise KeyError("getpwuid(): uid not found")

    monkeypatch.setattr(getpass, "getuser", nameless)

    assert default_user() == f"local:{os.getuid()}"


@pytest.mark.parametrize("option", [["--config", "toolpost.yaml"], ["--user", "ann"], ["--json"]])
def test_an_option_before_the_command_is_reported_where_it_goes(toolpost: Run, option: list[str]) -> None:
    done = toolpost(*option, "tools", "list")

    assert (done.code, done.out) == (2, "")
    assert f"it goes after the command: toolpost tools list {option[0]}" in done.err


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
        ["pending", "approve", "x", "--changes", "nonsense"],
        ["pending", "approve", "x", "--changes", "{}"],
        ["pending", "approve", "x", "--set", "to=bob"],
        ["pending", "list", "--status", "odd"],
        ["runs", "list", "--limit", "0"],
    ],
)
def test_a_wrong_command_line_exits_2_and_says_why_on_stderr(toolpost: Run, arguments: list[str]) -> None:
    done = toolpost(*arguments)

    assert (done.code, done.out) == (2, "")
    assert "Error: " in done.err


@pytest.mark.parametrize("make_app", [Commands, typer.Typer])
def test_a_command_gets_for_what_is_not_given_what_typer_makes_of_it(make_app: type[typer.Typer]) -> None:
    app = make_app()

    @app.command()
    def count(
        ctx: typer.Context,
        words: Annotated[list[str] | None, typer.Argument()] = None,
        size: Annotated[list[int] | None, typer.Option()] = None,
        name: Annotated[str | None, typer.Option()] = None,
    ) -> dict[str, object]:
        return ctx.params

    assert app([], standalone_mode=False) == {"words": (), "size": (), "name": None}


@pytest.mark.programs
def test_a_file_that_a_tool_left_open_is_written_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "tools.py").write_text(
        'from toolpost import tool\n\nnotes = open("notes.txt", "w")\n\n\n@tool(side_effects="pure")\n'
        'def note(text: str) -> int:\n    """Write a note."""\n    return notes.write(text)\n'
    )
    (tmp_path / "toolpost.yaml").write_text("sources: [{name: my, transport: python, connection: ./tools.py}]\n")
    subprocess.run(command("tools", "call", "my.note", "text=hello"), cwd=tmp_path, env=child_environment(), check=True)

    assert (tmp_path / "notes.txt").read_text() == "hello"


@pytest.mark.programs
@pytest.mark.parametrize(
    "words",
    [
        ["tools", "show", "local.add"],
        ["tools", "presets"],
        ["pending", "list"],
        ["runs", "list"],
        ["artifacts", "list"],
        ["accounts", "list"],
        ["keys", "list"],
        ["config", "check"],
        ["lock", "--check"],
    ],
    ids=" ".join,
)
def test_a_program_that_has_imported_nothing_yet_answers_the_same(toolpost: Run, home: Path, words: list[str]) -> None:
    here = toolpost(*words, "--json")
    there = subprocess.run(command(*words, "--json"), cwd=home, capture_output=True, text=True, check=False)

    assert (there.returncode, there.stdout, there.stderr) == here
