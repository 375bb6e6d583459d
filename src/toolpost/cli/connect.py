"""`toolpost tools connect`, `disconnect`, `presets` and `toolpost import`: sources of the configuration file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli import completion
from toolpost.cli.commands import CommonOptions, Yes
from toolpost.cli.output import Output
from toolpost.cli.runner import run_command

if TYPE_CHECKING:
    from toolpost.connecting.packages import Package


class TransportChoice(StrEnum):
    """Transport of an MCP server."""

    AUTO = "auto"
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable_http"
    SSE = "sse"


Target = Annotated[
    list[str],
    typer.Argument(
        metavar="WHAT",
        help="A preset, a URL, the file of a document, or a command: in quotes, or its words after --.",
        autocompletion=completion.preset_names,
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="Name of the source. [default: derived from WHAT]")
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="A variable for the program; NAME alone passes on your own."),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="A header for each request to the URL.")
]
Cwd = Annotated[Path | None, typer.Option("--cwd", metavar="DIR", help="Working directory of the program.")]
TransportOption = Annotated[
    TransportChoice,
    typer.Option("--transport", help="Transport of an MCP server; with a transport, the URL is not probed."),
]
Trust = Annotated[
    bool, typer.Option("--trust", help="Trust the source's tool annotations, and pin its tools in toolpost.lock.")
]
Force = Annotated[bool, typer.Option("--force", help="Write the source even if a requirement to start it is missing.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show the changes; write and start nothing.")]


def connect(
    common: CommonOptions,
    what: Target,
    *,
    name: Name = None,
    env: Env = None,
    header: Header = None,
    cwd: Cwd = None,
    transport: TransportOption = TransportChoice.AUTO,
    yes: Yes = False,
    trust: Trust = False,
    force: Force = False,
    dry_run: DryRun = False,
) -> None:
    """Add a source to the configuration and show its tools.

    A source is an MCP server, an API, a UTCP manual, an n8n instance or a file of Python tools. Detects the type of a
    URL by probing it, and of a file by its content. Does not write a source that is not recognized or whose
    requirements are missing. Shows the exact command or address and asks for confirmation. Secrets are never written:
    the configuration refers to variables, and the command reports which to set. Tool annotations are shown and trusted
    only after a second confirmation or with --trust. Exits with 1 if the connection fails; the source stays in the
    file.
    """
    from toolpost.cli.new_source import connect_source, plan_source
    from toolpost.connecting.source_plans import SourceArguments
    from toolpost.contracts.source_kinds import McpTransport

    plan = plan_source(
        SourceArguments(
            words=what,
            name=name,
            env=env or (),
            headers=header or (),
            cwd=cwd,
            transport=McpTransport(transport.value),
        )
    )

    async def work(output: Output) -> int:
        return await connect_source(plan, common.config, output, yes=yes, trust=trust, force=force, dry_run=dry_run)

    run_command(work, common)


def list_presets(common: CommonOptions) -> None:
    """List the presets of `tools connect`."""

    async def work(output: Output) -> int:
        from toolpost.connecting.presets import PACKAGES

        if output.as_json:
            output.document([{"name": name, **_package_document(package)} for name, package in PACKAGES.items()])
            return 0
        rows = [
            (name, f"{one.ecosystem} {one.name} {one.version or '(not published)'}", ", ".join(one.reads))
            for name, one in PACKAGES.items()
        ]
        output.table(["Preset", "Package", "Reads"], rows)
        output.note("`toolpost tools connect NAME` adds one; with --dry-run, it only shows the changes.")
        return 0

    run_command(work, common)


def _package_document(package: Package) -> dict[str, Any]:
    return {
        "ecosystem": package.ecosystem,
        "package": package.name,
        "version": package.version,
        "reads": list(package.reads),
    }


ConnectedName = Annotated[
    str,
    typer.Argument(
        metavar="NAME", help="Name of the source in the configuration.", autocompletion=completion.source_names
    ),
]


def disconnect(common: CommonOptions, name: ConnectedName) -> None:
    """Remove a source from the configuration.

    Removes its entry, and keeps comments and the rest of the file. Prints the removed entry, to paste it back if
    needed. Accounts, runs and artifacts of its tools are kept.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.file_editor import config_path, remove_source

        path = config_path(common.config)
        taken = remove_source(path, name)
        if output.as_json:
            output.document({"status": "ok", "config": str(path), "source": name, "removed": taken, "error": None})
        else:
            output.text(taken.rstrip("\n"))
            output.note(f"removed: {name!r} from {path.name}; this was its entry.")
        return 0

    run_command(work, common)


ImportFile = Annotated[
    Path | None,
    typer.Argument(
        metavar="FILE", help="The file to import, such as .mcp.json. If omitted, lists the files that are found."
    ),
]


def import_servers(
    common: CommonOptions,
    file: ImportFile = None,
    dry_run: DryRun = False,
    yes: Yes = False,
    trust: Trust = False,
) -> None:
    """Import the MCP servers of another program's file.

    Reads .mcp.json and the files of Claude, Cursor, VS Code, Windsurf, Zed and Gemini. Shows every command, asks for
    confirmation, and writes. Secrets are not copied: the configuration refers to variables, and the command reports
    which to set. Starts nothing, unless you confirm to see the tool annotations or give --trust.
    """

    async def work(output: Output) -> int:
        from toolpost.cli.new_source import import_file, list_importable

        if file is None:
            return list_importable(Path.cwd(), output)
        return await import_file(file, common.config, output, yes=yes, trust=trust, dry_run=dry_run)

    run_command(work, common)
