"""Commands as a manual describes them, handed from whoever reads manuals to whoever runs commands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.spec import JsonSchema


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribedCommand:
    """One tool of a manual; `args` are all words of its command, with `{name}` where an argument goes.

    Where the manual has no command for it that may be run, there are none, and `fault` is the sentence that says why.
    `input_schema` is None where the manual does not describe the arguments.
    """

    name: str
    description: str = ""
    input_schema: JsonSchema | None = None
    output_schema: JsonSchema | None = None
    tags: tuple[str, ...] = ()
    args: tuple[str, ...] = field(default=(), repr=False)
    env: Mapping[str, str] = field(default_factory=dict[str, str], repr=False)
    cwd: str | None = None
    secrets: tuple[str, ...] = field(default=(), repr=False)
    fault: str = ""


class DescribedCommands(NamedTuple):
    """What a manual describes, and what of it could not be read."""

    commands: Sequence[DescribedCommand] = ()
    problems: Sequence[str] = ()
