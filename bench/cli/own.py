"""The contenders: a bare subprocess, our commands alone, and Toolpost on top of them."""

from __future__ import annotations

import asyncio
import os
import tempfile
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.cli import names
from bench.core.harness import Contender
from toolpost.configuration.settings import Settings
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.outcomes import Completed
from toolpost.processes.commands import CommandRunner, run_command
from toolpost.toolbox.box import Toolbox

PROGRAM = "/bin/echo"
MESSAGE = "a message of some forty characters, hello"
CALLERS = 10
_NOTHING = asyncio.subprocess.DEVNULL
_PIPE = asyncio.subprocess.PIPE

Call = Callable[[], Awaitable[str]]


@asynccontextmanager
async def contenders() -> AsyncGenerator[list[Contender]]:
    """All of them, each having shown that it echoes."""
    async with AsyncExitStack() as stack:
        commands = await stack.enter_async_context(CommandRunner())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="toolpost-bench-")))
        memory = await stack.enter_async_context(box_of(None))
        sqlite = await stack.enter_async_context(box_of(folder))
        yield [
            await _shown(names.BARE, _bare),
            await _shown(names.COMMANDS, _command(commands)),
            await _shown(names.MEMORY, through(memory, "look"), memory),
            await _shown(names.EFFECTS, through(memory, "act"), memory),
            await _shown(names.SQLITE, through(sqlite, "look"), sqlite),
        ]


async def _shown(name: str, call: Call, box: Toolbox | None = None) -> Contender:
    said = await call()
    if said.strip() != MESSAGE:
        raise RuntimeError(f"{name} does not echo: {said!r}")
    if box is None:
        return Contender(name=name, call=call)
    return Contender(name=name, call=call, settle=box.store.events.flush)


async def _bare() -> str:
    process = await asyncio.create_subprocess_exec(PROGRAM, MESSAGE, stdin=_NOTHING, stdout=_PIPE, stderr=_PIPE)
    stdout, _ = await process.communicate()
    return stdout.decode()


def _command(commands: CommandRunner) -> Call:
    async def call() -> str:
        argv, env = (PROGRAM, MESSAGE), os.environ
        done = await run_command(argv, env=env, timeout_s=30, max_output_bytes=2**20, commands=commands)
        return done.stdout.decode()

    return call


def through(box: Toolbox, tool: str) -> Call:
    """A call of the command through a box."""

    async def call() -> str:
        outcome = await box.call(f"cmd.{tool}", {"message": MESSAGE})
        if not isinstance(outcome, Completed):
            raise RuntimeError(f"the call under test {outcome.status}: {outcome}")  # noqa: TRY004 - no caller's mistake
        return str(outcome.content)

    return call


def box_of(data_dir: Path | None) -> Toolbox:
    """A box with the command as a tool that reads, as `echo` does, and as one of unknown effect."""
    tool: dict[str, Any] = {"args": ["{message}"], "output": "text"}
    tools = {"look": {**tool, "side_effects": "read"}, "act": tool}
    source = ExternalToolConfig.model_validate(
        {"name": "cmd", "transport": "cli", "connection": PROGRAM, "required": True, "options": {"tools": tools}}
    )
    return Toolbox(settings=Settings(data_dir=data_dir, builtins="none", policy="exploratory", sources=[source]))
