"""Calls of cli templates: a script is run to its end, and an exit code other than 0 is a failure."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError, ToolClientError
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import run_command
from toolpost.processes.launch import child_environment
from toolpost.schema.secrets import is_secret_name
from toolpost.sources.utcp.event_streams import json_or_text
from toolpost.sources.utcp.scripts import ENDED, MAX_OUTPUT, pipes_of, script_of
from toolpost.web.contents import decoded
from toolpost.web.failures import presentable
from toolpost.wire.pace import Pace

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext
    from toolpost.processes.commands import OnLine
    from toolpost.sources.utcp.templates import CliTemplate
    from toolpost.sources.utcp.wires import Asked, Prepared, Wires

_BASH = "/bin/bash"
_LONGEST_PROGRESS = 200
_LOCALE = ("LANG", "LC_ALL", "LC_CTYPE", "TZ")


async def call_command(prepared: Prepared, asked: Asked, wires: Wires) -> ToolOutput:
    """Run a script with the arguments of a call; its lines are progress."""
    template = cast("CliTemplate", prepared.template)
    if sys.platform == "win32":
        raise ConfigError(f"{prepared.full_name!r} is a script for bash, which is not run on Windows")
    if len(template.commands) == 1:
        return ToolOutput(parsed_output(await _run(prepared, asked, wires, None)))
    with tempfile.TemporaryDirectory(prefix="toolpost-steps-") as scratch:
        folder = Path(scratch)
        for pipe in pipes_of(template.commands):
            os.mkfifo(folder / pipe)
        text = await _run(prepared, asked, wires, folder)
        if not (folder / ENDED).exists():
            raise ToolClientError(f"{prepared.shown}: a step ended the script before its end", code="command_failed")
        return ToolOutput(parsed_output(text))


async def _run(prepared: Prepared, asked: Asked, wires: Wires, folder: Path | None) -> str:
    """What a script wrote: to stdout, or where it wrote nothing there to stderr, without secrets."""
    template = cast("CliTemplate", prepared.template)
    script = script_of(template.commands, asked.arguments, folder)
    inherited = [value for name, value in _environment(template).items() if is_secret_name(name)]
    redactor = Redactor([*prepared.secrets, *inherited, *wires.env.values(), *template.env_vars.values()])
    done = await run_command(
        (_BASH, "-c", script.text),
        env={**_environment(template), **wires.env, **template.env_vars, **script.env},
        cwd=template.working_dir or (str(wires.folder) if wires.folder else None),
        timeout_s=prepared.timeout_s,
        max_output_bytes=MAX_OUTPUT,
        on_line=_teller(asked.context(), redactor),
        commands=wires.commands,
    )
    _refuse_flood(prepared, folder)
    written, said = decoded(done.stdout).strip(), redactor.text(done.stderr.strip())
    if done.exit_code != 0:
        told = presentable(said or redactor.text(written), ()) or "it wrote nothing"
        raise ToolClientError(f"{prepared.shown} ended with exit code {done.exit_code}: {told}", code="command_failed")
    return written or said


def _refuse_flood(prepared: Prepared, folder: Path | None) -> None:
    if folder is not None and any(file.stat().st_size > MAX_OUTPUT for file in folder.iterdir()):
        told = f"{prepared.shown}: a step wrote more than {MAX_OUTPUT:,} bytes to stdout; have it write less"
        raise ToolClientError(told, code="output_too_large")


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


def _teller(context: ToolContext, redactor: Redactor) -> OnLine:
    pace = Pace()
    return lambda text, _: context.progress(redactor.text(text)[:_LONGEST_PROGRESS]) if pace.allows() else None
