"""Typer classes with plain help, and the options that every command takes."""

from __future__ import annotations

import json
import re
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple, NoReturn

import typer
from typer.core import TyperCommand, TyperGroup

from toolpost.contracts.principal import LOCAL_TENANT, Principal, login_name
from toolpost.schema.violations import plain_message

if TYPE_CHECKING:
    from collections.abc import Callable


_DECORATED = re.compile(r"^\{(.+)\}(\.\.\.)?$|^\[(\[.+\])\](\.\.\.)?$")
_TYPE = re.compile(r" <(str|path|file|directory|int|int range|float|list\[\w+\])>$")
_PLACEHOLDERS = {"path": "PATH", "file": "FILE", "directory": "DIR", "int": "N", "int range": "N", "float": "N"}
_WHOLE = 1000  # characters of a summary: lines are broken, never cut


class Command(TyperCommand):
    """A command; its usage line and its list of arguments name them and no Python types."""

    def collect_usage_pieces(self, ctx: Any) -> list[str]:
        return [_DECORATED.sub(r"\1\2\3\4", piece) for piece in super().collect_usage_pieces(ctx)]

    def format_options(self, ctx: Any, formatter: Any) -> None:
        records: dict[str, list[tuple[str, str]]] = {"argument": [], "option": []}
        for param in self.get_params(ctx):
            if (record := param.get_help_record(ctx)) is not None:
                records[param.param_type_name].append((_named(record[0], param.param_type_name), record[1]))
        for kind, rows in records.items():
            if rows:
                with formatter.section(f"{kind.capitalize()}s"):
                    formatter.write_dl(rows)

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:  # Typer has pydantic read values, and repeats what it says.
            error.message = plain_message(error.message)
            raise


def _named(shown: str, kind: str) -> str:
    """An option with a word for its value, an argument by its name alone."""
    if kind == "argument":
        return _TYPE.sub("", shown)
    return _TYPE.sub(lambda found: f" {_PLACEHOLDERS.get(found[1], 'TEXT')}", shown)


class Group(TyperGroup):
    """A group of commands; their summaries are broken over lines and not cut off."""

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        found = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in found if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Commands(typer.Typer):
    """A Typer application made of these."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Add a command; all that Typer takes can be said of it."""
        options.setdefault("cls", Command)
        return super().command(name, **options)


def _user(ctx: typer.Context, written: str) -> str:
    if not written and not _is_given(ctx):
        return default_user()
    if written.count(":") > 1:
        raise typer.BadParameter(f"{written!r} has more than one colon; write TENANT:USER, such as acme:ann")
    try:
        return str(Principal.parse(written))
    except ValueError:
        raise typer.BadParameter(f"{written!r} is nobody; write TENANT:USER, or USER for one of local") from None


def _is_given(ctx: typer.Context) -> bool:
    """Whether the option stands on the command line, and be it empty."""
    source = ctx.get_parameter_source("user")
    return source is not None and source.name == "COMMANDLINE"


def default_user() -> str:
    """The person at this machine."""
    return f"{LOCAL_TENANT}:{login_name()}"


class Repeated(NamedTuple):
    """The options that a command shown to people must carry to mean the same as this one; as text, they follow it."""

    config: Path | None = None
    user: str = ""

    def __str__(self) -> str:
        words = [] if self.config is None else ["--config", str(self.config)]
        if self.user not in ("", default_user()):
            words += ["--user", self.user]
        return "".join(f" {shlex.quote(word)}" for word in words)

    def by_another(self) -> Repeated:
        """The same for somebody else of the tenant, whose name is left open."""
        return self._replace(user=f"{Principal.parse(self.user or default_user()).tenant}:NAME")


NO_OPTIONS = Repeated()


def whom(user: str) -> str:
    """Whom a command acted for, and how a name without a tenant was read."""
    if user == default_user() or Principal.parse(user).tenant != LOCAL_TENANT:
        return user
    return f"{user} (--user is TENANT:USER; without a tenant it is {LOCAL_TENANT}:USER)"


Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration, instead of ./toolpost.yaml.")
]
User = Annotated[
    str,
    typer.Option(
        "--user", metavar="TENANT:USER", help="Whom the command acts for.", callback=_user, show_default="local:LOGIN"
    ),
]
Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def read_json(written: str, *, option: str) -> Any:
    """JSON from the command line: written out, `@FILE`, or `-` for stdin; anything else is a wrong command line."""
    try:
        return json.loads(_text(written), parse_constant=_refuse_constant)
    except OSError as error:
        raise typer.BadParameter(f"{error.filename}: {error.strerror}", param_hint=option) from None
    except (ValueError, RecursionError) as error:  # UnicodeDecodeError and JSONDecodeError are ValueErrors.
        raise typer.BadParameter(f"this is not JSON: {error}", param_hint=option) from None


def read_json_or_text(written: str) -> Any:
    """JSON if it is that, else the text itself."""
    try:
        return json.loads(written, parse_constant=_refuse_constant)
    except (ValueError, RecursionError):
        return written


def _text(written: str) -> str:
    if written == "-":
        return sys.stdin.read()
    if written.startswith("@"):
        return Path(written[1:]).read_text(encoding="utf-8")
    return written


def _refuse_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON value")
