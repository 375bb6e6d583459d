"""Write the tools of an MCP server to a file: `toolpost table URL -o tools.parquet`."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli.commands import CommonOptions
from toolpost.cli.runner import run_command
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from toolpost.cli.output import Output

_FORMATS = ".parquet, .feather or .arrow"


def table(
    common: CommonOptions,
    server: Annotated[str, typer.Argument(metavar="URL", help="The address of an MCP server, or its command.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help=f"Where to write: {_FORMATS}.")],
    column: Annotated[str, typer.Option("--column", help="The name of the column.")] = "Tool",
    simple: Annotated[
        bool, typer.Option("--simple", help="Keep parameters that are strings or numbers; mark tools that need others.")
    ] = False,
    booleans: Annotated[bool, typer.Option("--booleans", help="With --simple: also keep booleans.")] = False,
    credential: Annotated[
        str | None,
        typer.Option(
            "--credential", metavar="NAME", help="Variable that contains the server's token; only its name is written."
        ),
    ] = None,
) -> None:
    """Write the tools of an MCP server to a table, one row per tool.

    Tables of several servers can be concatenated, queried and passed to an agent.
    """
    options: dict[str, Any] = {"schema_profile": "simple" if simple else "full", "booleans": booleans}
    run_command(partial(_write_table, server, output, column, credential, options), common)


async def _write_table(
    server: str, path: Path, column: str, credential: str | None, options: dict[str, Any], output: Output
) -> int:
    from toolpost.adapters.arrow_encoding import tool_table
    from toolpost.adapters.credentials import NamedCredential
    from toolpost.adapters.provider import list_server_tools, unsupported_reason

    write = _writer(path)
    if credential is not None:
        token = os.environ.get(credential)
        if not token:
            raise ConfigError(f"--credential: the variable {credential} is not set")
        options = {**options, "credential": NamedCredential(credential, password=token, origin=server)}
    listing = await list_server_tools(server, **options)
    try:
        write(tool_table(listing.tools, column), str(path))
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror or error}; give another file with -o") from error
    marked = {tool.name: why for tool in listing.tools if (why := unsupported_reason(tool.parameter_schema))}
    if output.as_json:
        names = [tool.name for tool in listing.tools]
        output.document({"file": str(path), "tools": names, "unsupported": marked, "problems": listing.problems})
        return 0
    for problem in listing.problems:
        output.note(problem)
    for name, why in marked.items():
        output.note(f"{name} is marked as unsupported: it {why}")
    rows = "1 row" if len(listing.tools) == 1 else f"{len(listing.tools)} rows"
    output.text(f"{path}: {rows}, tools in the column {column!r}")
    return 0


def _writer(path: Path) -> Any:
    """Return the function that writes a table in the format of the file's name."""
    from importlib import import_module

    match path.suffix:
        case ".parquet":
            return import_module("pyarrow.parquet").write_table
        case ".feather" | ".arrow":
            return import_module("pyarrow.feather").write_feather
        case other:
            raise ConfigError(
                f"--output: {other or 'a name without a suffix'} is not a supported format; use {_FORMATS}"
            )
