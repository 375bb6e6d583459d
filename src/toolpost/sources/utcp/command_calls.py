"""Calls of cli templates: a script is run to its end, and an exit code other than 0 is a failure."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError, ToolClientError
from toolpost.sources.utcp.event_streams import json_or_text
from toolpost.sources.utcp.scripts import script_of
from toolpost.web.contents import decoded
from toolpost.web.failures import presentable
from toolpost.wire.commands import run_command
from toolpost.wire.environment import child_environment

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.sources.utcp.templates import CliTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires
    from toolpost.wire.commands import OnLine

_BASH = "/bin/bash"
_MAX_OUTPUT = 16 * 1024 * 1024
_LONGEST_PROGRESS = 200
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")


async def call_command(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Run a script with the arguments of a call; its lines are progress."""
    text = await output_of_script(prepared, asked, wires, on_line=_teller(asked.context()))
    return ToolOutput(parsed_output(text))


async def output_of_script(prepared: Prepared, asked: Asked, wires: Wires, *, on_line: OnLine | None = None) -> str:
    """What a script wrote: to stdout, or where it wrote nothing there to stderr."""
    template = cast("CliTemplate", prepared.template)
    if sys.platform == "win32":
        raise ConfigError(f"{prepared.full_name!r} is a script for bash, which is not run on Windows")
    script = script_of(template.commands, asked.arguments)
    done = await run_command(
        (_BASH, "-c", script.text),
        env={**_environment(template), **wires.env, **template.env_vars, **script.env},
        cwd=template.working_dir or (str(wires.folder) if wires.folder else None),
        timeout_s=prepared.timeout_s,
        max_output_bytes=_MAX_OUTPUT,
        on_line=on_line,
        commands=wires.commands,
    )
    written = decoded(done.stdout)
    if done.exit_code != 0:
        told = presentable(done.stderr.strip() or written.strip(), prepared.secrets) or "it wrote nothing"
        raise ToolClientError(f"{prepared.shown} ended with exit code {done.exit_code}: {told}", code="command_failed")
    return written.strip() or done.stderr.strip()


def parsed_output(text: str) -> Any:
    """What a command wrote, as JSON where it looks like that."""
    return json_or_text(text) if text[:1] in ("{", "[") else text


def _environment(template: CliTemplate) -> dict[str, str]:
    """What a script inherits: the usual few variables, or exactly those that its template names."""
    if template.inherit_env_vars is None:
        return child_environment(_inherited(_LOCALE))
    return _inherited(template.inherit_env_vars)


def _inherited(names: tuple[str, ...] | list[str]) -> dict[str, str]:
    return {name: os.environ[name] for name in names if name in os.environ}


def _teller(context: ToolContext) -> OnLine:
    return lambda text, _: context.progress(text[:_LONGEST_PROGRESS])
