"""Worker processes that are restarted when they end, and stopped together."""

from __future__ import annotations

import asyncio
import os
import signal
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ToolError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence

_STEADY_S = 10.0  # a worker that ran that long is restarted immediately
_FIRST_DELAY_S, _LAST_DELAY_S = 0.2, 10.0
_ENV_OF_PARENT = ("NOTIFY_SOCKET",)  # the parent notifies its own parent


class WorkerPool:
    """Keeps `count` workers running. A worker reports that it is ready with a line on its stdout.

    `command` returns the command of a worker by its number and whether it is restarted. Workers inherit `sockets`, and
    their stdin ends when this process ends. `report` is called for workers that ended.
    """

    def __init__(
        self,
        command: Callable[[int, bool], Sequence[str]],
        count: int,
        *,
        sockets: Collection[int],
        report: Callable[[str], None],
    ) -> None:
        self._command = command
        self._count = count
        self._sockets = tuple(sockets)
        self._report = report
        self._processes: dict[int, Process] = {}
        self._ready = set[int]()
        self._is_stopping = False
        self.all_ready = asyncio.Event()

    async def run(self, *, stop_within_s: float) -> int:
        """Keep the workers running until canceled, then stop them; return the code of one that never was ready.

        Workers that have not ended `stop_within_s` seconds after SIGTERM are killed. A second cancellation sends a
        second SIGTERM.
        """
        loop = asyncio.get_running_loop()
        keeping = [loop.create_task(self._keep(number)) for number in range(self._count)]
        try:
            ended, _ = await asyncio.wait(keeping, return_when=asyncio.FIRST_COMPLETED)
            code = ended.pop().result()
        except asyncio.CancelledError:
            code = 0
            self._report("stopping the workers")
        finally:
            self._is_stopping = True
        stopping = loop.create_task(self._stop(keeping, stop_within_s))
        while not stopping.done():
            try:
                await asyncio.shield(stopping)
            except asyncio.CancelledError:
                self.send(signal.SIGTERM)
        return code

    def send(self, number: signal.Signals) -> None:
        for process in self._processes.values():
            with suppress(ProcessLookupError):
                process.send_signal(number)

    async def _keep(self, number: int) -> int:
        """Restart a worker whenever it has ended; return its code if it never became ready."""
        loop, delay_s = asyncio.get_running_loop(), 0.0
        while True:
            began, code = loop.time(), await self._run_worker(number)
            if self._is_stopping or number not in self._ready:
                return code
            delay_s = 0.0 if loop.time() - began > _STEADY_S else min(max(_FIRST_DELAY_S, delay_s * 2), _LAST_DELAY_S)
            self._report(f"worker {number} ended with {_describe_exit(code)}; it is restarted")
            await asyncio.sleep(delay_s)

    async def _run_worker(self, number: int) -> int:
        command = self._command(number, number in self._ready)
        env = {name: value for name, value in os.environ.items() if name not in _ENV_OF_PARENT}
        try:
            process = await asyncio.create_subprocess_exec(
                *command, stdin=PIPE, stdout=PIPE, stderr=None, env=env, pass_fds=self._sockets, start_new_session=True
            )
        except OSError as error:
            raise ToolError(f"worker {number} cannot be started: {error.strerror}", code="worker_failed") from error
        self._processes[number] = process
        if self._is_stopping:
            process.terminate()
        assert process.stdout is not None  # noqa: S101 - it is a pipe
        if await process.stdout.readline():
            self._ready.add(number)
            if len(self._ready) == self._count:
                self.all_ready.set()
        return await process.wait()

    async def _stop(self, keeping: Sequence[asyncio.Task[int]], within_s: float) -> None:
        self.send(signal.SIGTERM)
        ending = [task for task in keeping if not task.done()]
        if not ending:
            return
        for number, process in self._processes.items():
            if process.returncode is not None:  # while it restarts
                keeping[number].cancel()
        _, late = await asyncio.wait(ending, timeout=within_s)
        if late:
            self._report(f"{len(late)} workers did not end within {within_s:g} s, and are killed")
            self.send(signal.SIGKILL)
            await asyncio.wait(late)


def watch_parent(stdin: int, on_death: Callable[[], object]) -> None:
    """Call `on_death` when the process at the other end of this worker's stdin has ended."""
    loop = asyncio.get_running_loop()

    def read() -> None:
        if not os.read(stdin, 4096):
            loop.remove_reader(stdin)
            on_death()

    loop.add_reader(stdin, read)


def _describe_exit(code: int) -> str:
    """Return the exit code of a process, or the signal that killed it."""
    try:
        return f"code {code}" if code >= 0 else signal.Signals(-code).name
    except ValueError:
        return f"signal {-code}"
