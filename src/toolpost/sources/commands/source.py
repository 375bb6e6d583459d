"""Tool source for command lines: each tool runs one command."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from toolpost.auth.credentials import secrets_of
from toolpost.catalog.specs import declared_spec
from toolpost.contracts import errors
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.nearest_names import did_you_mean
from toolpost.contracts.outcomes import ToolResult, now_ms
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.spec import JsonSchema, ToolCategory, ToolSpec, ToolTarget
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import CommandLimits, CommandRunner
from toolpost.processes.json_documents import check_large_json
from toolpost.processes.launch import Launch, child_environment, locate
from toolpost.schema.json_size import SMALL, JsonLimits
from toolpost.schema.secrets import drop_secrets, is_secret_name
from toolpost.sources.base import BaseSource, Services
from toolpost.sources.commands.options import CliOptions, CliTool
from toolpost.sources.commands.output import LineProgress, parse_output
from toolpost.sources.commands.template import CommandTemplate, parse_template, unused_arguments

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.manuals import DescribedCommand

_MOST_NAMES = 10
WHOLE_COMMAND = "call"
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_JSON_FORMATS = frozenset({"auto", "json"})
_PROGRESS_FORMATS = frozenset({"auto", "lines", "text"})
_MOST_REASONS = 3
_UNTIL_CANCELLED_S = 24 * 3600.0  # The caller sets the deadline of a call and cancels it then.


class CliSource(BaseSource):
    """Source of the tools in `options.tools` and in a manual, each a program that runs without a shell.

    Without either, the connection itself is one tool, `call`, that takes the words after it.
    A command gets only the variables that programs need and those that the source defines.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config)
        options = config.read_options(CliOptions)
        passed = ((name, os.environ[name]) for name in options.pass_env if name in os.environ)
        self.secrets = frozenset(value for name, value in passed if value and is_secret_name(name))
        self._describe = None if options.manual is None else services.describe_commands
        self._running = CommandRunner()
        self._limit = options.max_output_bytes
        inherited = {name: os.environ[name] for name in (*_LOCALE, *options.pass_env) if name in os.environ}
        self._env = child_environment({**inherited, **config.env})
        self._redactor = Redactor({*secrets_of(config, services.credential), *self.secrets})

    async def discover(self) -> Sequence[CommandTool]:
        """Build the tools without running anything; raise an error if the program is not installed."""
        if self.config.auth_type is not AuthType.NONE:
            raise errors.ConfigError(
                f"source {self.name!r}: a command does not support auth_type {self.config.auth_type.value!r}; "
                "pass the secret in a variable, such as env: {TOKEN: '${TOKEN}'}"
            )
        described = None if self._describe is None else await self._describe(self.config)
        fixed = self._fixed_words()
        if fixed is not None:
            locate(Launch(argv=fixed, env=self._env, cwd=self.config.cwd))
        commands = CommandList(self.config, fixed, None if described is None else described.commands)
        problems = [] if described is None else [*described.problems]
        tools: list[CommandTool] = []
        for name in commands.names():
            try:
                tools.append(self._tool(name, commands.find(name), problems))
            except errors.ToolError as error:
                problems.append(str(error))
        if described is not None and problems and not tools:
            raise errors.ConfigError(f"no tool can be used: {'; '.join(problems[:_MOST_REASONS])}")
        self.problems = [f"source {self.name!r}: {problem}" for problem in problems]
        return tools

    def _fixed_words(self) -> tuple[str, ...] | None:
        """Split the connection into words; None if the source has only a manual."""
        if self.config.connection == self.config.read_options(CliOptions).manual:
            return None
        try:
            return tuple(shlex.split(self.config.connection))
        except ValueError as error:
            raise errors.ConfigError(
                f"source {self.name!r}: its connection is not a command line ({error}); check the quotes"
            ) from error

    def _tool(self, name: str, command: ListedCommand, problems: list[str]) -> CommandTool:
        plan, schema = self._plan(name, command)
        if useless := unused_arguments(plan.template, schema):
            problems.append(f"tool {name!r} does nothing with {', '.join(map(repr, useless))}")
        tool = plan.tool.model_copy(update={"input_schema": schema})
        own = self.config.env if command.described is None else {**self.config.env, **command.described.env}
        target = ToolTarget.of(
            "command",
            shlex.join((*command.fixed, *tool.args)),
            words=[command.fixed, tool.args],
            stdin=tool.stdin,
            cwd=plan.cwd,
            env=drop_secrets(own),
        )
        spec = declared_spec(self.name, name, tool=tool, kind="cli", category=ToolCategory.SYSTEM, target=target)
        return CommandTool(spec, plan, self)

    def _plan(self, name: str, command: ListedCommand) -> tuple[CommandPlan, JsonSchema]:
        tool, described = command.tool, command.described
        try:
            template, schema = parse_template(tool, command.fixed, is_described=described is not None)
            if command.takes_options:
                template = template._replace(words=tuple(word._replace(is_free=True) for word in template.words))
            env, cwd = self._env, self.config.cwd
            if described is not None:
                self.secrets |= secrets_of(self.config.model_copy(update={"env": described.env}))
                self._redactor.learn({*described.secrets, *self.secrets})
                env, cwd = {**env, **described.env}, described.cwd if cwd is None else cwd
                locate(Launch(argv=(template.words[0].text,), env=env, cwd=cwd))
        except errors.ToolError as error:
            raise errors.ConfigError(f"tool {name!r} is skipped: {error}") from None
        return CommandPlan(tool, template, tool.timeout_s or self.config.timeout_s, env, cwd), schema

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run the command of one call; the caller sets the deadline."""
        plan = cast("CommandTool", call.tool).plan
        return await self.run(plan, call.arguments, timeout_s=_UNTIL_CANCELLED_S, context=call.context)

    async def run(
        self, plan: CommandPlan, arguments: dict[str, Any], *, timeout_s: float, context: Callable[[], ToolContext]
    ) -> ToolOutput:
        tool, argv = plan.tool, plan.template.argv(arguments)
        launch = Launch(argv=argv, env=plan.env, cwd=plan.cwd)
        progress = LineProgress(context, self._redactor.text, stdout=tool.output in _PROGRESS_FORMATS)
        try:
            done = await self._running.run(
                launch,
                CommandLimits(timeout_s, self._limit),
                stdin=plan.template.input(arguments),
                on_line=progress.line,
            )
        finally:
            progress.end()
        if tool.output in _JSON_FORMATS and len(done.stdout) > SMALL:
            done = done._replace(stdout=await check_large_json(done.stdout, JsonLimits.of(self.config)))
        return parse_output(
            done, name=argv[0], kind=tool.output, success_codes=tool.success_codes, redact=self._redactor.text
        )

    async def close(self) -> None:
        await self._running.close()


class CommandTool:
    """Tool that runs one command."""

    __slots__ = ("_source", "plan", "spec")

    def __init__(self, spec: ToolSpec, plan: CommandPlan, source: CliSource) -> None:
        self.spec = spec
        self.plan = plan
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        started = now_ms()
        output = await self._source.run(self.plan, params, timeout_s=self.plan.timeout_s, context=lambda: context)
        return ToolResult.completed(output.content, output.text, started_at=started)

    def describe_call(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Return the command of a call, with the names of its variables."""
        template = self.plan.template
        stdin = template.input(arguments)
        return {
            "kind": "command",
            "argv": list(template.argv(arguments)),
            "cwd": self.plan.cwd,
            "env_names": sorted(self._source.config.env),
            "stdin": stdin.decode("utf-8", "replace") if template.stdin is not None else None,
        }


class CommandPlan(NamedTuple):
    """A configured tool with its parsed template, timeout, environment and working directory."""

    tool: CliTool
    template: CommandTemplate
    timeout_s: float
    env: Mapping[str, str]
    cwd: str | None

    def __repr__(self) -> str:
        return f"CommandPlan({len(self.template.words)} words)"


class ListedCommand(NamedTuple):
    """A tool with the fixed words before its own, and its description in the manual, if there is one.

    With `takes_options`, its arguments may begin with a dash.
    """

    tool: CliTool
    fixed: tuple[str, ...]
    described: DescribedCommand | None = None
    takes_options: bool = False


class CommandList:
    """Commands of one source; `fixed` are the words of its connection, None if the source has only a manual."""

    def __init__(
        self, config: ExternalToolConfig, fixed: tuple[str, ...] | None, described: Sequence[DescribedCommand] | None
    ) -> None:
        self._config = config
        self._fixed = fixed
        self._described = None if described is None else {command.name: command for command in described}

    def names(self) -> list[str]:
        """Return the names that the filters include; the program itself if there are neither tools nor a manual."""
        every = dict.fromkeys([*self._config.read_options(CliOptions).tools, *(self._described or ())])
        if self._described is None and not every:
            every = dict.fromkeys([WHOLE_COMMAND])
        return [name for name in every if self._config.includes(name)]

    def find(self, name: str) -> ListedCommand:
        """Return a command by name; raise a ConfigError with the reason if it is skipped."""
        tool = self._config.read_options(CliOptions).tools.get(name)
        if self._described is None and not self._config.read_options(CliOptions).tools:
            return ListedCommand(_whole_command(self._program(name)), self._program(name), takes_options=True)
        described = (self._described or {}).get(name)
        if described is None:
            return self._find_configured(name, tool or CliTool())
        if tool is not None and "args" in tool.model_fields_set:
            return ListedCommand(_merge_tool(tool, described), self._program(name))
        if described.fault:
            raise errors.ConfigError(described.fault)
        return ListedCommand(_merge_tool(tool, described), (), described)

    def _find_configured(self, name: str, tool: CliTool) -> ListedCommand:
        descriptions = self._described
        if descriptions is not None and "input_schema" not in tool.model_fields_set:
            raise _left_out(
                name, f"the manual has no such tool{_instead(name, descriptions)}, or write its input_schema"
            )
        return ListedCommand(tool, self._program(name))

    def _program(self, name: str) -> tuple[str, ...]:
        if self._fixed is None:
            raise _left_out(name, "its args need a program before them; write it as the connection of the source")
        return self._fixed


def _whole_command(fixed: Sequence[str]) -> CliTool:
    """Declare a tool that runs the connection with any words after it; its effects are unknown."""
    # Without declared effects, the policy requires approval. The description contains only the program:
    # other words of a connection may be secret.
    words = {"type": "array", "items": {"type": "string"}, "description": "Words after the command, options included"}
    return CliTool(
        description=f"Run `{PurePath(fixed[0]).name}` with these arguments.",
        args=["{args}"],
        input_schema={"type": "object", "properties": {"args": words}},
    )


def _left_out(name: str, why: str) -> errors.ConfigError:
    return errors.ConfigError(f"tool {name!r} is skipped: {why}")


def _instead(name: str, known: Mapping[str, Any]) -> str:
    if near := did_you_mean(name, known):
        return f"; {near} Correct its name"
    more = ", ..." if len(known) > _MOST_NAMES else ""
    return f"; there are: {', '.join([*known][:_MOST_NAMES])}{more}. Correct its name"


def _merge_tool(tool: CliTool | None, described: DescribedCommand) -> CliTool:
    """Merge a tool of the configuration over its description in the manual."""
    fields: dict[str, Any] = {
        "description": described.description,
        "output_schema": described.output_schema,
        "tags": list(described.tags),
        "args": list(described.args),
    }
    if described.input_schema is not None:
        fields["input_schema"] = described.input_schema
    own = {} if tool is None else {name: getattr(tool, name) for name in tool.model_fields_set}
    return CliTool(**{**fields, **own})
