"""Convert the cli tools of a manual to argument vectors for the CLI source, which runs them without a shell.

Nothing is run here.
"""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import cast

from msgspec.structs import replace

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.manuals import DescribedCommand, DescribedCommands
from toolpost.contracts.source_kinds import TransportType, UtcpMode
from toolpost.processes.launch import child_environment
from toolpost.schema.templates import slot_names
from toolpost.sources.utcp.compile import check_kind_allowed, compile_tool, unset_variables, unusable_tool
from toolpost.sources.utcp.context import ContextFactory
from toolpost.sources.utcp.discovery import ManualDiscovery
from toolpost.sources.utcp.manuals import Manual, ManualTool
from toolpost.sources.utcp.scripts import PLACEHOLDER_PATTERN
from toolpost.sources.utcp.templates import CliTemplate
from toolpost.sources.utcp.variables import Variables
from toolpost.wire.network import NetworkPolicy

_MANUAL_OPTIONS = ("allowed_communication_protocols", "variables")  # the options that both transports have
_REMEDY = "write its args into options.tools, or connect the manual with transport: utcp"
_VARIABLE = r"\$(?P<variable>[A-Za-z_]\w*+(?!\\\n)|\{[A-Za-z_]\w*\})"
_FLAGS = re.DOTALL | re.ASCII
_TOKENS = {
    "": re.compile(
        rf"{PLACEHOLDER_PATTERN}|{_VARIABLE}|(?P<joined>\\\n)|\\(?P<escaped>.)|(?P<quote>['\"])|(?P<space>[ \t]+)"
        r"|(?P<shell>[;&|<>()`*?\[\n\r\\]|\$(?=[\w@*#?$!({\['\"-]|\\\n)"
        r"|\{(?=.*(?:,|\.\.).*\})|(?:^|(?<=[\s=:]))~|(?:^|(?<=\s))\#)|(?P<text>.)",
        _FLAGS,
    ),
    '"': re.compile(
        rf"{PLACEHOLDER_PATTERN}|{_VARIABLE}|(?P<joined>\\\n)|\\(?P<escaped>[$`\"\\])|(?P<quote>\")"
        r"|(?P<shell>`|\$(?=[\w@*#?$!({\[-]|\\\n))|(?P<text>.)",
        _FLAGS,
    ),
    "'": re.compile(rf"{PLACEHOLDER_PATTERN}|(?P<quote>')|(?P<text>.)", _FLAGS),
}
_ASSIGNMENT = re.compile(r"[A-Za-z_]\w*\+?=", re.ASCII)


async def export_cli_commands(config: ExternalToolConfig, *, network: NetworkPolicy) -> DescribedCommands:
    """Load the manual of `options.manual` and convert its tools; a ConfigError says why it cannot be used."""
    update = {
        "transport": TransportType.UTCP,
        "utcp_mode": UtcpMode.MANUAL_URL,
        "connection": _manual_location(config),
        "options": {key: config.options[key] for key in _MANUAL_OPTIONS if key in config.options},
    }
    inner = config.model_copy(update=update)
    contexts = ContextFactory(inner, network)
    with tempfile.TemporaryDirectory(prefix="toolpost-utcp-") as scratch:
        try:
            discovery = ManualDiscovery(inner, NO_CREDENTIAL, contexts, Path(scratch))
            result = await discovery.run()
        finally:
            await contexts.close()
    shown = str(config.options["manual"]).partition("?")[0]
    if not result.manuals:
        raise ConfigError(f"options.manual: {shown} describes no commands; connect it with transport: utcp")
    if not any(manual.tools or manual.problems for manual in result.manuals):
        raise ConfigError(f"options.manual: {shown} has no tools; check whether it is the right one")
    commands: list[DescribedCommand] = []
    for manual in result.manuals:
        variables = Variables(manual.name, discovery.variables(manual.variables), os.environ)
        commands += [_export_tool(tool, manual, variables) for tool in manual.tools]
    problems = [problem for manual in result.manuals for problem in manual.problems]
    return DescribedCommands(commands, [*result.problems, *problems])


def _manual_location(config: ExternalToolConfig) -> str:
    # Discovery would run any other string as a command, so a path must exist.
    location = str(config.options["manual"])
    if location.startswith(("http://", "https://")):
        return location
    path = Path(location).expanduser()
    if not path.is_file():
        raise ConfigError(
            f"options.manual: the file {location!r} does not exist; use the path or the address of a UTCP manual"
        )
    return str(path.absolute())


def _export_tool(tool: ManualTool, manual: Manual, variables: Variables) -> DescribedCommand:
    command = DescribedCommand(
        name=tool.name,
        description=tool.description,
        input_schema=tool.inputs if any(value for key, value in tool.inputs.items() if key != "type") else None,
        output_schema=tool.outputs,
        tags=tool.tags,
    )
    try:
        return _export_command(command, tool, manual, variables)
    except ConfigError as error:
        return replace(command, fault=str(error))


def _export_command(
    command: DescribedCommand, tool: ManualTool, manual: Manual, variables: Variables
) -> DescribedCommand:
    if tool.kind != "cli":
        raise unusable_tool(tool, f"its manual calls it by {tool.kind}, not by a command; {_REMEDY}")
    check_kind_allowed(tool, manual)
    prepared = compile_tool(tool, variables, timeout_s=0)
    template = cast("CliTemplate", prepared.template)
    if len(template.commands) > 1:
        raise unusable_tool(tool, f"it has {len(template.commands)} steps, which only a shell runs; {_REMEDY}")
    inherited = {name: os.environ[name] for name in template.inherit_env_vars or () if name in os.environ}
    env = {**inherited, **template.env_vars}
    parser = CommandLineParser(child_environment(env))
    try:
        args = parser.parse(template.commands[0].command)
    except ConfigError as error:
        raise unusable_tool(tool, f"{error}. Else {_REMEDY}") from None
    if parser.missing:
        raise unset_variables(tool, parser.missing, variables)
    cwd = template.working_dir or (str(manual.folder) if manual.folder else None)
    return replace(command, args=args, env=env, cwd=cwd, secrets=prepared.secrets)


class CommandLineParser:
    """Parser that splits a bash command into words, with `{name}` for each argument, to run it without a shell.

    Only words, quotes and variables are supported, which mean the same without a shell; all else is refused.
    `missing` are variables that the command's environment does not have.
    """

    def __init__(self, env: Mapping[str, str]) -> None:
        self.missing: list[str] = []
        self._env = env
        self._words: list[str] = []
        self._word: str | None = None

    def parse(self, command: str) -> tuple[str, ...]:
        """Split a command into words; a ConfigError says what only a shell could run."""
        text, quotes, at = command.strip(), "", 0
        while (match := _TOKENS[quotes].match(text, at)) is not None:
            at = match.end()
            match match.lastgroup:
                case "quote":
                    quotes = "" if quotes else match[0]
                    self._add("")
                case "space":
                    self._end_word()
                case "joined":
                    continue
                case _:
                    self._add(self._expand(match))
        if quotes:
            raise ConfigError(f"its command has a quote {quotes} that is never closed")
        self._end_word()
        return self._validate(text)

    def _expand(self, token: re.Match[str]) -> str:
        match token.lastgroup:
            case "name":
                if token["name"][0].isdigit():
                    raise ConfigError(
                        f"its command has a place for {token['name']!r}; an argument's name begins with a letter"
                    )
                return f"{{{token['name']}}}"
            case "variable":
                name = token["variable"].strip("{}")
                if name not in self._env:
                    self.missing.append(name)
                return _escape_braces(self._env.get(name, ""))
            case "escaped":
                return _escape_braces(token["escaped"])
            case "shell":
                raise ConfigError(
                    f"its command has {token[0]!r}, which only a shell interprets; put it in quotes if it is text"
                )
            case _:
                return _escape_braces(token[0])

    def _add(self, piece: str) -> None:
        self._word = (self._word or "") + piece

    def _end_word(self) -> None:
        if self._word is not None:
            self._words.append(self._word)
        self._word = None

    def _validate(self, text: str) -> tuple[str, ...]:
        if _ASSIGNMENT.match(text):
            raise ConfigError("its command begins by setting a variable, which only a shell does; use env_vars")
        if not self._words or not self._words[0]:
            raise ConfigError("its command is empty")
        if slot_names(self._words[0]):
            raise ConfigError("its command has an argument as its program; the program must be a literal")
        return tuple(self._words)


def _escape_braces(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")
