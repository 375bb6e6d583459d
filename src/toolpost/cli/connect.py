"""`toolpost tools connect`, `disconnect`, `presets` and `toolpost import`: sources of the configuration file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from toolpost.cli import completion
from toolpost.cli.commands import CommonOptions
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
        help="A preset, a URL, a document's file, or a command: in quotes, or its words after --.",
        autocompletion=completion.preset_names,
    ),
]
Name = Annotated[
    str | None, typer.Option("--name", metavar="NAME", help="The source's name, instead of one made from WHAT.")
]
Env = Annotated[
    list[str] | None,
    typer.Option("--env", metavar="NAME[=VALUE]", help="A variable for the program; NAME alone hands on your own."),
]
Header = Annotated[
    list[str] | None, typer.Option("--header", metavar="'NAME: VALUE'", help="A header for each request to the URL.")
]
Cwd = Annotated[Path | None, typer.Option("--cwd", metavar="DIR", help="The folder to start the program in.")]
TransportOption = Annotated[
    TransportChoice, typer.Option("--transport", help="How an MCP server is spoken to; a URL is not asked what it is.")
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask whether this may be written and started.")]
Trust = Annotated[
    bool, typer.Option("--trust", help="Let what it claims of its tools count, and pin them in toolpost.lock.")
]
Force = Annotated[bool, typer.Option("--force", help="Write it although something is missing that it needs to start.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Show what would be written; write and start nothing.")]


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

    It is an MCP server, an API, a UTCP manual, an n8n or a file of Python tools.
    A URL is asked what it is, a file is told by its content; what is not recognised, or is known
    to lack something, is not written. Shows the exact command or address and asks first. Secrets are
    not written: the configuration refers to variables, which you are told to set. What the source
    claims of its tools is shown, and counts only after another yes, or with --trust. Exits 1 when
    the server cannot be connected; it is in the file then all the same.
    """
    from toolpost.cli.new_source import ConnectArguments, connect_source, plan_source
    from toolpost.contracts.source_kinds import McpTransport

    plan = plan_source(
        ConnectArguments(
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
    """List the servers that `tools connect` knows by name."""

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
        output.note("`toolpost tools connect NAME` adds one; with --dry-run it only shows what would be written.")
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
    typer.Argument(metavar="NAME", help="The source, as the file names it.", autocompletion=completion.source_names),
]


def disconnect(common: CommonOptions, name: ConnectedName) -> None:
    """Take a source out of the configuration.

    Its entry goes, comments and all the rest of the file stay; what was taken out is shown, to be pasted back.
    Accounts, runs and artifacts of its tools are kept.
    """

    async def work(output: Output) -> int:
        from toolpost.configuration.file_editor import config_path, remove_source

        path = config_path(common.config)
        taken = remove_source(path, name)
        if output.as_json:
            output.document({"status": "ok", "config": str(path), "source": name, "removed": taken, "error": None})
        else:
            output.text(taken.rstrip("\n"))
            output.note(f"{name!r} is out of {path.name}; this was its entry.")
        return 0

    run_command(work, common)


ImportFile = Annotated[
    Path | None,
    typer.Argument(metavar="FILE", help="Such as .mcp.json; without one, those that can be found are listed."),
]
ImportYes = Annotated[bool, typer.Option("--yes", help="Do not ask whether this may be written.")]


def import_servers(
    common: CommonOptions,
    file: ImportFile = None,
    dry_run: DryRun = False,
    yes: ImportYes = False,
    trust: Trust = False,
) -> None:
    """Take over the MCP servers of another program's file.

    Reads .mcp.json and the files of Claude, Cursor, VS Code, Windsurf, Zed and
    Gemini. Shows every command, asks, and writes. Secrets are not copied: the
    configuration refers to variables, which you are told to set. Starts nothing, unless you
    want to see what the tools claim, or take that on trust with --trust.
    """

    async def work(output: Output) -> int:
        from toolpost.cli.new_source import import_file, list_importable

        if file is None:
            return list_importable(Path.cwd(), output)
        return await import_file(file, common.config, output, yes=yes, trust=trust, dry_run=dry_run)

    run_command(work, common)
