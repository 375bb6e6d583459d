"""The `toolpost` program: its top-level commands and groups."""

from __future__ import annotations

from copy import copy
from functools import cache
from importlib import import_module
from os import environ
from typing import Annotated, Any

import typer

from toolpost import __version__
from toolpost.cli.commands import Commands, CommonOptions
from toolpost.cli.documents import document_hint
from toolpost.cli.runner import freeze_modules, run_command

# Groups and commands by name, in the order of the help: the module below `toolpost.cli`, and its attribute.
_GROUPS = {
    "tools": ("tools", "app"),
    "pending": ("pending", "app"),
    "accounts": ("accounts", "app"),
    "runs": ("runs", "app"),
    "artifacts": ("artifacts", "app"),
    "config": ("diagnostics", "config_app"),
    "lock": ("lock", "app"),
    "keys": ("keys", "app"),
    "users": ("users", "app"),
    "db": ("database", "app"),
    "workflow": ("workflow", "app"),
    "schedule": ("schedule", "app"),
}
_COMMANDS = {
    "new": ("new_project", "new"),
    "run": ("agent", "run_agent"),
    "chat": ("agent", "chat"),
    "import": ("connect", "import_servers"),
    "events": ("events", "events"),
    "status": ("status", "status"),
    "doctor": ("diagnostics", "doctor"),
    "lint": ("lint", "lint"),
    "serve": ("serve", "serve"),
    "up": ("serve", "up"),
    "worker": ("worker", "worker"),
    "open": ("console", "open_console"),
    "table": ("table", "table"),
}
_EXIT_CODES = (
    "Exit codes: 0 completed, 1 failed, 2 wrong command line, 3 paused until a person answers, 130 interrupted."
)
_COMPLETING = "_TOOLPOST_COMPLETE"  # a shell asks for words by this variable


def run(arguments: list[str]) -> int:
    """Run a command line and return its exit code instead of leaving the process."""
    first = arguments[0] if arguments and _COMPLETING not in environ else None
    name = first if first in _GROUPS or first in _COMMANDS else None
    command = _command(name, arguments[1] if name in _GROUPS and len(arguments) > 1 else None)
    freeze_modules()
    try:
        command(arguments, prog_name="toolpost")
    except SystemExit as leaving:
        return leaving.code if isinstance(leaving.code, int) else int(leaving.code is not None)
    return 0


@cache
def _command(only: str | None, subcommand: str | None) -> Any:
    """Build the command, once: Typer reads the signatures of all commands for it."""
    return typer.main.get_command(make_app(only, subcommand))


def make_app(only: str | None = None, subcommand: str | None = None) -> Commands:
    """Create the program with all groups and commands, or with one of them, which loads the modules of no other.

    Of that group, `subcommand` is the only one, where there is one of that name.
    """
    app = Commands(
        name="toolpost",
        help="Any tool, one contract, one safe call.",
        epilog=_EXIT_CODES if only is not None else f"{_EXIT_CODES}\n\nDocuments begin with {document_hint()}",
        no_args_is_help=True,
        context_settings={"help_option_names": ["-h", "--help"]},
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        add_completion=only is None,
    )
    # Options before a command are not of one that comes first, and Typer takes a moment for each that it knows.
    app.callback()(_everywhere if only is None else _no_options)
    if only is None:
        for name, command in {"help": _help, "demo": _demo, "bench": _bench}.items():
            app.command(name)(command)
    for name, (module, attribute) in _GROUPS.items():
        if only in (None, name):
            app.add_typer(_reduced(_load(module, attribute), subcommand), name=name)
    for name, (module, attribute) in _COMMANDS.items():
        if only in (None, name):
            app.command(name)(_load(module, attribute))
    return app


def _reduced(group: Commands, subcommand: str | None) -> Commands:
    """Return a group with one of its commands alone; as it is where it has none of that name."""
    named = [command for command in group.registered_commands if command.name == subcommand is not None]
    if not named:
        return group
    reduced = copy(group)
    reduced.registered_commands = named
    return reduced


def _load(module: str, attribute: str) -> Any:
    return getattr(import_module(f"toolpost.cli.{module}"), attribute)


def _no_options() -> None:
    """Have the command named, also where it is the only one."""


def _everywhere(
    version: Annotated[bool, typer.Option("--version", "-V", help="Show the version and exit.", is_eager=True)] = False,
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


def _help(
    words: Annotated[list[str] | None, typer.Argument(metavar="[COMMAND]", help="The command to explain.")] = None,
) -> None:
    """Show help for a command, or list all commands."""
    raise typer.Exit(run([*(words or ()), "--help"]))


def _demo(common: CommonOptions) -> None:
    """Run a short demo in a temporary folder.

    Lists and calls tools, and shows calls that are rejected, paused, approved and completed.
    """
    from toolpost.cli import demo

    raise typer.Exit(demo.run(json=common.json))


def _bench(
    common: CommonOptions,
    quick: Annotated[bool, typer.Option("--quick", help="Measure less precisely, in a fraction of the time.")] = False,
) -> None:
    """Measure the cost of a call on this machine."""
    from functools import partial

    from toolpost.cli.bench import bench

    run_command(partial(bench, quick=quick), common)
