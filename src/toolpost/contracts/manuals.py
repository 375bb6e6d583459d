"""Commands in manuals of other formats, for the sources that run them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct, field

from toolpost.contracts.records import represent
from toolpost.contracts.spec import JsonSchema


class DescribedCommand(Struct, frozen=True, kw_only=True):
    """One command of a manual; `args` are all words of the command, with `{name}` for an argument.

    If the manual has no command that may run, `args` is empty and `fault` contains the reason. `input_schema` is None
    if the manual does not describe the arguments.
    """

    name: str
    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    args: tuple[str, ...] = ()
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    cwd: str | None = None
    secrets: tuple[str, ...] = ()
    fault: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("args", "env", "secrets"))


class DescribedCommands(NamedTuple):
    """The commands of a manual, and the problems of its unreadable parts."""

    commands: Sequence[DescribedCommand] = ()
    problems: Sequence[str] = ()
