"""The commands that a manual describes, for the source that runs commands without a shell; nothing is run here."""

from __future__ import annotations

import os
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, cast

from toolpost.contracts.calls import NO_CREDENTIAL
from toolpost.contracts.commands import DescribedCommand, DescribedCommands
from toolpost.contracts.config import TransportType, UtcpMode
from toolpost.contracts.errors import ConfigError
from toolpost.processes.launch import child_environment
from toolpost.sources.utcp.command_words import Wording
from toolpost.sources.utcp.finding import Finder
from toolpost.sources.utcp.preparing import check_allowed, left_out, prepare, unset
from toolpost.sources.utcp.reach import Reach
from toolpost.sources.utcp.variables import Variables

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.spec import JsonSchema
    from toolpost.sources.utcp.finding import Found
    from toolpost.sources.utcp.manuals import Manual, ManualTool
    from toolpost.sources.utcp.templates import CliTemplate
    from toolpost.wire.network import NetworkPolicy

_REMEDY = "write its args into cli.tools, or connect the manual with transport: utcp"


async def described_commands(config: ExternalToolConfig, *, network: NetworkPolicy) -> DescribedCommands:
    """Read the manual that `cli.manual` leads to; a ConfigError says what was found where that is none."""
    update = {"transport": TransportType.UTCP, "utcp_mode": UtcpMode.MANUAL_URL, "connection": _place(config)}
    inner = config.model_copy(update=update)
    reach = Reach(inner, NO_CREDENTIAL, network)
    with tempfile.TemporaryDirectory(prefix="toolpost-utcp-") as scratch:
        try:
            finder = Finder(inner, NO_CREDENTIAL, reach, Path(scratch))
            found = await finder.find()
        finally:
            await reach.close()
    _refuse_other(found, str(config.cli.manual))
    commands: list[DescribedCommand] = []
    for manual in found.manuals:
        variables = Variables(manual.name, finder.variables(manual.variables), os.environ)
        commands += [_described(tool, manual, variables) for tool in manual.tools]
    told = [problem for manual in found.manuals for problem in manual.problems]
    return DescribedCommands(commands, [*found.problems, *told])


def _place(config: ExternalToolConfig) -> str:
    """Where the manual is; what is no address must be a file, since nothing is to be run that might write one."""
    written = str(config.cli.manual)
    if written.startswith(("http://", "https://")):
        return written
    path = Path(written).expanduser()
    if not path.is_file():
        raise ConfigError(f"cli.manual: there is no file {written!r}; give the path or the address of a UTCP manual")
    return str(path.absolute())


def _refuse_other(found: Found, shown: str) -> None:
    shown = shown.partition("?")[0]
    if not found.manuals:
        raise ConfigError(f"cli.manual: {shown} describes no commands; connect it with transport: utcp")
    if not any(manual.tools or manual.problems for manual in found.manuals):
        raise ConfigError(f"cli.manual: {shown} has no tools; check whether it is the right one")


def _described(tool: ManualTool, manual: Manual, variables: Variables) -> DescribedCommand:
    described = DescribedCommand(
        name=tool.name,
        description=tool.description,
        input_schema=_inputs(tool.inputs),
        output_schema=tool.outputs,
        tags=tool.tags,
    )
    try:
        return _with_command(described, tool, manual, variables)
    except ConfigError as error:
        return replace(described, fault=str(error))


def _inputs(schema: JsonSchema) -> JsonSchema | None:
    """The schema of a tool's arguments, unless it says nothing of them."""
    return schema if any(value for key, value in schema.items() if key != "type") else None


def _with_command(
    described: DescribedCommand, tool: ManualTool, manual: Manual, variables: Variables
) -> DescribedCommand:
    if tool.kind != "cli":
        raise left_out(tool, f"its manual calls it by {tool.kind}, not by a command; {_REMEDY}")
    check_allowed(tool, manual)
    prepared = prepare(tool, variables, timeout_s=0)
    template = cast("CliTemplate", prepared.template)
    if len(template.commands) > 1:
        raise left_out(tool, f"it has {len(template.commands)} steps, which only a shell runs; {_REMEDY}")
    inherited = {name: os.environ[name] for name in template.inherit_env_vars or () if name in os.environ}
    env = {**inherited, **template.env_vars}
    wording = Wording(child_environment(env))
    try:
        args = wording.read(template.commands[0].command)
    except ConfigError as error:
        raise left_out(tool, f"{error}. Else {_REMEDY}") from None
    if wording.missing:
        raise unset(tool, wording.missing, variables)
    cwd = template.working_dir or (str(manual.folder) if manual.folder else None)
    return replace(described, args=args, env=env, cwd=cwd, secrets=prepared.secrets)
