"""Tools that run commands: run_command, command_output and command_stop; present only if an operator names them."""

from __future__ import annotations

import asyncio
import os
import sys
from typing import TYPE_CHECKING, Annotated, Literal

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.file_access import display_path
from toolpost.builtin.system import TaskEnvironment
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.spec import ToolCategory
from toolpost.policy.paths import is_path_allowed, is_protected
from toolpost.processes.launch import Launch, child_environment

if TYPE_CHECKING:
    from toolpost.builtin.background_commands import BackgroundCommand, BackgroundCommands
    from toolpost.contracts.context import ToolContext
    from toolpost.processes.commands import CommandResult, CommandRunner

_TAGS = ("builtin", "command")
_LONGEST_S = 600
_USUAL_S = 30
_MOST_BYTES = 16 << 20
_SHOWN = 64 * 1024
CommandId = Annotated[
    str, Field(min_length=1, validation_alias=either("command_id"), description="The ID from run_command")
]
Seconds = Annotated[
    float | None,
    Field(
        gt=0,
        le=_LONGEST_S,
        validation_alias=either("timeout_s"),
        description="Timeout in seconds; default 30, or 600 in the background",
    ),
]
InBackground = Annotated[
    bool,
    Field(
        validation_alias=either("run_in_background"),
        description="Return immediately, with a command_id",
    ),
]


class CommandRun(TypedDict):
    """The result of a command, or the `command_id` of one that runs in the background."""

    status: Literal["running", "completed", "failed", "stopped"]
    command_id: str | None
    exit_code: int | None
    stdout: str
    stderr: str
    duration_ms: float
    truncated: bool


class CommandState(TypedDict):
    """A background command; `output` has both streams in order."""

    status: Literal["running", "completed", "failed", "stopped"]
    command_id: str
    exit_code: int | None
    output: str
    error: str | None
    duration_ms: float
    truncated: bool


def command_tools(
    commands: CommandRunner, background: BackgroundCommands, environment: TaskEnvironment | None = None
) -> list[FunctionTool]:
    """Return the tools of this module; the caller closes `commands` and `background`."""
    environment = environment or TaskEnvironment()

    @tool(
        side_effects="stateful",
        destructive=True,
        file=True,
        network=True,
        open_world=True,
        category=ToolCategory.CODE,
        tags=_TAGS,
        timeout_s=_LONGEST_S + 30,
    )
    async def run_command(
        command: Annotated[
            str | list[str],
            Field(min_length=1, description="A shell command line, or a program and its arguments"),
        ],
        ctx: ToolContext,
        *,
        cwd: Annotated[str | None, Field(description="The working folder; default: the first allowed one")] = None,
        timeout_s: Seconds = None,
        env: Annotated[dict[str, str], Field(description="Additional environment variables")] = {},  # noqa: B006 - never changed
        run_in_background: InBackground = False,
    ) -> CommandRun:
        """Run a command and return its output and exit code. Its child processes are killed when it ends."""
        folder = _folder(cwd, ctx)
        variables = child_environment({**environment.overlay(ctx), **env})
        if run_in_background:
            launch = Launch(argv=(*_argv_with_one_stream(command),), env=variables, cwd=folder)
            return _started_result(background.start(_owner(ctx), launch, timeout_s=timeout_s or _LONGEST_S))
        return _finished_result(await _run(commands, _argv(command), variables, folder, timeout_s or _USUAL_S))

    @tool(side_effects="read", category=ToolCategory.CODE, tags=_TAGS, timeout_s=_LONGEST_S + 30)
    async def command_output(
        command_id: CommandId,
        ctx: ToolContext,
        *,
        wait_s: Annotated[
            float,
            Field(
                ge=0,
                le=_LONGEST_S,
                validation_alias=either("wait_s"),
                description="Seconds to wait for its end",
            ),
        ] = 0,
    ) -> CommandState:
        """Return the output and the status of a background command."""
        command = background.find(command_id, _owner(ctx), tool_name="command_output")
        if wait_s and command.task is not None:
            await asyncio.wait([command.task], timeout=wait_s)
        return _command_state(command)

    @tool(side_effects="stateful", idempotent=True, category=ToolCategory.CODE, tags=_TAGS, timeout_s=30)
    async def command_stop(command_id: CommandId, ctx: ToolContext) -> CommandState:
        """Stop a background command and its child processes."""
        command = background.find(command_id, _owner(ctx), tool_name="command_stop")
        await background.stop(command)
        return _command_state(command)

    return [with_camel_case(one) for one in (run_command, command_output, command_stop)]


async def _run(
    commands: CommandRunner, words: list[str], env: dict[str, str], folder: str | None, timeout_s: float
) -> CommandResult:
    from toolpost.processes.commands import run_command as run  # noqa: PLC0415 - most runs never start one

    return await run(words, env=env, cwd=folder, timeout_s=timeout_s, max_output_bytes=_MOST_BYTES, commands=commands)


def _argv(command: str | list[str]) -> list[str]:
    if not isinstance(command, str):
        return command
    if sys.platform == "win32":
        return [os.environ.get("COMSPEC", "cmd.exe"), "/d", "/s", "/c", command]
    return ["/bin/sh", "-c", command]


def _argv_with_one_stream(command: str | list[str]) -> list[str]:
    """Return arguments that redirect stderr to stdout, to read both in order."""
    if sys.platform == "win32":
        return _argv(command)
    if isinstance(command, str):
        return _argv(f"exec 2>&1; {command}")
    return ["/bin/sh", "-c", 'exec "$@" 2>&1', "sh", *command]


def _folder(cwd: str | None, ctx: ToolContext) -> str | None:
    """Return the working folder, which must be allowed; the command's own file access is not restricted."""
    if cwd is not None and is_protected(os.path.realpath(cwd), ctx.protected_paths, writes=False):
        message = f"Path {display_path(cwd)!r} is protected; run the command in another folder"
        raise ToolPermissionError(message, tool_name="run_command", code="path_protected")
    if ctx.allowed_paths is None:
        return cwd
    folder = cwd if cwd is not None else next(iter(ctx.allowed_paths), "")
    if not folder or not is_path_allowed(folder, ctx.allowed_paths):
        allowed = ", ".join(ctx.allowed_paths) or "none"
        message = f"Path {display_path(folder)!r} not in allowed paths ({allowed}); run the command in one of them"
        raise ToolPermissionError(message, tool_name="run_command", code="path_refused")
    return folder


def _owner(ctx: ToolContext) -> tuple[str, str]:
    return ctx.tenant_id or "", ctx.user_id or ""


def _finished_result(result: CommandResult) -> CommandRun:
    stdout = result.stdout.decode("utf-8", "replace")
    out, err = _cut_middle(stdout), _cut_middle(result.stderr)
    return {
        "status": "completed" if result.exit_code == 0 else "failed",
        "command_id": None,
        "exit_code": result.exit_code,
        "stdout": out,
        "stderr": err,
        "duration_ms": round(result.seconds * 1000, 1),
        "truncated": (out, err) != (stdout, result.stderr),
    }


def _started_result(command: BackgroundCommand) -> CommandRun:
    return {
        "status": command.status,
        "command_id": command.id,
        "exit_code": None,
        "stdout": "",
        "stderr": "",
        "duration_ms": 0.0,
        "truncated": False,
    }


def _command_state(command: BackgroundCommand) -> CommandState:
    return {
        "status": command.status,
        "command_id": command.id,
        "exit_code": command.exit_code,
        "output": command.output,
        "error": command.error,
        "duration_ms": round(command.elapsed_s * 1000, 1),
        "truncated": command.cut,
    }


def _cut_middle(text: str) -> str:
    """Cut the middle of a long text."""
    if len(text) <= _SHOWN:
        return text
    half = _SHOWN // 2
    return f"{text[:half]}\n[{len(text) - 2 * half} characters left out]\n{text[-half:]}"
