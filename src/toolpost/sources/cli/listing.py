"""What is run for each tool: as an operator wrote it, as a manual describes it, or one with the schema of the other."""

from __future__ import annotations

from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.contracts.config import CliTool
from toolpost.contracts.errors import ConfigError, did_you_mean

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.sources import DescribedCommand

_MOST_NAMES = 10
WHOLE_COMMAND = "call"


class ListedCommand(NamedTuple):
    """A tool, the fixed words before its own, and what only it runs with; `described` is where its words are from.

    With `takes_options` its arguments may begin with a dash.
    """

    tool: CliTool
    fixed: tuple[str, ...]
    described: DescribedCommand | None = None
    takes_options: bool = False


class Listing:
    """The commands of one source; `fixed` are the words of its connection, none where a manual is all it has."""

    def __init__(
        self, config: ExternalToolConfig, fixed: tuple[str, ...] | None, described: Sequence[DescribedCommand] | None
    ) -> None:
        self._config = config
        self._fixed = fixed
        self._described = None if described is None else {command.name: command for command in described}

    def names(self) -> list[str]:
        """All of them that the filters let in; where neither tools nor a manual are given, the program itself."""
        every = dict.fromkeys([*self._config.cli.tools, *(self._described or ())])
        if self._described is None and not every:
            every = dict.fromkeys([WHOLE_COMMAND])
        return [name for name in every if self._config.includes(name)]

    def of(self, name: str) -> ListedCommand:
        """One of them; a ConfigError is the sentence that says why it is left out."""
        written = self._config.cli.tools.get(name)
        if self._described is None and not self._config.cli.tools:
            return ListedCommand(_whole_command(self._program(name)), self._program(name), takes_options=True)
        described = (self._described or {}).get(name)
        if described is None:
            return self._as_written(name, written or CliTool())
        if written is not None and "args" in written.model_fields_set:
            return ListedCommand(_merged(written, described), self._program(name))
        if described.fault:
            raise ConfigError(described.fault)
        return ListedCommand(_merged(written, described), (), described)

    def _as_written(self, name: str, tool: CliTool) -> ListedCommand:
        known = self._described
        if known is not None and "input_schema" not in tool.model_fields_set:
            raise _left_out(name, f"the manual has no such tool{_instead(name, known)}, or write its input_schema")
        return ListedCommand(tool, self._program(name))

    def _program(self, name: str) -> tuple[str, ...]:
        if self._fixed is None:
            raise _left_out(name, "its args need a program before them; write it as the connection of the source")
        return self._fixed


def _whole_command(fixed: Sequence[str]) -> CliTool:
    """A tool that runs the connection with any words behind it; nobody says what that does, so a person is asked.

    Its description names the program alone: the other words of a connection may be secret.
    """
    words = {"type": "array", "items": {"type": "string"}, "description": "Words after the command, options included"}
    return CliTool(
        description=f"Run `{PurePath(fixed[0]).name}` with these arguments.",
        args=["{args}"],
        input_schema={"type": "object", "properties": {"args": words}},
    )


def _left_out(name: str, why: str) -> ConfigError:
    return ConfigError(f"tool {name!r} is left out: {why}")


def _instead(name: str, known: Mapping[str, Any]) -> str:
    if near := did_you_mean(name, known):
        return f"; {near} Correct its name"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"; there are: {', '.join([*known][:_MOST_NAMES])}{more}. Correct its name"


def _merged(written: CliTool | None, described: DescribedCommand) -> CliTool:
    """What an operator wrote, and from the manual what they did not."""
    found: dict[str, Any] = {
        "description": described.description,
        "output_schema": described.output_schema,
        "tags": list(described.tags),
        "args": list(described.args),
    }
    if described.input_schema is not None:
        found["input_schema"] = described.input_schema
    own = {} if written is None else {name: getattr(written, name) for name in written.model_fields_set}
    return CliTool(**{**found, **own})
