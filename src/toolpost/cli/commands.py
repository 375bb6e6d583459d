"""Typer classes with plain help, and the options that every command takes."""

from __future__ import annotations

import inspect
import re
import shlex
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, cast

import typer
from typer.core import TyperCommand, TyperGroup

from toolpost.contracts.errors import ErrorCategory, ToolError
from toolpost.contracts.principal import LOCAL_TENANT, Principal, login_name

_DECORATED = re.compile(r"^\{(.+)\}(\.\.\.)?$|^\[(\[.+\])\](\.\.\.)?$")
_TYPE = re.compile(r" <(str|path|file|directory|int|int range|float|list\[\w+\])>$")
_PLACEHOLDERS = {"path": "PATH", "file": "FILE", "directory": "DIR", "int": "N", "int range": "N", "float": "N"}
_WHOLE = 1000  # characters of a summary: lines are broken, never cut


class Command(TyperCommand):
    """Command whose help names its arguments without Python types."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _converting_given_values(super().get_params(ctx))

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
            from toolpost.schema.violations import plain_message

            error.message = plain_message(error.message)
            raise


def _converting_given_values(params: Sequence[Any]) -> list[Any]:
    """Return parameters that convert only given values, not defaults that mean no value."""
    # Typer builds a validator for each parameter, given or not, and for the first it imports pydantic, which takes as
    # long as a short command.
    for param in params:
        own = cast("dict[str, Any]", vars(param))
        own.setdefault("process_value", partial(_process_value, param, param.process_value))
    return [*params]


def _process_value(param: Any, convert: Callable[[Any, Any], Any], ctx: Any, value: Any) -> Any:
    source = ctx.get_parameter_source(param.name)
    if value in (None, "") and not param.required and source is not None and source.name == "DEFAULT":
        if value is None and (param.nargs == -1 or getattr(param, "multiple", False)):
            value = ()  # as converting makes of it
        return value if param.callback is None else param.callback(ctx, param, value)
    return convert(ctx, value)


def _named(shown: str, kind: str) -> str:
    """Return an option with a placeholder for its value, an argument by its name alone."""
    if kind == "argument":
        return _TYPE.sub("", shown)
    return _TYPE.sub(lambda found: f" {_PLACEHOLDERS.get(found[1], 'TEXT')}", shown)


class Group(TyperGroup):
    """Group of commands whose summaries are wrapped and never truncated."""

    def get_params(self, ctx: Any) -> list[Any]:
        return _converting_given_values(super().get_params(ctx))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        commands = [(name, self.get_command(ctx, name)) for name in self.list_commands(ctx)]
        rows = [(name, one.get_short_help_str(_WHOLE)) for name, one in commands if one is not None and not one.hidden]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


class Commands(typer.Typer):
    """Typer application of `Group` and `Command`."""

    def __init__(self, **options: Any) -> None:
        super().__init__(cls=Group, **options)

    def command(self, name: str | None = None, **options: Any) -> Callable[[Any], Any]:
        """Register a command; takes the options of `Typer.command`.

        A function with `CommonOptions` as its first parameter is a command with --config, --user and --json.
        """
        register = super().command(name, cls=Command, **options)
        return lambda function: register(_with_common_options(function))

    def callback(self, **options: Any) -> Callable[[Any], Any]:
        """Register the function of the group itself, like `command`."""
        register = super().callback(**options)
        return lambda function: register(_with_common_options(function))


def _with_common_options(function: Callable[..., None]) -> Callable[..., None]:
    signature = inspect.signature(function, eval_str=True)
    own = [*signature.parameters.values()]
    if not own or own[0].annotation is not CommonOptions:
        return function

    def command(config: Path | None, user: str, json: bool, **given: Any) -> None:
        function(CommonOptions(config, user, json), **given)

    common = inspect.signature(_common_options, eval_str=True).parameters.values()
    parameters = [one.replace(kind=one.KEYWORD_ONLY) for one in (*own[1:], *common)]
    command.__name__, command.__doc__, command.__annotations__ = function.__name__, function.__doc__, {}
    command.__signature__ = signature.replace(parameters=parameters)  # type: ignore[attr-defined]
    return command


def _user(ctx: typer.Context, text: str) -> str:
    if not text and not _is_given(ctx):
        return default_user()
    if text.count(":") > 1:
        raise typer.BadParameter(f"{text!r} has more than one colon; write TENANT:USER, such as acme:ann")
    try:
        return str(Principal.parse(text))
    except ValueError:
        raise typer.BadParameter(
            f"{text!r} is not a principal; write TENANT:USER, or USER for the tenant local"
        ) from None


def _is_given(ctx: typer.Context) -> bool:
    """Return whether --user is on the command line, even if empty."""
    source = ctx.get_parameter_source("user")
    return source is not None and source.name == "COMMANDLINE"


def default_user() -> str:
    """Return the principal of the login name, in the local tenant."""
    return f"{LOCAL_TENANT}:{login_name()}"


class CommonOptions(NamedTuple):
    """Options that every command takes; as a string, those that a suggested command needs to act on the same data."""

    config: Path | None = None
    user: str = ""
    json: bool = False

    def __str__(self) -> str:
        words = [] if self.config is None else ["--config", str(self.config)]
        if self.user not in ("", default_user()):
            words += ["--user", self.user]
        return "".join(f" {shlex.quote(word)}" for word in words)

    def for_another_user(self) -> CommonOptions:
        """Return the options with a placeholder for another user of the same tenant."""
        return self._replace(user=f"{Principal.parse(self.user or default_user()).tenant}:NAME")


NO_OPTIONS = CommonOptions()


def describe_user(user: str) -> str:
    """Describe the user of a command, and how a name without a tenant was read."""
    if user == default_user() or Principal.parse(user).tenant != LOCAL_TENANT:
        return user
    return f"{user} (--user is TENANT:USER; without a tenant it is {LOCAL_TENANT}:USER)"


def record_not_found(kind: Literal["run", "artifact"], given_id: str, common: CommonOptions, which: str) -> ToolError:
    """Return the error for a run or artifact that this user does not have."""
    return ToolError(
        f"{kind.capitalize()} {given_id!r} not found for {describe_user(common.user)}. "
        f"`toolpost {kind}s list{common}` shows the {which}.",
        category=ErrorCategory.NON_RETRYABLE_CLIENT,
        code=f"{kind}_not_found",
    )


Config = Annotated[
    Path | None, typer.Option("--config", metavar="FILE", help="The configuration, instead of ./toolpost.yaml.")
]
User = Annotated[
    str,
    typer.Option(
        "--user", metavar="TENANT:USER", help="Principal to act as.", callback=_user, show_default="local:LOGIN"
    ),
]
Yes = Annotated[bool, typer.Option("--yes", help="Do not prompt for confirmation.")]
AllTenants = Annotated[bool, typer.Option("--all-tenants", help="Include all tenants; only for the operator.")]


Json = Annotated[bool, typer.Option("--json", help="Print JSON on stdout and nothing else.")]


def _common_options(config: Config = None, user: User = "", json: Json = False) -> None:
    """Declare the parameters that `_with_common_options` adds."""


def check_operator(user: str, *, all_tenants: bool) -> None:
    """Raise a BadParameter for --all-tenants if the principal is of another tenant than the operator."""
    if all_tenants and Principal.parse(user).tenant != LOCAL_TENANT:
        message = f"only the operator, in the tenant {LOCAL_TENANT}, can use it; omit --user"
        raise typer.BadParameter(message, param_hint="--all-tenants")
