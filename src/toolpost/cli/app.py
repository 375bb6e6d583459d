"""The `toolpost` program: its top-level commands and groups."""

from __future__ import annotations

from functools import cache
from typing import Annotated, Any

import typer

from toolpost import __version__
from toolpost.cli import (
    accounts,
    agent,
    chat,
    connect,
    diagnostics,
    history,
    keys,
    lock,
    pending,
    serve,
    table,
    tools,
    workflow,
)
from toolpost.cli.commands import Commands, Config, Json, User
from toolpost.cli.runner import run_command

app = Commands(
    name="toolpost",
    help="Any tool, one contract, one safe call.",
    epilog="Exit codes: 0 completed, 1 failed, 2 wrong command line, 3 paused until a person answers, 130 interrupted.",
    no_args_is_help=True,
    context_settings={"help_option_names": ["-h", "--help"]},
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
)


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code instead of leaving the process."""
    try:
        _command()(arguments, prog_name="toolpost")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


@cache
def _command() -> Any:
    """Build the command, once: Typer reads the signatures of all commands for it."""
    return typer.main.get_command(app)


@app.callback()
def _everywhere(
    version: Annotated[
        bool, typer.Option("--version", "-V", help="Show the version and leave.", is_eager=True)
    ] = False,
    config: Annotated[str | None, typer.Option("--config", hidden=True)] = None,
    user: Annotated[str | None, typer.Option("--user", hidden=True)] = None,
    json: Annotated[bool | None, typer.Option("--json", hidden=True)] = None,
) -> None:
    if version:
        typer.echo(f"toolpost {__version__}")
        raise typer.Exit
    for name, value in {"--config": config, "--user": user, "--json": json}.items():
        if value is not None:
            raise typer.BadParameter(f"it goes after the command: toolpost tools list {name}", param_hint=name)


@app.command("help")
def _help(
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]", help="The command to tell about.")] = None,
) -> None:
    """Tell what a command does, or which there are."""
    raise typer.Exit(run([*(words or ()), "--help"]))


@app.command("demo")
def _demo(config: Config = None, user: User = "", json: Json = False) -> None:  # noqa: ARG001 - as every command
    """See it work, in a folder of its own.

    Tools are listed, called, refused, paused, approved and finished.
    """
    from toolpost.cli import demo

    raise typer.Exit(demo.run(json=json))


@app.command("bench")
def _bench(
    quick: Annotated[bool, typer.Option("--quick", help="Rougher figures in a fraction of the time.")] = False,
    config: Config = None,  # noqa: ARG001 - as every command
    user: User = "",  # noqa: ARG001 - as every command
    json: Json = False,
) -> None:
    """Measure what a call costs here."""
    from functools import partial

    from toolpost.cli.bench import bench

    run_command(partial(bench, quick=quick), as_json=json)


app.add_typer(tools.app, name="tools")
app.add_typer(pending.app, name="pending")
app.add_typer(accounts.app, name="accounts")
app.add_typer(history.runs_app, name="runs")
app.add_typer(history.artifacts_app, name="artifacts")
app.add_typer(diagnostics.config_app, name="config")
app.add_typer(lock.app, name="lock")
app.add_typer(keys.app, name="keys")
app.add_typer(workflow.app, name="workflow")
app.command("run")(agent.run_agent)
app.command("chat")(chat.chat)
app.command("import")(connect.import_servers)
app.command("events")(history.events)
app.command("doctor")(diagnostics.doctor)
app.command("serve")(serve.serve)
app.command("up")(serve.up)
app.command("table")(table.table)
