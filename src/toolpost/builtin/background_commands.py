"""Commands that run in the background, each visible only to the user who started it."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ToolClientError, ToolError

if TYPE_CHECKING:
    from toolpost.processes.launch import Launch


_MAX_OUTPUT_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_FLOOD_BYTES = 16 << 20
_PAUSE_S = 0.01
_MOST_RUNNING = 20
_MOST_FINISHED = 100
Status = Literal["running", "completed", "failed", "stopped"]
Owner = tuple[str, str]


class BackgroundCommand:
    """One command, with the last `_MAX_OUTPUT_BYTES` of its output."""

    def __init__(self, command_id: str, owner: Owner) -> None:
        self.id = command_id
        self.owner = owner
        self.began = time.monotonic()
        self.seconds: float | None = None
        self.status: Status = "running"
        self.exit_code: int | None = None
        self.error: str | None = None
        self.cut = False
        self.task: asyncio.Task[None] | None = None
        self._output = bytearray()
        self._read = 0

    @property
    def output(self) -> str:
        return self._output.decode("utf-8", "replace")

    @property
    def elapsed_s(self) -> float:
        return time.monotonic() - self.began if self.seconds is None else self.seconds

    async def run(self, launch: Launch, *, timeout_s: float) -> None:
        """Run the command and set its final status; a stopped command stays stopped."""
        try:
            self.exit_code = await self._run(launch, timeout_s)
            self._end("completed" if self.exit_code == 0 else "failed")
        except asyncio.CancelledError:
            self._end("stopped")
        except TimeoutError:
            self.error = f"it did not end within {timeout_s:g} s and was killed with its child processes"
            self._end("failed")
        except ToolError as failed:
            self.error = str(failed)
            self._end("failed")

    async def _run(self, launch: Launch, timeout_s: float) -> int:
        from toolpost.processes.process import start  # noqa: PLC0415 - most runs never start one

        async with asyncio.timeout(timeout_s):
            process = await start(launch)
            try:
                process.stdin.close()
                while data := await process.stdout.read(_CHUNK):
                    self._take(data)
                    if self._read > _FLOOD_BYTES:  # throttle a flood of output
                        await asyncio.sleep(_PAUSE_S)
                code = await process.wait()
                self._take(process.stderr_tail.encode())
                return code
            finally:
                await process.close(grace_s=0)

    def _take(self, data: bytes) -> None:
        """Append output; drop the oldest part if there is too much, by whole lines if possible."""
        self._output += data
        self._read += len(data)
        if len(self._output) > _MAX_OUTPUT_BYTES:
            self.cut = True
            begin = len(self._output) - _MAX_OUTPUT_BYTES
            line = self._output.find(b"\n", begin)
            del self._output[: begin if line < 0 else line + 1]

    def _end(self, status: Status) -> None:
        if self.status == "running":
            self.status = status
            self.seconds = time.monotonic() - self.began


class BackgroundCommands:
    """The background commands of all tasks; each is visible only to the user who started it."""

    def __init__(self) -> None:
        self._known: dict[str, BackgroundCommand] = {}

    def start(self, owner: Owner, launch: Launch, *, timeout_s: float) -> BackgroundCommand:
        """Start a command; raise a ToolClientError if too many are running."""
        running = sum(one.status == "running" for one in self._known.values())
        if running >= _MOST_RUNNING:
            message = f"{running} commands run in the background already; stop one with command_stop first"
            raise ToolClientError(message, tool_name="run_command", code="too_many_commands")
        command = BackgroundCommand(f"cmd-{secrets.token_hex(4)}", owner)
        self._known[command.id] = command
        command.task = asyncio.create_task(command.run(launch, timeout_s=timeout_s))
        self._forget_oldest()
        return command

    def find(self, command_id: str, owner: Owner, *, tool_name: str) -> BackgroundCommand:
        """Find a command by its ID, if this user started it."""
        command = self._known.get(command_id)
        if command is None or command.owner != owner:
            message = f"command {command_id[:40]!r} not found; run_command gives an id to one in the background"
            raise ToolClientError(message, tool_name=tool_name, code="command_not_found")
        return command

    async def stop(self, command: BackgroundCommand) -> None:
        """Kill a command and all its child processes."""
        if command.task is not None and not command.task.done():
            command.task.cancel()
            await asyncio.wait([command.task])

    async def close(self) -> None:
        """Kill all commands; safe to call twice."""
        for command in self._known.values():
            await self.stop(command)
        self._known.clear()

    def _forget_oldest(self) -> None:
        finished = [one.id for one in self._known.values() if one.status != "running"]
        for command_id in finished[:-_MOST_FINISHED]:
            del self._known[command_id]
