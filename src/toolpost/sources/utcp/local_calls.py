"""Call the templates of this machine: run the script of a cli template, read a text or file template."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from typing import Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ConfigError, ToolClientError
from toolpost.http.content import decode_text
from toolpost.http.response_errors import sanitize
from toolpost.policy.redaction import Redactor
from toolpost.processes.commands import run_command
from toolpost.processes.launch import LOCALE_VARIABLES, child_environment, inherited_variables
from toolpost.schema.secrets import is_secret_name
from toolpost.sources.utcp.context import CompiledTool, Invocation, ManualContext, json_or_text
from toolpost.sources.utcp.documents import read_text, resolve_path
from toolpost.sources.utcp.scripts import END_MARKER, MAX_OUTPUT, build_script, pipe_names
from toolpost.sources.utcp.templates import CliTemplate, FileTemplate, TextTemplate

_BASH = "/bin/bash"


async def call_command(tool: CompiledTool, invocation: Invocation, context: ManualContext) -> ToolOutput:
    """Run the script of a cli template; report its lines as progress. An exit code other than 0 is a failure."""
    template = cast("CliTemplate", tool.template)
    if sys.platform == "win32":
        raise ConfigError(f"{tool.full_name!r} is a script for bash, which is not run on Windows")
    if len(template.commands) == 1:
        return ToolOutput(_parse_output(await _run(tool, invocation, context, None)))
    with tempfile.TemporaryDirectory(prefix="toolpost-steps-") as scratch:
        folder = Path(scratch)
        for pipe in pipe_names(template.commands):
            os.mkfifo(folder / pipe)
        text = await _run(tool, invocation, context, folder)
        if not (folder / END_MARKER).exists():
            raise ToolClientError(f"{tool.label}: a step ended the script before its end", code="command_failed")
        return ToolOutput(_parse_output(text))


async def _run(tool: CompiledTool, invocation: Invocation, context: ManualContext, folder: Path | None) -> str:
    """Run a script and return its stdout, or its redacted stderr where stdout is empty."""
    template = cast("CliTemplate", tool.template)
    script = build_script(template.commands, invocation.arguments, folder)
    inherited = [value for name, value in _environment(template).items() if is_secret_name(name)]
    redactor = Redactor([*tool.secrets, *inherited, *context.env.values(), *template.env_vars.values()])
    report = invocation.progress(redactor.text)
    done = await run_command(
        (_BASH, "-c", script.text),
        env={**_environment(template), **context.env, **template.env_vars, **script.env},
        cwd=template.working_dir or (str(context.folder) if context.folder else None),
        timeout_s=tool.timeout_s,
        max_output_bytes=MAX_OUTPUT,
        on_line=lambda line, _: report(line),
        commands=context.commands,
    )
    _check_output_size(tool, folder)
    stdout, stderr = decode_text(done.stdout).strip(), redactor.text(done.stderr.strip())
    if done.exit_code != 0:
        message = sanitize(stderr or redactor.text(stdout), ()) or "it wrote nothing"
        raise ToolClientError(f"{tool.label} ended with exit code {done.exit_code}: {message}", code="command_failed")
    return stdout or stderr


def _check_output_size(tool: CompiledTool, folder: Path | None) -> None:
    if folder is not None and any(file.stat().st_size > MAX_OUTPUT for file in folder.iterdir()):
        message = f"{tool.label}: a step wrote more than {MAX_OUTPUT:,} bytes to stdout, the limit"
        raise ToolClientError(message, code="output_too_large")


def _parse_output(text: str) -> Any:
    """Parse the output of a command as JSON where it starts like an object or an array."""
    return json_or_text(text) if text[:1] in ("{", "[") else text


def _environment(template: CliTemplate) -> dict[str, str]:
    """Return the environment that a script inherits: the usual variables, or those that its template names."""
    if template.inherit_env_vars is None:
        return child_environment(inherited_variables(LOCALE_VARIABLES))
    return inherited_variables(template.inherit_env_vars)


async def call_text(tool: CompiledTool, _: Invocation, __: ManualContext) -> ToolOutput:
    """Return the text of a text template."""
    return ToolOutput(tool.parse_text(cast("TextTemplate", tool.template).content))


async def call_file(tool: CompiledTool, _: Invocation, context: ManualContext) -> ToolOutput:
    """Return the content of a file; a relative path starts in the manual's folder."""
    path = resolve_path(cast("FileTemplate", tool.template).file_path, context.folder)
    return ToolOutput(tool.parse_text(await read_text(path)))
