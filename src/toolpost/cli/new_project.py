"""`toolpost new`: write the files of a new project."""

from __future__ import annotations

import shlex
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from toolpost.cli.commands import CommonOptions
from toolpost.cli.runner import run_command
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.cli.output import Output

Template = Literal["tools", "agent"]
_FOLDER = Path(__file__).with_name("templates")
_FILES: dict[Template, tuple[str, ...]] = {
    "tools": ("toolpost.yaml", "tools.py", ".gitignore"),
    "agent": ("toolpost.yaml", "tools.py", "agent.py", ".gitignore"),
}
_NEXT = {
    "tools": ("toolpost tools list", "toolpost tools call notes.write_note name=milk text='two litres'"),
    "agent": ("toolpost tools list", "TOOLPOST_MODEL=openai-chat/gpt-4.1 python agent.py 'Note that we need milk.'"),
}


def new(
    common: CommonOptions,
    folder: Annotated[Path, typer.Argument(metavar="FOLDER", help="Folder to write to; `.` for the current one.")],
    template: Annotated[
        Template,
        typer.Option("--template", help="tools: tools and a configuration; agent: also an agent that calls them."),
    ] = "tools",
) -> None:
    """Start a project: tools in Python, their configuration, and optionally an agent.

    If one of the files already exists, nothing is written.
    """
    run_command(partial(_write_project, folder, template), common)


async def _write_project(folder: Path, template: Template, output: Output) -> int:
    files = _write_files(folder, template)
    if output.as_json:
        output.document({"folder": str(folder), "template": template, "files": [str(file) for file in files]})
        return 0
    for file in files:
        output.text(f"written: {file}")
    output.note("Next:")
    for command in (*_enter(folder), *_NEXT[template]):
        output.note(f"  {command}")
    return 0


def _write_files(folder: Path, template: Template) -> list[Path]:
    files = [folder / name for name in _FILES[template]]
    existing = [str(file) for file in files if file.exists() or file.is_symlink()]
    if existing:
        raise ConfigError(f"{', '.join(existing)} already exists, so nothing was written; name another folder")
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for file in files:
            text = (_FOLDER / f"{file.name.lstrip('.')}.txt").read_text(encoding="utf-8")
            with file.open("x", encoding="utf-8", newline="\n") as target:
                target.write(text)
    except OSError as error:
        raise ConfigError(f"{error.filename or folder}: {error.strerror or error}") from error
    return files


def _enter(folder: Path) -> tuple[str, ...]:
    """Return the command that enters the folder; none for the current one."""
    return () if folder.resolve() == Path.cwd() else (f"cd {shlex.quote(str(folder))}",)
