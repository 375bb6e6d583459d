"""Commands: run a program to its end with limits on time and output; no process is left behind."""

from __future__ import annotations

import asyncio
import contextlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Self

from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolError, ToolTimeoutError
from toolpost.processes.launch import Launch, launch_error, locate, working_directory
from toolpost.processes.line_splitter import LineSplitter
from toolpost.processes.pipes import OutputPipe, OutputTail, input_file
from toolpost.processes.process import Process, start
from toolpost.processes.process_supervisor import END_S, ProcessSupervisor, WorkerConnection, pack_request, start_error

OnLine = Callable[[str, "Stream"], None]

Stream = Literal["stdout", "stderr"]

SUPERVISED = sys.platform != "win32"
"""Whether commands share a supervisor; there is none on Windows."""

_LONGEST_LINE = 64 * 1024
_LINES_AT_ONCE = 100
_STDERR_BYTES = 64 * 1024
_CHUNK = 64 * 1024
_MOST_IDLE = 16


class CommandResult(NamedTuple):
    """Exit code and output of a command; for stderr, only the tail.

    If a signal ended the command, `exit_code` is minus the number of the signal. Any code is a result, not an error.
    """

    exit_code: int
    stdout: bytes
    stderr: str
    seconds: float


class CommandLimits(NamedTuple):
    """Limits on the time and the output of a command."""

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
    commands: CommandRunner | None = None,
) -> CommandResult:
    """Run a program with these arguments (no shell) and exactly this environment until all processes of it have ended.

    The program is searched on the PATH of `env`. It reads `stdin`, then end of file. `on_line(text, stream)` receives
    the lines of stdout and stderr while the command runs, without line ends, and only some lines of a flood; it must
    not raise. Without `commands`, a supervisor is started for this run, which takes a few hundredths of a second.

    All processes that the program started end with it: when it exits, at the deadline, or if the caller is canceled.
    Raises ToolConnectionError(sent=False) if it cannot be started (not found, not executable, invalid folder, NUL in an
    argument), ToolTimeoutError at the deadline, and ToolClientError(code="output_too_large") if stdout is too long.
    """
    launch, limits = Launch(argv=tuple(argv), env=env, cwd=cwd), CommandLimits(timeout_s, max_output_bytes)
    if commands is not None:
        return await commands.run(launch, limits, stdin=stdin, on_line=on_line)
    async with CommandRunner() as own:
        return await own.run(launch, limits, stdin=stdin, on_line=on_line)


class CommandRunner:
    """Runs commands under one supervisor, which starts with the first command and ends with `close` or this process.

    Each source has its own: `async with CommandRunner() as commands`, or `await commands.close()`. It belongs to the
    event loop of its first use.
    """

    def __init__(self) -> None:
        self._supervisor: ProcessSupervisor | None = None
        self._idle: list[WorkerConnection] = []
        self._runs: set[RunningCommand] = set()
        self._programs: dict[tuple[str, ...], str] = {}
        self._closed = False

    @property
    def supervisor_pid(self) -> int | None:
        """Process id of the supervisor, if it runs."""
        return None if self._supervisor is None else self._supervisor.pid

    async def run(
        self, launch: Launch, limits: CommandLimits, *, stdin: bytes = b"", on_line: OnLine | None = None
    ) -> CommandResult:
        """Run a command; see `run_command`."""
        if not SUPERVISED:
            return await _run_unsupervised(launch, limits, stdin, on_line)
        key = _lookup_key(launch)
        if (program := self._programs.get(key)) is None:
            program = self._programs[key] = locate(launch)
        request = pack_request(launch, program, long_running=False)
        run = RunningCommand(launch.argv[0], limits, on_line)
        self._runs.add(run)
        try:
            run.open_pipes(stdin)
            run.begin(await self._submit(request, run))
            words = await self._wait(run)
        finally:
            self._runs.discard(run)
            run.close()
        return run.result(self._exit_code(words, launch))

    async def close(self) -> None:
        """End every running command and start no other; safe to call twice."""
        self._closed = True
        supervisor, self._supervisor = self._supervisor, None
        for run in self._runs:
            run.end(ToolConnectionError(f"Command {run.name!r} was ended: its source or its runner was closed."))
        while self._idle:
            self._idle.pop().close()
        if supervisor is not None:
            await supervisor.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    async def _submit(self, request: bytes, run: RunningCommand) -> WorkerConnection:
        """Send the request to an idle worker or a new one; idle workers that have ended are skipped."""
        while self._idle:
            with contextlib.suppress(OSError):
                return await _submit_to(self._idle.pop(), request, run)
        try:
            return await _submit_to(await self._new_worker(), request, run)
        except OSError as failed:
            msg = f"Command {run.name!r} was not started: it has no worker ({failed}); check the limit on files."
            raise ToolConnectionError(msg, sent=False) from failed

    async def _new_worker(self) -> WorkerConnection:
        if self._supervisor is not None:
            with contextlib.suppress(ConnectionError):
                return self._supervisor.worker()
            supervisor, self._supervisor = self._supervisor, None
            await supervisor.close()
        if self._closed:
            raise launch_error("No more commands are started: its source or its runner was closed; open it again.")
        if self._supervisor is None:  # Another run may have started one concurrently.
            self._supervisor = ProcessSupervisor()
        return self._supervisor.worker()

    async def _wait(self, run: RunningCommand) -> list[str]:
        """Wait until no process of the command is left, and keep the worker for the next one."""
        worker = run.worker
        try:
            return await worker.ended()
        except asyncio.CancelledError:
            run.end(None)
            await worker.ended()
            raise
        finally:
            if worker.reusable and self._supervisor is not None and len(self._idle) < _MOST_IDLE:
                self._idle.append(worker)
            else:
                worker.close()

    def _exit_code(self, words: list[str], launch: Launch) -> int | None:
        """Read the exit code from the worker's last reply; None if it is unknown."""
        match words:
            case ["ended", code]:
                return int(code)
            case ["failed", "exec", number]:
                before, now = self._programs.pop(_lookup_key(launch), None), locate(launch)
                if before not in (None, now):
                    msg = f"Command {launch.argv[0]!r} has moved to {now!r}; run it again."
                    raise ToolConnectionError(msg, sent=False)
                raise start_error(launch, "exec", number)
            case ["failed", stage, number]:
                raise start_error(launch, stage, number)
            case _:
                return None


def _lookup_key(launch: Launch) -> tuple[str, ...]:
    """Return everything that determines the program file of a launch."""
    return launch.argv[0] if launch.argv else "", launch.env.get("PATH", ""), working_directory(launch)


async def _submit_to(worker: WorkerConnection, request: bytes, run: RunningCommand) -> WorkerConnection:
    try:
        await worker.submit(request, run.descriptors)
    except BaseException:
        worker.close()
        raise
    return worker


class RunningCommand:
    """A running command; its output is read as it arrives, within its limits."""

    worker: WorkerConnection

    def __init__(self, name: str, limits: CommandLimits, on_line: OnLine | None) -> None:
        self.name = name
        self.descriptors: list[int] = []
        self._limits = limits
        self._loop = asyncio.get_running_loop()
        self._began = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._error: ToolError | None = None
        self._stdout = bytearray()
        self._stderr = OutputTail(_STDERR_BYTES)
        self._lines = [OutputLines(on_line, "stdout"), OutputLines(on_line, "stderr")] if on_line else []
        self._pipes: list[OutputPipe] = []

    def open_pipes(self, stdin: bytes) -> None:
        try:
            for keep in (self._keep_stdout, self._keep_stderr):
                self._pipes.append(OutputPipe(keep))
                self.descriptors.append(self._pipes[-1].theirs)
            if stdin:
                self.descriptors.append(input_file(stdin))
        except OSError as failed:
            raise launch_error(
                f"Command {self.name!r} was not started: no pipe could be created ({failed.strerror}); "
                "check the limit on open files."
            ) from failed

    def begin(self, worker: WorkerConnection) -> None:
        """Start reading output, and set the deadline."""
        self.worker = worker
        self._close_descriptors()
        for pipe in self._pipes:
            pipe.listen(self._loop)
        timeout_s = self._limits.timeout_s
        self._timer = self._loop.call_later(timeout_s, lambda: self.end(_timeout_error(self.name, timeout_s)))

    def end(self, error: ToolError | None) -> None:
        """End the command with this error, without waiting for a process that cannot be killed."""
        self._error = self._error or error
        if self._timer is not None:
            self._timer.cancel()
            self.worker.end()
            self._timer = self._loop.call_later(END_S, self.worker.give_up)

    def close(self) -> None:
        """Read the rest of the pipes, and close everything."""
        self._close_descriptors()
        for pipe in self._pipes:
            pipe.drain()
            pipe.close()
        for lines in self._lines:
            lines.flush()
        if self._timer is not None:  # Reading the rest may have exceeded the limit and set a timer, too.
            self._timer.cancel()

    def result(self, code: int | None) -> CommandResult:
        """Return the result, or raise the error that ended the command."""
        if self._error is not None:
            raise self._error
        if code is None:
            raise ToolConnectionError(
                f"It is unknown how command {self.name!r} ended: the process above it was killed, or could not be "
                "started; check the limits on processes and memory."
            )
        return CommandResult(code, bytes(self._stdout), self._stderr.text, self._loop.time() - self._began)

    def _close_descriptors(self) -> None:
        """Close the command's ends of the pipes here, to detect end of file when the command closes them."""
        while self.descriptors:
            os.close(self.descriptors.pop())

    def _keep_stdout(self, data: bytes) -> None:
        self._stdout += data
        if len(self._stdout) > self._limits.max_output_bytes:
            self.end(_output_error(self.name, self._limits.max_output_bytes))
            self._pipes[0].close()
        elif self._lines:
            self._lines[0].feed(data)

    def _keep_stderr(self, data: bytes) -> None:
        self._stderr.add(data)
        if self._lines:
            self._lines[1].feed(data)


class OutputLines:
    """Report the lines of a stream; a line that is too long is reported in pieces."""

    def __init__(self, on_line: OnLine, stream: Stream) -> None:
        self._on_line = on_line
        self._stream: Stream = stream
        self._lines = LineSplitter()

    def feed(self, data: bytes) -> None:
        """Report the complete lines; of very many in one chunk, only the last."""
        for line in self._lines.feed(data)[-_LINES_AT_ONCE:]:
            self._report(line)
        if self._lines.pending_bytes > _LONGEST_LINE:
            self.flush()

    def flush(self) -> None:
        if self._lines.pending_bytes:
            self._report(self._lines.take_rest())

    def _report(self, line: bytes) -> None:
        self._on_line(line.removesuffix(b"\r").decode("utf-8", "replace"), self._stream)


def _timeout_error(name: str, timeout_s: float) -> ToolTimeoutError:
    return ToolTimeoutError(
        f"Command {name!r} did not end within {timeout_s:g} s, and was ended with all that it started; "
        "give it a longer timeout, or less to do.",
        timeout_ms=timeout_s * 1000,
    )


def _output_error(name: str, limit: int) -> ToolClientError:
    return ToolClientError(
        f"Command {name!r} wrote more than {limit} bytes to stdout, and was ended; have it write less, or raise "
        "the limit on its output.",
        code="output_too_large",
    )


async def _run_unsupervised(
    launch: Launch, limits: CommandLimits, stdin: bytes, on_line: OnLine | None
) -> CommandResult:
    """Run a command with the streams of a `Process`, as on Windows; lines of stderr are not reported."""
    name, loop = launch.argv[0] if launch.argv else "", asyncio.get_running_loop()
    began = loop.time()
    process = await start(launch, stderr_bytes=_STDERR_BYTES)
    try:
        async with asyncio.timeout(limits.timeout_s), asyncio.TaskGroup() as group:
            feeding = group.create_task(_feed(process, stdin))
            lines = OutputLines(on_line, "stdout") if on_line else None
            stdout = await _read_all(process, limits.max_output_bytes, lines)
            code = await process.wait()
            feeding.cancel()
    except TimeoutError:
        raise _timeout_error(name, limits.timeout_s) from None
    finally:
        await process.close(grace_s=0)
    if stdout is None:
        raise _output_error(name, limits.max_output_bytes)
    return CommandResult(code, stdout, process.stderr_tail, loop.time() - began)


async def _feed(process: Process, stdin: bytes) -> None:
    with contextlib.suppress(ConnectionError):
        process.stdin.write(stdin)
        await process.stdin.drain()
    process.stdin.close()


async def _read_all(process: Process, limit: int, lines: OutputLines | None) -> bytes | None:
    """Read stdout to its end; None if it exceeds the limit, and the command is then ended."""
    output = bytearray()
    while data := await process.stdout.read(_CHUNK):
        output += data
        if len(output) > limit:
            await process.close(grace_s=0)
            return None
        if lines:
            lines.feed(data)
    if lines:
        lines.flush()
    return bytes(output)
