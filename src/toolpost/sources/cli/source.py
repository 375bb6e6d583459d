"""A command line as a source of tools: the commands that are written down, and no other."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.auth.credentials import secrets_of
from toolpost.catalog.specs import declared_spec
from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ConfigError, ToolError
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.spec import ToolCategory, ToolTarget
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import CommandLimits, CommandRunner
from toolpost.processes.launch import Launch, child_environment, locate
from toolpost.schema.secrets import harmless
from toolpost.sources.cli.listing import Listing
from toolpost.sources.cli.output import LineProgress, parse_output
from toolpost.sources.cli.template import Template, read_template, unused
from toolpost.transports.base import BaseSource

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolpost.contracts.calls import AuthorizedCall, ToolOutput
    from toolpost.contracts.config import CliTool, ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.questions import Question
    from toolpost.contracts.sources import DescribedCommands
    from toolpost.contracts.spec import JsonSchema, ToolSpec
    from toolpost.sources.cli.listing import ListedCommand
    from toolpost.transports.base import Services

    Describe = Callable[[], Awaitable[DescribedCommands]]

_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_TOLD_STDOUT = frozenset({"auto", "lines", "text"})
_MOST_REASONS = 3
_UNTIL_CANCELLED_S = 24 * 3600.0  # A call has its deadline from whoever runs it, and is cancelled then.


class CommandPlan(NamedTuple):
    """One tool as it was written down, and as it is run."""

    tool: CliTool
    template: Template
    timeout_s: float
    env: Mapping[str, str]
    cwd: str | None

    def __repr__(self) -> str:
        return f"CommandPlan({len(self.template.words)} words)"


class CommandTool:
    """One command as a tool."""

    __slots__ = ("_source", "plan", "spec")

    def __init__(self, spec: ToolSpec, plan: CommandPlan, source: CliSource) -> None:
        self.spec = spec
        self.plan = plan
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it; what fails is raised."""
        started = now_ms()
        output = await self._source.run(self.plan, params, timeout_s=self.plan.timeout_s, context=lambda: context)
        return ToolResult.completed(output.content, output.text, started_at=started)


class CliSource(BaseSource):
    """The tools under `cli.tools` and those that a manual describes, each a program run without a shell.

    Without either, the connection itself is one tool, `call`, that takes the words behind it.

    A command sees the few variables that programs need, those that the source gives it, and no others.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config)
        self._describe = None if config.cli.manual is None else services.describe_commands
        self._running = CommandRunner()
        self._limit = config.cli.max_output_bytes
        self._env = child_environment(_given(config))
        self._redactor = Redactor(secrets_of(config, services.credential))

    async def discover(self) -> Sequence[CommandTool]:
        """The tools that are written down; the program has to be there, and nothing is run."""
        self._refuse_credential()
        described = None if self._describe is None else await self._describe(self.config)
        fixed = self._fixed_words()
        if fixed is not None:
            locate(Launch(argv=fixed, env=self._env, cwd=self.config.cwd))
        listing = Listing(self.config, fixed, None if described is None else described.commands)
        problems = [] if described is None else [*described.problems]
        found: list[CommandTool] = []
        for name in listing.names():
            try:
                found.append(self._tool(name, listing.of(name), problems))
            except ToolError as error:
                problems.append(str(error))
        if described is not None and problems and not found:
            raise ConfigError(f"no tool can be used: {'; '.join(problems[:_MOST_REASONS])}")
        self.problems = [f"source {self.name!r}: {problem}" for problem in problems]
        return found

    def _refuse_credential(self) -> None:
        if self.config.auth_type is not AuthType.NONE:
            raise ConfigError(
                f"source {self.name!r}: a command has no place for auth_type {self.config.auth_type.value!r}; "
                "hand the secret on in a variable, such as env: {TOKEN: '${TOKEN}'}"
            )

    def _fixed_words(self) -> tuple[str, ...] | None:
        """The program and its first words; none where the manual is all that the source has."""
        if self.config.connection == self.config.cli.manual:
            return None
        try:
            return tuple(shlex.split(self.config.connection))
        except ValueError as error:
            raise ConfigError(
                f"source {self.name!r}: its connection is no command line ({error}); check the quotes"
            ) from error

    def _tool(self, name: str, command: ListedCommand, problems: list[str]) -> CommandTool:
        plan, schema = self._plan(name, command)
        if useless := unused(plan.template, schema):
            problems.append(f"tool {name!r} does nothing with {', '.join(map(repr, useless))}")
        tool = plan.tool.model_copy(update={"input_schema": schema})
        own = self.config.env if command.described is None else {**self.config.env, **command.described.env}
        target = ToolTarget.of(
            "command",
            shlex.join((*command.fixed, *tool.args)),
            words=[command.fixed, tool.args],
            stdin=tool.stdin,
            cwd=plan.cwd,
            env=harmless(own),
        )
        spec = declared_spec(self.name, name, tool=tool, kind="cli", category=ToolCategory.SYSTEM, target=target)
        return CommandTool(spec, plan, self)

    def _plan(self, name: str, command: ListedCommand) -> tuple[CommandPlan, JsonSchema]:
        tool, described = command.tool, command.described
        try:
            template, schema = read_template(tool, command.fixed, is_described=described is not None)
            if command.takes_options:
                template = template._replace(words=tuple(word._replace(is_free=True) for word in template.words))
            env, cwd = self._env, self.config.cwd
            if described is not None:
                self.secrets |= secrets_of(self.config.model_copy(update={"env": described.env}))
                self._redactor.learn({*described.secrets, *self.secrets})
                env, cwd = {**env, **described.env}, described.cwd if cwd is None else cwd
                locate(Launch(argv=(template.words[0].text,), env=env, cwd=cwd))
        except ToolError as error:
            raise ConfigError(f"tool {name!r} is left out: {error}") from None
        return CommandPlan(tool, template, tool.timeout_s or self.config.timeout_s, env, cwd), schema

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call."""
        plan = cast("CommandTool", call.tool).plan
        return await self.run(plan, call.arguments, timeout_s=_UNTIL_CANCELLED_S, context=call.context)

    async def run(
        self, plan: CommandPlan, arguments: dict[str, Any], *, timeout_s: float, context: Callable[[], ToolContext]
    ) -> ToolOutput:
        """Run a command to its end; its lines are told as progress."""
        tool, argv = plan.tool, plan.template.argv(arguments)
        launch = Launch(argv=argv, env=plan.env, cwd=plan.cwd)
        telling = LineProgress(context, self._redactor.text, stdout=tool.output in _TOLD_STDOUT)
        try:
            done = await self._running.run(
                launch,
                CommandLimits(timeout_s, self._limit),
                stdin=plan.template.input(arguments),
                on_line=telling.line,
            )
        finally:
            telling.end()
        return parse_output(
            done, name=argv[0], kind=tool.output, success_codes=tool.success_codes, redact=self._redactor.text
        )

    async def close(self) -> None:
        """End every command that still runs; safe to call twice."""
        await self._running.close()


def _given(config: ExternalToolConfig) -> dict[str, str]:
    """The variables that only this source's commands see."""
    handed_on = (*_LOCALE, *config.cli.pass_env)
    return {**{name: os.environ[name] for name in handed_on if name in os.environ}, **config.env}
