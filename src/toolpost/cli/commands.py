"""Commands and groups whose help and errors say things in plain words, whole."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import typer
from typer.core import TyperCommand, TyperGroup

from toolpost.schema.pydantic_words import in_plain_words

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
            error.message = in_plain_words(error.message)
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
