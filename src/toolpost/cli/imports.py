"""`toolpost import`: the servers of other programs' configuration files, taken over."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from toolpost.cli.connect import DryRun, Trust
from toolpost.cli.options import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.session import run_command

File = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Such as .mcp.json; without one, those that can be found are listed."),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether this may be written.")]


def import_servers(
    file: File = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    trust: Trust = False,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Take over the MCP servers of another program's file.

    Reads .mcp.json and the files of Claude, Cursor, VS Code, Windsurf, Zed and
    Gemini. Shows every command, asks, and writes. Secrets are not copied: the
    configuration refers to variables, which you are told to set. Starts nothing, unless you
    want to see what the tools claim, or take that on trust with --trust.
    """

    async def work(output: Output) -> int:
        from toolpost.cli.importing import list_found, take_over

        if file is None:
            return list_found(Path.cwd(), output)
        return await take_over(file, config, output, yes=yes, trust=trust, dry_run=dry_run)

    run_command(work, as_json=json)
