"""A command line as a source of tools: the commands that are written down, and no other."""

from __future__ import annotations

import os
import shlex
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.auth.static import secrets_of
from toolpost.catalog.declared import declared_spec
from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.config import AuthType
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import ToolCategory
from toolpost.policy.redaction import Redactor
from toolpost.schema.secrets import is_secret_name
from toolpost.sources.cli.results import output_of
from toolpost.sources.cli.telling import LineTelling
from toolpost.sources.cli.template import Template, read_template, unused
from toolpost.wire.commands import Commands, Limits
from toolpost.wire.environment import child_environment
from toolpost.wire.launch import Launch, locate

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from toolpost.contracts.calls import AuthorizedCall, Credential, ToolOutput
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.options import CliTool
    from toolpost.contracts.questions import Question
    from toolpost.contracts.spec import ToolSpec

_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_TOLD_STDOUT = frozenset({"auto", "lines", "text"})
_UNTIL_CANCELLED_S = 24 * 3600.0  # A call has its deadline from whoever runs it, and is cancelled then.


class Plan(NamedTuple):
    """One tool as it was written down, and as it is run."""

    tool: CliTool
    template: Template
    timeout_s: float


class CommandTool:
    """One command as a tool."""

    __slots__ = ("_source", "plan", "spec")

    def __init__(self, spec: ToolSpec, plan: Plan, source: CliSource) -> None:
        self.spec = spec
        self.plan = plan
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run it; what fails is raised."""
        output = await self._source.run(self.plan, params, timeout_s=self.plan.timeout_s, context=lambda: context)
        return ToolResult(success=True, result=output.content, content_text=output.text)


class CliSource:
    """The tools under `cli.tools`, each a program with words, run without a shell.

    A command sees the few variables that programs need, those that the source gives it, and no others.
    """

    def __init__(self, config: ExternalToolConfig, *, credential: Credential = NO_CREDENTIAL) -> None:
        self.config = config
        self._commands = Commands()
        self._limit = config.cli.max_output_bytes
        self._env = _environment(config)
        self._redactor = Redactor(_secrets(config, credential))
        self.problems: Sequence[str] = ()

    @property
    def name(self) -> str:
        """The namespace of its tools."""
        return self.config.name

    async def discover(self) -> Sequence[CommandTool]:
        """The tools that are written down; the program has to be there, and nothing is run."""
        config = self.config
        if config.auth_type is not AuthType.NONE:
            raise ConfigError(
                f"source {self.name!r}: a command has no place for auth_type {config.auth_type.value!r}; "
                "hand the secret on in a variable, such as env: {TOKEN: '${TOKEN}'}"
            )
        fixed = self._fixed_words()
        locate(Launch(argv=fixed, env=self._env, cwd=config.cwd))
        problems = [] if config.cli.tools else [f"source {self.name!r}: there are no tools under cli.tools"]
        found: list[CommandTool] = []
        for name, tool in config.cli.tools.items():
            if not config.includes(name):
                continue
            try:
                found.append(self._tool(name, tool, fixed, problems))
            except ConfigError as error:
                problems.append(f"source {self.name!r}: tool {name!r} is left out: {error}")
        self.problems = problems
        return found

    def _fixed_words(self) -> tuple[str, ...]:
        try:
            return tuple(shlex.split(self.config.connection))
        except ValueError as error:
            raise ConfigError(
                f"source {self.name!r}: its connection is no command line ({error}); check the quotes"
            ) from error

    def _tool(self, name: str, tool: CliTool, fixed: Sequence[str], problems: list[str]) -> CommandTool:
        template, schema = read_template(tool, fixed)
        if useless := unused(template, schema):
            problems.append(f"source {self.name!r}: tool {name!r} does nothing with {', '.join(map(repr, useless))}")
        spec = declared_spec(
            self.name,
            name,
            tool=tool.model_copy(update={"input_schema": schema}),
            kind="cli",
            category=ToolCategory.SYSTEM,
        )
        return CommandTool(spec, Plan(tool, template, tool.timeout_s or self.config.timeout_s), self)

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run one call."""
        plan = cast("CommandTool", call.tool).plan
        return await self.run(plan, call.arguments, timeout_s=_UNTIL_CANCELLED_S, context=call.context)

    async def run(
        self, plan: Plan, arguments: dict[str, Any], *, timeout_s: float, context: Callable[[], ToolContext]
    ) -> ToolOutput:
        """Run a command to its end; its lines are told as progress."""
        tool, argv = plan.tool, plan.template.argv(arguments)
        launch = Launch(argv=argv, env=self._env, cwd=self.config.cwd)
        telling = LineTelling(context, self._redactor.text, stdout=tool.output in _TOLD_STDOUT)
        try:
            done = await self._commands.run(
                launch, Limits(timeout_s, self._limit), stdin=plan.template.input(arguments), on_line=telling.line
            )
        finally:
            telling.end()
        return output_of(
            done, name=argv[0], kind=tool.output, success_codes=tool.success_codes, redact=self._redactor.text
        )

    async def close(self) -> None:
        """End every command that still runs; safe to call twice."""
        await self._commands.close()


def _environment(config: ExternalToolConfig) -> dict[str, str]:
    handed_on = (*_LOCALE, *config.cli.pass_env)
    given = {name: os.environ[name] for name in handed_on if name in os.environ}
    return child_environment({**given, **config.env})


def _secrets(config: ExternalToolConfig, credential: Credential) -> set[str]:
    passed = {os.environ.get(name, "") for name in config.cli.pass_env if is_secret_name(name)}
    return secrets_of(config, credential) | passed
