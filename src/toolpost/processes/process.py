"""Child processes with pipes, run by the process supervisor if the platform has one."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from typing import TYPE_CHECKING, Self, cast

from toolpost.processes.launch import Launch, exec_error, launch_error, locate
from toolpost.processes.pipes import CHUNK, OutputPipe, OutputTail
from toolpost.processes.process_supervisor import (
    END_S,
    LAST_RESORT_S,
    ProcessSupervisor,
    WorkerConnection,
    pack_request,
    start_error,
)

if TYPE_CHECKING:
    from collections.abc import Callable

_START_S = 30.0


async def start(
    launch: Launch,
    *,
    stderr_bytes: int = 64 * 1024,
    line_limit: int = 64 * 1024,
    receiver: asyncio.Protocol | None = None,
) -> Process:
    """Start a program under its own supervisor; raise ToolConnectionError with the reason if that fails.

    The last `stderr_bytes` of stderr are kept. `line_limit` is the longest line of `stdout.readline`; up to twice as
    much is read ahead before the program has to wait. A `receiver` gets stdout as it is read; `stdout` is then empty.
    """
    program = locate(launch)
    if sys.platform == "win32":
        return await _start_unsupervised(launch, program, stderr_bytes, line_limit, receiver)
    request = pack_request(launch, program, long_running=True)
    try:
        child = await _SupervisedChild.open(stderr_bytes, line_limit, receiver)
    except OSError as failed:
        raise launch_error(
            f"Command {launch.argv[0]!r} was not started: it could be given no supervisor or no pipes "
            f"({failed}); check the limits on processes and open files."
        ) from failed
    try:
        pid = await child.spawn(launch, request)
    except BaseException:
        await Process(child, pid=0).close(grace_s=0)
        raise
    return Process(child, pid=pid)


class Process:
    """A running program with its streams.

    `pid` is the program's, `supervisor_pid` that of its supervisor. When the program has ended, the processes that it
    left behind are ended too. Only then `returncode` is set: the exit code, or minus the number of the signal that
    killed it (-9 also if its supervisor was killed).
    """

    def __init__(self, child: _SupervisedChild | _UnsupervisedChild, *, pid: int) -> None:
        self.pid = pid
        self.supervisor_pid = child.supervisor_pid
        self.stdin = child.stdin
        self.stdout = child.stdout
        self._child = child
        self._watching = asyncio.create_task(child.wait(), name=f"toolpost process {pid}")
        self._closing: asyncio.Task[None] | None = None

    @property
    def stderr_tail(self) -> str:
        """The end of the program's stderr."""
        return self._child.stderr.text

    @property
    def returncode(self) -> int | None:
        """The exit status of the program; None while any part of it runs."""
        ended = self._watching.done() and not self._watching.cancelled()
        return self._watching.result() if ended else None

    async def wait(self) -> int:
        """Wait until the program and all its processes have ended."""
        return await asyncio.shield(self._watching)

    async def close(self, grace_s: float = 2.0) -> None:
        """Close stdin, wait `grace_s` for the program to end, then end it with all its processes.

        Concurrent callers wait for the same end. A canceled caller stops waiting; the program is ended nevertheless.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace_s), name=f"toolpost close {self.pid}")
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Process pid={self.pid} returncode={self.returncode}>"

    async def _close(self, grace_s: float) -> None:
        try:
            self.stdin.close()
            await asyncio.wait({self._watching}, timeout=grace_s)
        finally:
            self._child.terminate()
            await asyncio.wait({self._watching}, timeout=END_S)
            if not self._watching.done():  # A process cannot be killed, or belongs to another user.
                self._child.kill()
                await asyncio.wait({self._watching}, timeout=LAST_RESORT_S)
            await self._child.close_streams()


class _SupervisedChild:
    """A program under its own supervisor and worker."""

    def __init__(self, supervisor: ProcessSupervisor, worker: WorkerConnection, pipes: _Pipes) -> None:
        self._supervisor = supervisor
        self._worker = worker
        self._pipes = pipes
        self.stdin = pipes.stdin
        self.stdout = pipes.stdout
        self.stderr = pipes.stderr

    @classmethod
    async def open(cls, stderr_bytes: int, line_limit: int, receiver: asyncio.Protocol | None) -> Self:
        """Start the supervisor with one worker, and create the pipes; OSError if the limits do not permit it."""
        async with contextlib.AsyncExitStack() as undo:
            pipes = _Pipes(stderr_bytes, line_limit)
            undo.callback(pipes.abort)
            await pipes.connect(receiver)
            supervisor = ProcessSupervisor()
            undo.push_async_callback(supervisor.close)
            worker = supervisor.worker(single_use=True)
            undo.pop_all()
        return cls(supervisor, worker, pipes)

    @property
    def supervisor_pid(self) -> int:
        return self._supervisor.pid

    async def spawn(self, launch: Launch, request: bytes) -> int:
        """Start the program and return its process id."""
        with contextlib.suppress(TimeoutError, OSError):  # no reply then
            async with asyncio.timeout(_START_S):
                await self._worker.submit(request, self._pipes.theirs)
                self._pipes.close_theirs()
                pid = await self._worker.started()
            if pid is not None:
                return pid
        match self._worker.reply:
            case ["failed", stage, number]:
                raise start_error(launch, stage, number)
            case _:
                raise launch_error(
                    f"Command {launch.argv[0]!r} was not started: its supervisor, {sys.executable!r}, ended before it "
                    f"could, or took longer than {_START_S:g} s; check that this interpreter runs with `-I -S`."
                )

    async def wait(self) -> int:
        """Wait until the program, its supervisor and their control group are gone; return the program's status."""
        try:
            words = await self._worker.ended()
            await self._supervisor.close()
        except asyncio.CancelledError:  # The loop is closing.
            self._pipes.abort()
            raise
        finally:
            self._worker.close()
            self._supervisor.abandon()
            self._pipes.close_stderr()
        return int(words[1]) if words[:1] == ["ended"] else -signal.SIGKILL

    def terminate(self) -> None:
        self._worker.end()
        self._supervisor.end()

    def kill(self) -> None:
        self._supervisor.kill()
        self._worker.give_up()

    async def close_streams(self) -> None:
        self._pipes.abort()
        with contextlib.suppress(OSError):
            await self.stdin.wait_closed()


class _Pipes:
    """Pipes of a program: asyncio streams for stdin and stdout; stderr is always drained, and its tail is kept."""

    stdin: asyncio.StreamWriter

    def __init__(self, stderr_bytes: int, line_limit: int) -> None:
        self._loop = asyncio.get_running_loop()
        self.stdout = asyncio.StreamReader(limit=line_limit, loop=self._loop)
        self.stderr = OutputTail(stderr_bytes)
        self.theirs: list[int] = []
        with contextlib.ExitStack() as undo:
            undo.callback(self.close_theirs)
            own, theirs = os.pipe()
            self._stdout_file = undo.enter_context(os.fdopen(own, "rb", 0))
            self.theirs.append(theirs)
            self._stderr_pipe = OutputPipe(self.stderr.add)
            undo.callback(self._stderr_pipe.close)
            self.theirs.append(self._stderr_pipe.theirs)
            theirs, own = os.pipe()
            self._stdin_file = undo.enter_context(os.fdopen(own, "wb", 0))
            self.theirs.append(theirs)
            undo.pop_all()
        self._stderr_pipe.listen(self._loop)
        self._close_stdout = self._stdout_file.close
        self._close_stdin = self._stdin_file.close

    async def connect(self, receiver: asyncio.Protocol | None) -> None:
        """Create streams for the pipes; a receiver gets stdout directly."""
        if receiver is not None:
            self.stdout.feed_eof()
        reading = receiver or asyncio.StreamReaderProtocol(self.stdout, loop=self._loop)
        stdout, _ = await self._loop.connect_read_pipe(lambda: reading, self._stdout_file)
        self._close_stdout = stdout.close
        # A StreamWriter uses the flow control of its protocol; the reader of this one stays empty.
        writing = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=self._loop), loop=self._loop)
        stdin, _ = await self._loop.connect_write_pipe(lambda: writing, self._stdin_file)
        # asyncio fails to abort a pipe that is closed already.
        self._close_stdin = lambda: stdin.abort() if stdin.get_write_buffer_size() else stdin.close()
        self.stdin = asyncio.StreamWriter(stdin, writing, None, self._loop)

    def close_theirs(self) -> None:
        """Close the program's ends here, to let each side detect the end of the other."""
        while self.theirs:
            os.close(self.theirs.pop())

    def close_stderr(self) -> None:
        self._stderr_pipe.drain()
        self._stderr_pipe.close()

    def abort(self) -> None:
        """Close everything; data not yet written to stdin is lost."""
        self.close_theirs()
        self._stderr_pipe.close()
        self._close_stdout()
        self._close_stdin()


async def _start_unsupervised(
    launch: Launch, program: str, stderr_bytes: int, line_limit: int, receiver: asyncio.Protocol | None
) -> Process:
    try:
        process = await asyncio.create_subprocess_exec(
            program,
            *launch.argv[1:],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(launch.env),
            cwd=launch.cwd,
            limit=line_limit,
        )
    except OSError as failed:
        raise exec_error(launch, failed.errno or 0) from failed
    return Process(_UnsupervisedChild(process, stderr_bytes, receiver), pid=process.pid)


class _UnsupervisedChild:
    """A program on Windows, without a supervisor: only the program itself is ended. No test covers it."""

    def __init__(
        self, process: asyncio.subprocess.Process, stderr_bytes: int, receiver: asyncio.Protocol | None
    ) -> None:
        self._process = process
        self.stdin = cast("asyncio.StreamWriter", process.stdin)
        self.stdout = cast("asyncio.StreamReader", process.stdout)
        self.stderr = OutputTail(stderr_bytes)
        self._draining = asyncio.gather(
            _drain(cast("asyncio.StreamReader", process.stderr), self.stderr.add),
            *(() if receiver is None else (_hand_on(self.stdout, receiver),)),
        )

    @property
    def supervisor_pid(self) -> int:
        return self._process.pid

    async def wait(self) -> int:
        return await self._process.wait()

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.terminate()

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def close_streams(self) -> None:
        self.stdin.close()
        self._draining.cancel()


async def _drain(stream: asyncio.StreamReader, keep: Callable[[bytes], None]) -> None:
    while data := await stream.read(CHUNK):
        keep(data)


async def _hand_on(stdout: asyncio.StreamReader, receiver: asyncio.Protocol) -> None:
    await _drain(stdout, receiver.data_received)
    receiver.connection_lost(None)
