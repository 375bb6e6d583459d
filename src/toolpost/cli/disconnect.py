"""`toolpost tools disconnect`: one source less in the configuration."""

from __future__ import annotations

from typing import Annotated

import typer

from toolpost.cli import completion
from toolpost.cli.options import Config, Json, User
from toolpost.cli.output import Output
from toolpost.cli.session import run_command

Name = Annotated[
    str,
    typer.Argument(metavar="NAME", help="The source, as the file names it.", autocompletion=completion.source_names),
]


def disconnect(
    name: Name,
    config: Config = None,
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Take a source out of the configuration.

    Its entry goes, comments and all the rest of the file stay; what was taken out is shown, to be pasted back.
    Accounts, runs and artifacts of its tools are kept.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.file_editor import config_path, remove_source

        path = config_path(config)
        taken = remove_source(path, name)
        if output.as_json:
            output.document({"status": "ok", "config": str(path), "source": name, "removed": taken, "error": None})
        else:
            output.text(taken.rstrip("\n"))
            output.note(f"{name!r} is out of {path.name}; this was its entry.")
        return 0

    run_command(work, as_json=json)
