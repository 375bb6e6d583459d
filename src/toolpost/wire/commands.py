"""Short commands: a program is run to its end, and neither it nor anything that it started is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from typing import TYPE_CHECKING, NamedTuple, Self

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError
from toolpost.wire.keeper import Order
from toolpost.wire.launch import Launch, bad_folder, locate, not_executable, refusal, unfit
from toolpost.wire.lines import Lines
from toolpost.wire.processes import Process, start
from toolpost.wire.workers import END_S, Capture, Steward, Worker, memory_file

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

    from toolpost.contracts.errors import ToolError
    from toolpost.wire.lines import Stream

    OnLine = Callable[[str, Stream], None]

STEWARDED = sys.platform == "linux"
"""Whether commands run below a steward; elsewhere each has keepers of its own, which takes longer to start."""

_STDERR_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_MOST_IDLE = 16


class CommandResult(NamedTuple):
    """How a command ended, and what it wrote; of stderr the tail.

    `exit_code` is minus the number of the signal where one ended it. Any code is a result: whoever asks judges it.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    seconds: float


class Limits(NamedTuple):
    """What a command may take."""

    timeout_s: float
    max_output_bytes: int


async def run_command(
    argv: Sequence[str],
    *,
    env: Mapping[str, str],
    cwd: str | None = None,
    stdin: bytes = b"",
    timeout_s: float,
    max_output_bytes: int,
    on_line: OnLine | None = None,
    commands: Commands | None = None,
) -> CommandResult:
    """Run a program with these words (no shell) and this whole environment, and return once all of it has ended.

    The program is looked for on the PATH of `env`. stdin is what it reads, and then its end. `on_line(text, stream)`
    is told the lines of stdout and stderr, as they come and without their ends, of a flood only some; it must not
    raise. Without `commands` one is made for this run, which costs a few hundredths of a second.

    Whatever the program started is ended with it: when it exits, when time is up, when the caller is cancelled.
    Raises ToolConnectionError(sent=False) when it cannot be started (not there, not executable, bad folder, NUL in
    a word), ToolTimeoutError when time is up, ToolClientError(code="output_too_large") when stdout floods.
    """
    launch, limits = Launch(argv=tuple(argv), env=env, cwd=cwd), Limits(timeout_s, max_output_bytes)
    if commands is not None:
        return await commands.run(launch, limits, stdin=stdin, on_line=on_line)
    async with Commands() as own:
        return await own.run(launch, limits, stdin=stdin, on_line=on_line)


class Commands:
    """Runs commands; what it holds for that is started with the first one, and ends with `close` or with this process.

    One for each source: `async with Commands() as commands`, or `await commands.close()`. It belongs to the loop
    that it is first used on.
    """

    def __init__(self) -> None:
        self._steward: Steward | None = None
        self._idle: list[Worker] = []
        self._runs: set[Run] = set()
        self._programs: dict[tuple[str, ...], str] = {}
        self._closed = False

    @property
    def steward_pid(self) -> int | None:
        """The process that the commands run below, once there is one."""
        return None if self._steward is None else self._steward.pid

    async def run(
        self, launch: Launch, limits: Limits, *, stdin: bytes = b"", on_line: OnLine | None = None
    ) -> CommandResult:
        """Run one; see `run_command`."""
        if not STEWARDED:
            return await _run_kept(launch, limits, stdin, on_line)
        order = self._order(launch)
        run = Run(launch.argv[0], limits, on_line)
        self._runs.add(run)
        try:
            run.open(stdin)
            worker = await self._given(order, run)
            run.began()
            words = await self._ended(run, worker)
        finally:
            self._runs.discard(run)
            run.close()
        return run.result(self._code(words, launch))

    async def close(self) -> None:
        """End every command that still runs, and start no other; safe to call twice."""
        self._closed = True
        steward, self._steward = self._steward, None
        for run in self._runs:
            run.stop(ToolConnectionError(f"Command {run.name!r} was ended: whoever runs it was closed."))
        while self._idle:
            self._idle.pop().close()
        if steward is not None:
            await steward.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def _order(self, launch: Launch) -> bytes:
        if (program := self._programs.get(_place(launch))) is None:
            program = self._programs[_place(launch)] = locate(launch)
        try:
            return Order(program, launch.argv, dict(launch.env), cwd=_folder(launch), group="").pack()
        except ValueError:
            raise unfit(launch) from None

    async def _given(self, order: bytes, run: Run) -> Worker:
        """A worker that has taken the order; those that somebody killed while they were idle are passed over."""
        while self._idle:
            with contextlib.suppress(OSError):
                return await self._taken(self._idle.pop(), order, run)
        try:
            return await self._taken(await self._new_worker(), order, run)
        except OSError as failed:
            msg = f"Command {run.name!r} was not started: its worker could not be ({failed}); check the limit on files."
            raise ToolConnectionError(msg, sent=False) from failed

    async def _taken(self, worker: Worker, order: bytes, run: Run) -> Worker:
        try:
            await worker.take(order, run.descriptors)
        except BaseException:
            worker.close()
            raise
        return worker

    async def _new_worker(self) -> Worker:
        if self._steward is not None:
            with contextlib.suppress(ConnectionError):
                return self._steward.worker()
            steward, self._steward = self._steward, None
            await steward.close()
        if self._closed:
            raise refusal("No command is started any more: whoever runs them was closed; open it anew.")
        if self._steward is None:  # Another run may have started one in the meantime.
            self._steward = Steward()
        return self._steward.worker()

    async def _ended(self, run: Run, worker: Worker) -> list[str]:
        """Wait until nothing of the command is left, and keep the worker for the next one."""
        run.worker = worker
        try:
            return await worker.answer()
        except asyncio.CancelledError:
            run.stop(None)
            await worker.answer()
            raise
        finally:
            if worker.usable and self._steward is not None and len(self._idle) < _MOST_IDLE:
                self._idle.append(worker)
            else:
                worker.close()

    def _code(self, words: list[str], launch: Launch) -> int | None:
        """The exit code; None when nobody knows it."""
        match words:
            case ["ended", code]:
                return int(code)
            case ["failed", "cwd", _]:
                raise bad_folder(launch)
            case ["failed", _, number]:
                before, now = self._programs.pop(_place(launch), None), locate(launch)
                if before not in (None, now):
                    msg = f"Command {launch.argv[0]!r} is no longer where it was, but in {now!r}; run it again."
                    raise ToolConnectionError(msg, sent=False)
                raise not_executable(launch, int(number))
            case _:
                return None


def _place(launch: Launch) -> tuple[str, ...]:
    """All that decides which program a launch means."""
    return launch.argv[0] if launch.argv else "", launch.env.get("PATH", ""), _folder(launch)


def _folder(launch: Launch) -> str:
    """Where it runs, wherever its worker is."""
    if launch.cwd and os.path.isabs(launch.cwd):  # noqa: PTH117 - half the price, on the way of every call
        return launch.cwd
    try:
        here = os.getcwd()  # noqa: PTH109 - likewise
    except FileNotFoundError:
        raise refusal("No command can be run in a folder that is gone: ours is; give it a `cwd`.") from None
    return os.path.join(here, launch.cwd) if launch.cwd else here  # noqa: PTH118 - likewise


class Run:
    """One command under way: what it writes is read as it comes."""

    def __init__(self, name: str, limits: Limits, on_line: OnLine | None) -> None:
        self.name = name
        self.descriptors: list[int] = []
        self.worker: Worker | None = None
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._why: ToolError | None = None
        self._out = bytearray()
        self._err = bytearray()
        self._lines = [Lines(on_line, "stdout"), Lines(on_line, "stderr")] if on_line else []
        self._captures: list[Capture] = []

    def open(self, stdin: bytes) -> None:
        """Make the pipes."""
        try:
            for keep in (self._keep_stdout, self._keep_stderr):
                self._captures.append(Capture(keep))
                self.descriptors.append(self._captures[-1].theirs)
            if stdin:
                self.descriptors.append(memory_file(stdin))
        except OSError as failed:
            raise refusal(
                f"Command {self.name!r} was not started: there was no pipe to be had for it ({failed.strerror}); "
                "check the limit on open files."
            ) from failed

    def began(self) -> None:
        """Read from now on, and end it when time is up."""
        self._let_go()
        for capture in self._captures:
            capture.listen(self._loop)
        self._timer = self._loop.call_later(self._limits.timeout_s, self._late)

    def stop(self, why: ToolError | None) -> None:
        """Have it ended; whoever cannot be killed is not waited for."""
        self._why = self._why or why
        if self.worker is not None:
            self.worker.hang_up()
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_later(END_S, self.worker.give_up)

    def close(self) -> None:
        """Let go of everything; what is in the pipes is read first."""
        self._let_go()
        for capture in self._captures:
            capture.drain()
            capture.close()
        for lines in self._lines:
            lines.end()
        if self._timer is not None:  # The last of a flood sets one, too.
            self._timer.cancel()

    def result(self, code: int | None) -> CommandResult:
        """What came of it; raises why it was stopped."""
        if self._why is not None:
            raise self._why
        if code is None:
            raise ToolConnectionError(
                f"Nobody knows how command {self.name!r} ended: the process above it was killed, or could not be "
                "started; check the limits on processes and memory."
            )
        stderr = self._err[-_STDERR_BYTES:].decode("utf-8", "replace")
        return CommandResult(code, bytes(self._out), stderr, self._loop.time() - self._began)

    def _let_go(self) -> None:
        """The command alone holds its ends of the pipes."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _late(self) -> None:
        self.stop(_late(self.name, self._limits.timeout_s))

    def _keep_stdout(self, data: bytes) -> None:
        self._out += data
        if len(self._out) > self._limits.max_output_bytes:
            self.stop(_flooded(self.name, self._limits.max_output_bytes))
            self._captures[0].close()
        elif self._lines:
            self._lines[0].take(data)

    def _keep_stderr(self, data: bytes) -> None:
        self._err += data
        if len(self._err) > 2 * _STDERR_BYTES:
            del self._err[:-_STDERR_BYTES]
        if self._lines:
            self._lines[1].take(data)


def _late(name: str, timeout_s: float) -> ToolTimeoutError:
    return ToolTimeoutError(
        f"Command {name!r} did not end within {timeout_s:g} s, and was ended with all that it started; "
        "give it a longer timeout, or less to do.",
        timeout_ms=timeout_s * 1000,
    )


def _flooded(name: str, limit: int) -> ToolClientError:
    return ToolClientError(
        f"Command {name!r} wrote more than {limit} bytes to stdout, and was ended; have it write less, or raise "
        "the limit on its output.",
        code="output_too_large",
    )


async def _run_kept(launch: Launch, limits: Limits, stdin: bytes, on_line: OnLine | None) -> CommandResult:
    """Run a command below keepers of its own, where there is no steward; lines of stderr are not told here."""
    name, loop = launch.argv[0] if launch.argv else "", asyncio.get_running_loop()
    began = loop.time()
    process = await start(launch, stderr_bytes=_STDERR_BYTES)
    try:
        async with asyncio.timeout(limits.timeout_s), asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(process, stdin))
            stdout = await _all_of(process, limits.max_output_bytes, Lines(on_line, "stdout") if on_line else None)
            code = await process.wait()
            feeding.cancel()
    except TimeoutError:
        raise _late(name, limits.timeout_s) from None
    finally:
        await process.close(grace_s=0)
    if stdout is None:
        raise _flooded(name, limits.max_output_bytes)
    return CommandResult(code, stdout, process.stderr_tail, loop.time() - began)


async def _feed(process: Process, stdin: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _all_of(process: Process, limit: int, lines: Lines | None) -> bytes | None:
    """Everything that it writes to stdout; None when that was too much, and it is being ended."""
    found = bytearray()
    while data := await process.stdout.read(_CHUNK):
        found += data
        if len(found) > limit:
            await process.close(grace_s=0)
            return None
        if lines:
            lines.take(data)
    if lines:
        lines.end()
    return bytes(found)
