"""Commands that go on in the background: what they wrote so far, how they ended, and stopping them."""

from __future__ import annotations

import asyncio
import secrets
import time
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ToolClientError, ToolError

if TYPE_CHECKING:
    from toolpost.processes.launch import Launch

Status = Literal["running", "completed", "failed", "stopped"]
Owner = tuple[str, str]

_KEPT_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_FLOOD_BYTES = 16 << 20
_PAUSE_S = 0.01
_MOST_RUNNING = 20
_MOST_FINISHED = 100


class BackgroundCommand:
    """One command; what it wrote is kept as far back as there is room."""

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
        self._kept = bytearray()
        self._read = 0

    @property
    def output(self) -> str:
        """What it wrote, both streams in the order of their coming."""
        return self._kept.decode("utf-8", "replace")

    @property
    def elapsed_s(self) -> float:
        """How long it took, or takes so far."""
        return time.monotonic() - self.began if self.seconds is None else self.seconds

    async def run(self, launch: Launch, *, timeout_s: float) -> None:
        """See it through to its end, whatever that is; one that was stopped stays stopped."""
        try:
            self.exit_code = await self._run(launch, timeout_s)
            self._end("completed" if self.exit_code == 0 else "failed")
        except asyncio.CancelledError:
            self._end("stopped")
        except TimeoutError:
            self.error = f"it did not end within {timeout_s:g} s, and was ended with all that it started"
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
                    if self._read > _FLOOD_BYTES:  # what floods has to wait, so that others get their turn
                        await asyncio.sleep(_PAUSE_S)
                code = await process.wait()
                self._take(process.stderr_tail.encode())
                return code
            finally:
                await process.close(grace_s=0)

    def _take(self, data: bytes) -> None:
        """Keep what came; the oldest goes, by whole lines if there are any, when there is too much."""
        self._kept += data
        self._read += len(data)
        if len(self._kept) > _KEPT_BYTES:
            self.cut = True
            begin = len(self._kept) - _KEPT_BYTES
            line = self._kept.find(b"\n", begin)
            del self._kept[: begin if line < 0 else line + 1]

    def _end(self, status: Status) -> None:
        if self.status == "running":
            self.status = status
            self.seconds = time.monotonic() - self.began


class BackgroundCommands:
    """The commands of all tasks; each is seen only by the person who started it."""

    def __init__(self) -> None:
        self._known: dict[str, BackgroundCommand] = {}

    def start(self, owner: Owner, launch: Launch, *, timeout_s: float) -> BackgroundCommand:
        """Begin one; there may not be too many at a time."""
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
        """One by its id, if this person started it."""
        command = self._known.get(command_id)
        if command is None or command.owner != owner:
            message = f"command {command_id[:40]!r} not found; run_command gives an id to one in the background"
            raise ToolClientError(message, tool_name=tool_name, code="command_not_found")
        return command

    async def stop(self, command: BackgroundCommand) -> None:
        """End a command with all that it started."""
        if command.task is not None and not command.task.done():
            command.task.cancel()
            await asyncio.wait([command.task])

    async def close(self) -> None:
        """End them all; safe to call twice."""
        for command in self._known.values():
            await self.stop(command)
        self._known.clear()

    def _forget_oldest(self) -> None:
        finished = [one.id for one in self._known.values() if one.status != "running"]
        for command_id in finished[:-_MOST_FINISHED]:
            del self._known[command_id]
