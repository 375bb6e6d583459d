"""Commands that go on in the background: what they wrote so far, how they ended, and stopping them."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections import deque
from typing import TYPE_CHECKING, Literal

from toolpost.contracts.errors import ToolClientError, ToolError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from toolpost.wire.commands import CommandResult

Status = Literal["running", "completed", "failed", "stopped"]
Owner = tuple[str, str]

_KEPT_BYTES = 64 * 1024
_MOST_RUNNING = 20
_MOST_FINISHED = 100


class BackgroundCommand:
    """One command; its lines are kept as far back as there is room."""

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
        self._lines: deque[str] = deque()
        self._size = 0

    @property
    def output(self) -> str:
        """What it wrote, both streams in the order of their coming."""
        return "".join(self._lines)

    @property
    def elapsed_s(self) -> float:
        """How long it took, or takes so far."""
        return time.monotonic() - self.began if self.seconds is None else self.seconds

    def take(self, line: str, _: str) -> None:
        """Keep a line; the oldest go when there are too many."""
        self._lines.append(f"{line}\n")
        self._size += len(line) + 1
        while self._size > _KEPT_BYTES and len(self._lines) > 1:
            self._size -= len(self._lines.popleft())
            self.cut = True

    async def run(self, start: Callable[[], Awaitable[CommandResult]]) -> None:
        """See it through to its end, whatever that is; one that was stopped stays stopped."""
        try:
            result = await start()
            self.exit_code = result.exit_code
            self._end("completed" if result.exit_code == 0 else "failed")
        except asyncio.CancelledError:
            self._end("stopped")
        except ToolError as failed:
            self.error = str(failed)
            self._end("failed")

    def _end(self, status: Status) -> None:
        if self.status == "running":
            self.status = status
            self.seconds = time.monotonic() - self.began


class BackgroundCommands:
    """The commands of all tasks; each is seen only by the person who started it."""

    def __init__(self) -> None:
        self._known: dict[str, BackgroundCommand] = {}

    def start(
        self, owner: Owner, start: Callable[[BackgroundCommand], Callable[[], Awaitable[CommandResult]]]
    ) -> BackgroundCommand:
        """Begin one; there may not be too many at a time."""
        running = sum(one.status == "running" for one in self._known.values())
        if running >= _MOST_RUNNING:
            message = f"{running} commands run in the background already; stop one with command_stop first"
            raise ToolClientError(message, tool_name="run_command", code="too_many_commands")
        command = BackgroundCommand(f"cmd-{secrets.token_hex(4)}", owner)
        self._known[command.id] = command
        command.task = asyncio.create_task(command.run(start(command)))
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
