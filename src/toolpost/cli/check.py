"""`toolpost tools check`: whether the folder of a tool holds what it must."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolpost.cli.options import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.session import run_command

Folder = Annotated[
    Path | None,
    typer.Argument(metavar="DIR", help="The folder of a tool, or of several; left out, those that ship with Toolpost."),
]


def check_tool(
    folder: Folder = None,
    config: Config = None,  # noqa: ARG001 - as every command
    user: User = "",  # noqa: ARG001 - the same
    json: Json = False,
) -> None:
    """Check that a tool ships a document, a schema, tests and budgets.

    Nothing is run; exits 1 when something is missing.
    """

    async def work(output: Output) -> int:
        found = _checked(folder)
        broken = any(problems for _, problems in found)
        if output.as_json:
            tools = [{"folder": str(place), "problems": problems} for place, problems in found]
            output.document({"status": "failed" if broken else "ok", "tools": tools})
        else:
            output.table(["Folder", "State"], [(str(place), "\n".join(problems) or "ok") for place, problems in found])
        return int(broken)

    run_command(work, as_json=json)


def _checked(folder: Path | None) -> list[tuple[Path, list[str]]]:
    from toolpost.builtin.standard_check import check_builtin_folders, check_folder

    if folder is None:
        return check_builtin_folders()
    return [(place, check_folder(place)) for place in _folders(folder)]


def _folders(place: Path) -> list[Path]:
    """One tool's folder itself, or those of the tools in it."""
    from toolpost.builtin.standard_check import CASES, DOCUMENT, SCHEMA

    if not place.is_dir() or any((place / name).exists() for name in (DOCUMENT, SCHEMA, CASES)):
        return [place]
    inner = sorted(one for one in place.iterdir() if one.is_dir() and (one / DOCUMENT).exists())
    return inner or [place]
