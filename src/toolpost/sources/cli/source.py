"""Tool source for command lines: their tools, the templates of their words, how they run, and what they print."""

from __future__ import annotations

import asyncio
import json
import os
import re
import shlex
import signal
from collections import deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import PurePath
from typing import Any, Literal, NamedTuple, cast

from toolpost.auth.credentials import secrets_of
from toolpost.catalog.specs import closed_schema, declared_spec
from toolpost.contracts import errors
from toolpost.contracts.calls import AuthorizedCall, ToolOutput
from toolpost.contracts.config import CliTool, ExternalToolConfig
from toolpost.contracts.context import ToolContext
from toolpost.contracts.lines import RateLimit
from toolpost.contracts.manuals import DescribedCommand
from toolpost.contracts.outcomes import NO_META, ToolResult, now_ms
from toolpost.contracts.questions import Question
from toolpost.contracts.source_kinds import AuthType
from toolpost.contracts.spec import JsonSchema, ToolCategory, ToolSpec, ToolTarget
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import CommandLimits, CommandResult, CommandRunner, Stream
from toolpost.processes.launch import Launch, child_environment, locate
from toolpost.schema.json_size import SMALL, JsonLimits
from toolpost.schema.json_values import is_array, is_object
from toolpost.schema.secrets import drop_secrets
from toolpost.schema.templates import Slot, fill_template, only_slot, slot_names, split_template
from toolpost.transports.base import BaseSource, Services
from toolpost.web.content import parse_json
from toolpost.web.large_json import check_large_json

Format = Literal["auto", "json", "lines", "text", "bytes"]

_OCTETS = "application/octet-stream"
_MAX_ERROR_CHARS = 2000
_LONGEST_LOOK = 4096
_LONGEST_QUOTE = 120
_HOLD_S = 0.2
_MAX_EARLY_LINES = 20
_MAX_LINE_CHARS = 500


class LineProgress:
    """Report the lines of one command as progress.

    Lines are held until the command has run for a moment, because the stdout of a short command is its result and
    not progress. From then on they are reported as they come, within the rate limit.
    """

    def __init__(self, context: Callable[[], ToolContext], redact: Callable[[str], str], *, stdout: bool) -> None:
        self._make_context = context
        self._context: ToolContext | None = None
        self._redact = redact
        self._stdout = stdout
        self._early_lines: deque[tuple[str, Stream]] | None = deque(maxlen=_MAX_EARLY_LINES)
        self._timer = asyncio.get_running_loop().call_later(_HOLD_S, self._begin)
        self._rate_limit = RateLimit()

    def line(self, text: str, stream: Stream) -> None:
        """Report a line, or hold it while the command is young."""
        if not text.strip() or (stream == "stdout" and not self._stdout):
            return
        if self._early_lines is not None:
            self._early_lines.append((text, stream))
        else:
            self._report(text)

    def end(self) -> None:
        """Report the held lines of stderr, which are in no result, when the command has ended."""
        self._timer.cancel()
        lines, self._early_lines = self._early_lines, None
        for text, stream in lines or ():
            if stream == "stderr":
                self._report(text)

    def _begin(self) -> None:
        lines, self._early_lines = self._early_lines, None
        for text, _ in lines or ():
            self._report(text)

    def _report(self, text: str) -> None:
        if not self._rate_limit.allows():
            return
        if self._context is None:
            self._context = self._make_context()
        note = " (lines before this one are left out)" if self._rate_limit.dropped else ""
        self._rate_limit.dropped = 0
        self._context.progress(self._redact(text)[:_MAX_LINE_CHARS] + note)


def parse_output(
    done: CommandResult, *, name: str, kind: Format, success_codes: Collection[int], redact: Callable[[str], str]
) -> ToolOutput:
    """Parse the stdout of a command; raise when its exit code is not one of success."""
    if done.exit_code not in success_codes:
        raise _failure(done, name, redact)
    content, media_type = _content(done, kind, name, redact)
    meta = {"exit_code": done.exit_code} if done.exit_code else NO_META
    return ToolOutput(content, None, media_type, meta)


def _failure(done: CommandResult, name: str, redact: Callable[[str], str]) -> errors.ToolError:
    output = _end(done.stderr.strip() or done.stdout[-4 * _MAX_ERROR_CHARS :].decode("utf-8", "replace"), redact)
    if done.exit_code < 0:
        how = f"Command {name!r} was ended by {_signal_name(-done.exit_code)}"
        return errors.ToolServerError(f"{how}: {output}" if output else how, code="command_killed")
    how = f"Command {name!r} failed with exit code {done.exit_code}"
    return errors.ToolClientError(f"{how}: {output}" if output else f"{how}, and said nothing", code="command_failed")


def _end(text: str, redact: Callable[[str], str]) -> str:
    output = redact(text.strip())
    return output if len(output) <= _MAX_ERROR_CHARS else f"... {output[-_MAX_ERROR_CHARS:]}"


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def _content(done: CommandResult, kind: Format, name: str, redact: Callable[[str], str]) -> tuple[Any, str]:
    stdout, json_type = done.stdout, ToolOutput(None).media_type
    match kind:
        case "bytes":
            return stdout, _OCTETS
        case "json":
            return _json(done, name, redact), json_type
        case "lines":
            text = _decode_output(stdout)
            return [line.removesuffix("\r") for line in text.split("\n")] if text else [], json_type
        case "text":
            return _decode_output(stdout), json_type
        case "auto":
            return _guess_content(stdout, json_type)


def _json(done: CommandResult, name: str, redact: Callable[[str], str]) -> Any:
    if not done.stdout.strip():
        output = _end(done.stderr, redact)
        message = f"; it said: {output}" if output else ""
        raise errors.ToolOutputError(f"command {name!r} wrote nothing to stdout, where JSON was expected{message}")
    try:
        return parse_json(done.stdout)
    except ValueError as error:
        begins = redact(done.stdout[:_LONGEST_LOOK].decode("utf-8", "replace"))[:_LONGEST_QUOTE]
        msg = f"command {name!r} did not write JSON to stdout: {error}. It begins: {begins!r}"
        raise errors.ToolOutputError(msg) from error


def _guess_content(stdout: bytes, json_type: str) -> tuple[Any, str]:
    """Parse an object or an array; other output is text, or bytes where it is no text."""
    if stdout.lstrip()[:1] in (b"{", b"["):
        try:
            return parse_json(stdout), json_type
        except ValueError:
            pass
    try:
        stdout.decode()
    except UnicodeDecodeError:
        return stdout, _OCTETS
    return _decode_output(stdout), json_type


def _decode_output(stdout: bytes) -> str:
    """Decode output without its last line ending."""
    return stdout.decode("utf-8", "replace").removesuffix("\n").removesuffix("\r")


_MOST_NAMES = 10
WHOLE_COMMAND = "call"
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TMPDIR", "TZ")
_JSON_FORMATS = frozenset({"auto", "json"})
_PROGRESS_FORMATS = frozenset({"auto", "lines", "text"})
_MOST_REASONS = 3
_UNTIL_CANCELLED_S = 24 * 3600.0  # A call has its deadline from whoever runs it, and is cancelled then.


class ListedCommand(NamedTuple):
    """A tool with the fixed words before its own, and its description in the manual, if it has one.

    With `takes_options` its arguments may begin with a dash.
    """

    tool: CliTool
    fixed: tuple[str, ...]
    described: DescribedCommand | None = None
    takes_options: bool = False


class CommandList:
    """Commands of one source; `fixed` are the words of its connection, None where the source has only a manual."""

    def __init__(
        self, config: ExternalToolConfig, fixed: tuple[str, ...] | None, described: Sequence[DescribedCommand] | None
    ) -> None:
        self._config = config
        self._fixed = fixed
        self._described = None if described is None else {command.name: command for command in described}

    def names(self) -> list[str]:
        """Return the names that the filters include; the program itself where neither tools nor a manual are given."""
        every = dict.fromkeys([*self._config.cli.tools, *(self._described or ())])
        if self._described is None and not every:
            every = dict.fromkeys([WHOLE_COMMAND])
        return [name for name in every if self._config.includes(name)]

    def find(self, name: str) -> ListedCommand:
        """Return a command by name; raise a ConfigError that says why it is left out."""
        tool = self._config.cli.tools.get(name)
        if self._described is None and not self._config.cli.tools:
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
    """Declare a tool that runs the connection with any words behind it; its effects are unknown."""
    # Without declared effects the policy asks a person. The description names the program alone:
    # the other words of a connection may be secret.
    words = {"type": "array", "items": {"type": "string"}, "description": "Words after the command, options included"}
    return CliTool(
        description=f"Run `{PurePath(fixed[0]).name}` with these arguments.",
        args=["{args}"],
        input_schema={"type": "object", "properties": {"args": words}},
    )


def _left_out(name: str, why: str) -> errors.ConfigError:
    return errors.ConfigError(f"tool {name!r} is left out: {why}")


def _instead(name: str, known: Mapping[str, Any]) -> str:
    if near := errors.did_you_mean(name, known):
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


class CommandPlan(NamedTuple):
    """A configured tool with its parsed template, timeout, environment and working directory."""

    tool: CliTool
    template: CommandTemplate
    timeout_s: float
    env: Mapping[str, str]
    cwd: str | None

    def __repr__(self) -> str:
        return f"CommandPlan({len(self.template.words)} words)"


class CommandTool:
    """Tool that runs one command."""

    __slots__ = ("_source", "plan", "spec")

    def __init__(self, spec: ToolSpec, plan: CommandPlan, source: CliSource) -> None:
        self.spec = spec
        self.plan = plan
        self._source = source

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        """Run the command and return its result; raise a ToolError when it fails."""
        started = now_ms()
        output = await self._source.run(self.plan, params, timeout_s=self.plan.timeout_s, context=lambda: context)
        return ToolResult.completed(output.content, output.text, started_at=started)


class CliSource(BaseSource):
    """Source of the tools under `cli.tools` and of those that a manual describes, each a program run without a shell.

    Without either, the connection itself is one tool, `call`, that takes the words behind it.

    A command sees the few variables that programs need, those that the source gives it, and no others.
    """

    def __init__(self, config: ExternalToolConfig, services: Services) -> None:
        super().__init__(config)
        self._describe = None if config.cli.manual is None else services.describe_commands
        self._running = CommandRunner()
        self._limit = config.cli.max_output_bytes
        self._env = child_environment(_environment(config))
        self._redactor = Redactor(secrets_of(config, services.credential))

    async def discover(self) -> Sequence[CommandTool]:
        """Build the tools without running anything; raise when the program is not installed."""
        self._refuse_credential()
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

    def _refuse_credential(self) -> None:
        if self.config.auth_type is not AuthType.NONE:
            raise errors.ConfigError(
                f"source {self.name!r}: a command has no place for auth_type {self.config.auth_type.value!r}; "
                "hand the secret on in a variable, such as env: {TOKEN: '${TOKEN}'}"
            )

    def _fixed_words(self) -> tuple[str, ...] | None:
        """Split the connection into words; None where the source has only a manual."""
        if self.config.connection == self.config.cli.manual:
            return None
        try:
            return tuple(shlex.split(self.config.connection))
        except ValueError as error:
            raise errors.ConfigError(
                f"source {self.name!r}: its connection is no command line ({error}); check the quotes"
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
            raise errors.ConfigError(f"tool {name!r} is left out: {error}") from None
        return CommandPlan(tool, template, tool.timeout_s or self.config.timeout_s, env, cwd), schema

    async def invoke(self, call: AuthorizedCall) -> ToolOutput | Question:
        """Run the command of one call, without a deadline of its own."""
        plan = cast("CommandTool", call.tool).plan
        return await self.run(plan, call.arguments, timeout_s=_UNTIL_CANCELLED_S, context=call.context)

    async def run(
        self, plan: CommandPlan, arguments: dict[str, Any], *, timeout_s: float, context: Callable[[], ToolContext]
    ) -> ToolOutput:
        """Run a command to its end, report its lines as progress, and parse its output."""
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
        """End every command that still runs; safe to call twice."""
        await self._running.close()


def _environment(config: ExternalToolConfig) -> dict[str, str]:
    """Return the environment variables of this source's commands."""
    handed_on = (*_LOCALE, *config.cli.pass_env)
    return {**{name: os.environ[name] for name in handed_on if name in os.environ}, **config.env}


# ---------------------------------------------------------------- templates

_COMPOSED = ("allOf", "anyOf", "oneOf")
_FLAG = re.compile(r"\{([A-Za-z_][\w.-]*)\?([^{}]+)\}")
_MEANT = re.compile(r"\{\{|\}\}|\{[A-Za-z_][\w.-]*(?:\?[^{}]+)?\}")  # what braces are for
_HALF_SLOT = re.compile(r"\{[A-Za-z_]|[\w.-]\}")
_BEGUN_FLAG = re.compile(r"\{[A-Za-z_][\w.-]*\?")
_BRACES = re.compile(r"\{\{|\}\}")
_SCRIPT = re.compile(r"""[\s'"]""")
_END_OF_OPTIONS = "--"
_encode = json.JSONEncoder(ensure_ascii=False, separators=(",", ":")).encode


class Word(NamedTuple):
    """One word of the template, with the option word directly before it.

    `flag` is the argument that decides whether the word is there. `slots` are the arguments in it: a word whose
    argument is absent is left out, its option too. `is_free` allows a value
    that looks like an option, where no program would parse it as one.
    """

    text: str
    slots: tuple[str, ...] = ()
    flag: str | None = None
    option: str | None = None
    is_whole: bool = False
    is_free: bool = True


def parse_words(texts: Iterable[str]) -> list[Word]:
    """Parse the words after those of the connection.

    A `--` counts for the slots that follow it directly: behind another word it may be another program's.
    """
    words: list[Word] = []
    ended = False
    for text in texts:
        word = _parse_word(text, ended=ended)
        ended = text == _END_OF_OPTIONS or (ended and bool(word.slots))
        if word.slots and _begins_with_slot(text) and words and _is_option(words[-1]):
            word = word._replace(option=words.pop().text)
        words.append(word)
    return words


def _parse_word(text: str, *, ended: bool) -> Word:
    if (flag := _FLAG.fullmatch(text)) is not None:
        return Word(flag[2], flag=flag[1])
    slots = tuple(slot_names(text))
    if not slots:
        return Word("".join(cast("tuple[str, ...]", split_template(text))))
    is_free = ended or not _begins_with_slot(text)
    return Word(text, slots, is_whole=only_slot(text) is not None, is_free=is_free)


def has_half_slot(text: str) -> bool:
    """Return whether a slot lacks one of its braces; words of a script may have braces of their own."""
    rest = _MEANT.sub("", text)
    return rest.count("{") != rest.count("}") and not _SCRIPT.search(text) and _HALF_SLOT.search(text) is not None


def has_misplaced_flag(text: str) -> bool:
    """Return whether a flag is misplaced: in the middle of a word, or with an argument in it."""
    if _FLAG.fullmatch(text) or _SCRIPT.search(text):
        return False
    return _BEGUN_FLAG.search(_BRACES.sub("", text)) is not None


def _begins_with_slot(text: str) -> bool:
    return isinstance(split_template(text)[0], Slot)


def _is_option(word: Word) -> bool:
    """Return whether a word is an option that may take the next word as its value."""
    if word.slots or word.flag or word.option:
        return False
    return word.text.startswith("-") and word.text.strip("-") != "" and "=" not in word.text


def fill_words(words: Iterable[Word], arguments: Mapping[str, Any]) -> list[str]:
    """Fill the words with the arguments of one call; raise a ToolValidationError for a value that cannot be a word."""
    argv: list[str] = []
    for word in words:
        if word.flag is not None:
            argv += [word.text] if arguments.get(word.flag) is True else []
        elif not word.slots:
            argv.append(word.text)
        elif values := _values(word, arguments):
            argv += values if word.option is None else [word.option, *values]
    return argv


def _values(word: Word, arguments: Mapping[str, Any]) -> list[str]:
    """Fill one word: no word when an argument is absent, several when the word is one slot and its value a list."""
    values = [arguments.get(name) for name in word.slots]
    if any(value is None for value in values):
        return []
    if word.is_whole:
        return [_fit(value_text(item), word, [item]) for item in _items(values[0])]
    return [_fit(fill_template(word.text, lambda name: value_text(arguments[name])), word, values)]


def _items(value: Any) -> Sequence[Any]:
    return cast("Sequence[Any]", value) if isinstance(value, list) else (value,)


def _fit(text: str, word: Word, values: Sequence[Any]) -> str:
    """Return the text if it can be a word at this place; raise a ToolValidationError if not."""
    names = ", ".join(word.slots)
    if "\0" in text:
        raise errors.ToolValidationError(f"{names}: holds a NUL character, which no command line can carry")
    try:
        os.fsencode(text)
    except UnicodeEncodeError as error:
        what = f"the character {text[error.start]!r}, which no command line can carry here"
        raise errors.ToolValidationError(f"{names}: holds {what}") from None
    if word.is_free or not text.startswith("-"):
        return text
    are_numbers = all(isinstance(value, (int, float)) for value in values)
    if not (word.option and are_numbers):  # An option may want no operand: a text in its place would be an option.
        raise errors.ToolValidationError(f"{names}: begins with '-', and would be taken for an option of the command")
    return text


def value_text(value: Any) -> str:
    """Return a string unchanged and any other value as JSON."""
    return value if isinstance(value, str) else _encode(value)


class CommandTemplate(NamedTuple):
    """Fixed words, words with slots, and the template of stdin."""

    fixed: tuple[str, ...]
    words: tuple[Word, ...]
    stdin: str | None
    required: tuple[str, ...]

    def argv(self, arguments: Mapping[str, Any]) -> tuple[str, ...]:
        """Build the command line of one call."""
        missing = [name for name in self.required if arguments.get(name) is None and self._needs(name)]
        if missing:
            raise errors.ToolValidationError([f"{name}: required, and nothing runs without it" for name in missing])
        return (*self.fixed, *fill_words(self.words, arguments))

    def _needs(self, name: str) -> bool:
        return any(name in word.slots for word in self.words) or name in slot_names(self.stdin or "")

    def input(self, arguments: Mapping[str, Any]) -> bytes:
        """Build the stdin of one call."""
        if self.stdin is None:
            return b""
        text = fill_template(self.stdin, lambda name: _text(arguments.get(name)))
        return text.encode("utf-8", "surrogatepass")


def _text(value: Any) -> str:
    return "" if value is None else value_text(value)


def parse_template(
    tool: CliTool, fixed: Sequence[str], *, is_described: bool = False
) -> tuple[CommandTemplate, JsonSchema]:
    """Parse a tool into its template and input schema; raise a ConfigError where the two do not agree.

    In the words that a manual describes a boolean is a word like any other: `true` or `false`.
    """
    if not is_described:
        _refuse_misspelt([*tool.args, tool.stdin or ""])
    words = tuple(parse_words(tool.args))
    schema = _schema(tool, words)
    _check(words, tool.stdin or "", _properties(schema), is_described=is_described)
    return CommandTemplate(tuple(fixed), words, tool.stdin, _read_required(schema)), schema


def unused_arguments(template: CommandTemplate, schema: JsonSchema) -> list[str]:
    """Return the arguments that the template does not use."""
    named = {name for word in template.words for name in (*word.slots, word.flag)} | {*slot_names(template.stdin or "")}
    return [name for name in _properties(schema) if name not in named]


def _schema(tool: CliTool, words: Sequence[Word]) -> JsonSchema:
    """Return the configured schema, or derive one from the slots; unknown arguments are refused."""
    if "input_schema" in tool.model_fields_set:
        return closed_schema({"type": "object", "properties": {}, **tool.input_schema})
    slots = list(dict.fromkeys([*(name for word in words for name in word.slots), *slot_names(tool.stdin or "")]))
    flags = {word.flag: {"type": "boolean"} for word in words if word.flag is not None}
    texts = {name: {"type": "string"} for name in slots}
    return {"type": "object", "properties": {**flags, **texts}, "required": slots, "additionalProperties": False}


def _refuse_misspelt(texts: Sequence[str]) -> None:
    for text in texts:
        if has_half_slot(text):
            how = "an argument is written {name}, and a brace itself {{ or }}"
            raise errors.ConfigError(f"the word {text!r} has a brace without its other half; {how}")
        if has_misplaced_flag(text):
            how = "{name?--word} is a word of its own, without another argument in it; a brace itself is {{ or }}"
            raise errors.ConfigError(f"the word {text!r} has a question mark that means nothing there: {how}")


def _check(words: Sequence[Word], stdin: str, properties: Mapping[str, Any], *, is_described: bool) -> None:
    for word in words:
        for name in (*word.slots, *([word.flag] if word.flag else [])):
            _refuse_unknown(name, properties)
        if word.flag is not None and not _is_boolean(properties[word.flag]):
            raise errors.ConfigError(
                f"{{{word.flag}?{word.text}}} is a word that is there or not, but argument {word.flag!r} is no boolean"
            )
        if word.is_whole and _is_boolean(properties[word.slots[0]]) and not is_described:
            name = word.slots[0]
            raise errors.ConfigError(
                f"argument {name!r} is a boolean and cannot be a word of its own; "
                f"write {{{name}?--{name}}} for a word that is there when it is true, or --{name}={{{name}}}"
            )
    for name in slot_names(stdin):
        _refuse_unknown(name, properties)


def _refuse_unknown(name: str, properties: Mapping[str, Any]) -> None:
    if name not in properties:
        names = ", ".join(properties) or "none"
        raise errors.ConfigError(f"{{{name}}} names no argument of its input_schema; there are: {names}")


def _is_boolean(schema: Any) -> bool:
    kind: Any = cast("dict[str, Any]", schema).get("type") if isinstance(schema, dict) else None
    return kind == "boolean" or (isinstance(kind, list) and "boolean" in kind)


def _read_required(schema: JsonSchema) -> tuple[str, ...]:
    required: Any = schema.get("required", [])
    if not is_array(required) or not all(isinstance(name, str) for name in required):
        raise errors.ConfigError("`required` in its input_schema is a list of names")
    return tuple(required)


def _properties(schema: JsonSchema) -> dict[str, Any]:
    """Return the properties of a schema and of the schemas that it is composed of."""
    return {name: part for one in _parts(schema) for name, part in _read_properties(one).items()}


def _read_properties(schema: JsonSchema) -> dict[str, Any]:
    properties: Any = schema.get("properties", {})
    if not is_object(properties):
        raise errors.ConfigError("`properties` in its input_schema is a table: each name with its schema")
    return properties


def _parts(schema: JsonSchema) -> Iterator[JsonSchema]:
    yield schema
    for keyword in _COMPOSED:
        parts: Any = schema.get(keyword, [])
        if not is_array(parts):
            raise errors.ConfigError(f"`{keyword}` in its input_schema is a list of schemas")
        for part in parts:
            if is_object(part):
                yield from _parts(part)
