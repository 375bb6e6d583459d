"""Host side of process supervision: the supervisor process, its workers, and long-running programs with streams.

A program never outlives this process, however either of them ends.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
from asyncio.subprocess import PIPE
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Self, cast

from toolpost.contracts.errors import ToolConnectionError
from toolpost.processes.launch import (
    Launch,
    bad_folder_error,
    exec_error,
    invalid_launch_error,
    launch_error,
    locate,
    supervisor_environment,
    working_directory,
)
from toolpost.processes.sandbox import ControlGroup, create_control_group
from toolpost.processes.supervisor_program import TERM_GRACE_S, SpawnRequest, descendants

END_S = TERM_GRACE_S + 4.0
"""How long the end of a program may take before it is no longer waited for."""

_LAST_RESORT_S = 1.0
_LONGEST_REPLY = 64
_CHUNK = 64 * 1024
_MOST_READS = 64
_FOLDER = Path(__file__).parent
# Two empty packages stand for Toolpost: its own `__init__` takes longer to import than a supervisor to start.
_BOOT = """
import sys
for name, folder in (("toolpost", sys.argv[1]), ("toolpost.processes", sys.argv[2])):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [folder]
from toolpost.processes.supervisor_program import main
main(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
"""
_START_S = 30.0
_KILL_ROUNDS = 20
_MARK, _MARK_VALUE = "TOOLPOST_STARTED_BY", secrets.token_hex(8)


def pack_request(launch: Launch, program: str, *, long_running: bool) -> bytes:
    """Encode the request for a worker to start a program."""
    request = SpawnRequest(
        program, launch.argv, {**launch.env, **host_mark()}, cwd=working_directory(launch), long_running=long_running
    )
    try:
        return request.pack()
    except ValueError:
        raise invalid_launch_error(launch) from None


def host_mark() -> dict[str, str]:
    """Return the variable by which this process knows again what it started."""
    return {_MARK: f"{os.getpid()}-{_MARK_VALUE}"}


def kill_orphans() -> None:
    """Kill what this process has started, and what is no longer below a supervisor, by its environment (Linux).

    That happens when a program kills both processes above it. One that has emptied its environment is not found.
    """
    if sys.platform != "linux":
        return
    mark = b"".join(f"{name}={value}\0".encode() for name, value in host_mark().items())
    for _ in range(_KILL_ROUNDS):
        supervised = descendants(os.getpid())
        marked = [pid for pid in _own_processes() if _has_mark(pid, mark)]
        children = {pid for pid in marked if _parent(pid) == os.getpid()}  # where orphans come to this process
        orphans = [pid for pid in marked if pid not in supervised or pid in children]
        if not orphans:
            return
        for pid in orphans:
            _kill(pid)


def _own_processes() -> list[int]:
    return [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]


def _has_mark(pid: int, mark: bytes) -> bool:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:
        return False
    return mark in environment


def _parent(pid: int) -> int:
    try:
        return int(Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[1])
    except (OSError, ValueError, IndexError):
        return 0


def _kill(pid: int) -> None:
    with contextlib.suppress(OSError):
        os.kill(pid, signal.SIGKILL)


def start_error(launch: Launch, stage: str, number: str) -> ToolConnectionError:
    """Return the error for a worker's reply that a program could not be started."""
    return bad_folder_error(launch) if stage == "cwd" else exec_error(launch, int(number))


class ProcessSupervisor:
    """A supervisor process with a control group, if one can be made; its programs end with it and with this process."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        with contextlib.ExitStack() as undo:
            self._group = create_control_group()
            if self._group:
                undo.callback(self._group.remove)
            self._socket, theirs = socket.socketpair()
            undo.callback(self._socket.close)
            with theirs:
                self._process = _start_supervisor(theirs.fileno(), self._group)
            undo.pop_all()
        self._socket.settimeout(0)
        self._loop.add_reader(self._socket.fileno(), self._on_end)

    @property
    def pid(self) -> int:
        """The supervisor's process id; it leads the process group that its workers are in, too."""
        return self._process.pid

    def worker(self, *, single_use: bool = False) -> WorkerConnection:
        """Start a worker; raise ConnectionError if the supervisor is gone.

        One for a single use runs one program, and takes the supervisor with it when that has ended.
        """
        own, theirs = socket.socketpair()
        own.settimeout(0)
        self._signal(signal.SIGCONT)
        try:
            with theirs:
                socket.send_fds(self._socket, [b"1" if single_use else b"+"], [theirs.fileno()])
        except OSError as failed:
            own.close()
            raise ConnectionError(failed.strerror) from failed
        return WorkerConnection(own)

    def end(self) -> None:
        """Have every program ended; takes effect even if a fork of this process holds a copy of the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill what can be reached without the supervisor's help: the programs first, then those above them.

        Supervisor and workers adopt all orphans also while they are stopped, so that the tree below them is complete.
        """
        if self._group is not None:
            self._group.kill()
        for _ in range(_KILL_ROUNDS):
            programs = [pid for pid, group in descendants(self.pid).items() if group != self.pid]
            if not programs:
                break
            for pid in programs:
                _kill(pid)
        self._signal(signal.SIGKILL)

    async def close(self) -> None:
        """Have every program ended, and wait until supervisor and control group are gone."""
        self.end()
        try:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._gone.wait()
            self._on_end()
            await self._reap()
        finally:
            self.abandon()

    async def _reap(self) -> None:
        deadline = self._loop.time() + _LAST_RESORT_S
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                self._process.kill()
            await asyncio.sleep(0.001)
        if self._process.returncode:  # it was killed, and may have left orphans
            await asyncio.to_thread(kill_orphans)
        for attempt in range(10):
            if self._group is None or self._group.remove():
                return
            self._group.kill()
            await asyncio.sleep(0.01 * attempt)

    def abandon(self) -> None:
        """Have every program ended without waiting for it, as a loop that is closing must; safe after `close`."""
        self.end()
        self._disconnect()
        if self._process.poll() is None:  # The loop is no longer there to reap it, and it must not stay a zombie.
            threading.Thread(target=self._process.wait, name=f"toolpost reap {self.pid}", daemon=True).start()

    def _on_end(self) -> None:
        """Kill the control group: the supervisor is gone or out of time, and may have left processes behind."""
        if not self._gone.is_set() and self._group is not None:
            self._group.kill()
        self._disconnect()

    def _disconnect(self) -> None:
        if not self._gone.is_set():
            self._gone.set()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _signal(self, number: int) -> None:
        """Signal supervisor and workers; SIGCONT wakes those that were stopped."""
        if sys.platform != "win32" and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)


def _start_supervisor(descriptor: int, group: ControlGroup | None) -> subprocess.Popen[bytes]:
    arguments = (str(_FOLDER.parent), str(_FOLDER), str(descriptor), str(os.getpid()), str(group.path) if group else "")
    nothing: Any = subprocess.DEVNULL
    try:
        return subprocess.Popen(  # noqa: S603 - this interpreter, with our own program
            (sys.executable, "-I", "-S", "-c", _BOOT, *arguments),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            cwd="/",  # A supervisor must not keep a file system from being unmounted.
            env=supervisor_environment(),
            pass_fds=(descriptor,),
            start_new_session=True,
        )
    except OSError as failed:
        raise launch_error(
            f"No program can be started: the process supervisor, {sys.executable!r}, could not be run "
            f"({failed.strerror}); check the limits on processes and open files."
        ) from failed


class WorkerConnection:
    """Connection to a worker, which runs one program at a time and none after `end`; one task at a time waits for it.

    `reply` are the words of the worker's last reply, `ended CODE` or `failed STAGE ERRNO`; there are none when the
    worker is gone or `give_up` was called.
    """

    def __init__(self, own: socket.socket) -> None:
        self._socket = own
        self._loop = asyncio.get_running_loop()
        self._received = b""
        self._news = asyncio.Event()
        self._pid: int | None = None
        self.reply: list[str] | None = None
        self.reusable = True
        self._loop.add_reader(own.fileno(), self._on_readable)

    async def submit(self, request: bytes, descriptors: Sequence[int]) -> None:
        """Send a request with the descriptors of stdout, stderr and stdin; OSError means that nothing was started."""
        self._pid = self.reply = None
        sent = socket.send_fds(self._socket, [request], descriptors)
        if sent < len(request):
            await self._loop.sock_sendall(self._socket, memoryview(request)[sent:])

    async def started(self) -> int | None:
        """Wait until a long-running program has started; return its process id, or None if it did not."""
        while self._pid is None and self.reply is None:
            await self._wait_for_news()
        return self._pid

    async def ended(self) -> list[str]:
        """Wait until no process of the program is left; return the worker's last reply."""
        while self.reply is None:
            await self._wait_for_news()
        return self.reply

    def give_up(self) -> None:
        """Wait no longer for replies."""
        self.reply = self.reply or []
        self._news.set()

    def end(self) -> None:
        """Have the program ended; takes effect even if a fork of this process holds a copy of the socket."""
        self.reusable = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Have the program ended, and stop reading replies."""
        if self._socket.fileno() >= 0:
            self._loop.remove_reader(self._socket.fileno())
        self.end()
        self._socket.close()
        self.give_up()

    async def _wait_for_news(self) -> None:
        self._news.clear()
        await self._news.wait()

    def _on_readable(self) -> None:
        try:
            chunk = self._socket.recv(_LONGEST_REPLY)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        *lines, self._received = (self._received + chunk).split(b"\n")
        for line in lines:
            match line.decode("ascii", "replace").split():
                case ["started", pid]:
                    self._pid = int(pid)
                case words:
                    self.reply = words
            self._news.set()
        if not chunk:
            self.close()


class OutputPipe:
    """A pipe for a program's output, read as data comes."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._own, self.theirs = os.pipe()
        self._keep = keep
        self._loop: asyncio.AbstractEventLoop | None = None
        os.set_blocking(self._own, False)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Begin to read."""
        self._loop = loop
        loop.add_reader(self._own, self._read)

    def drain(self) -> None:
        """Read what is left; a process elsewhere that holds the other end and writes for ever is not waited for."""
        for _ in range(_MOST_READS):
            if not self._read():
                return

    def close(self) -> None:
        """Stop reading."""
        if self._own < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._own)
        os.close(self._own)
        self._own = -1

    def _read(self) -> bool:
        """Read once; return whether there was anything."""
        if self._own < 0:
            return False
        try:
            data = os.read(self._own, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self.close()
            return False
        self._keep(data)
        return True


class OutputTail:
    """The last `limit` bytes of a stream."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._data = bytearray()

    def add(self, data: bytes) -> None:
        """Append data, dropping what is older than the limit now and then."""
        self._data += data
        if len(self._data) > 2 * self._limit:
            del self._data[: len(self._data) - self._limit]

    @property
    def text(self) -> str:
        """The tail as text; bytes that are no UTF-8 are replaced."""
        return self._data[max(0, len(self._data) - self._limit) :].decode("utf-8", "replace")


def input_file(data: bytes) -> int:
    """Return a descriptor to read these bytes from: unlike a pipe it needs no writer while the program reads."""
    if sys.platform == "linux":
        descriptor = os.memfd_create("stdin")
    else:
        from tempfile import TemporaryFile  # noqa: PLC0415 - Linux never needs it

        with TemporaryFile() as temporary:
            descriptor = os.dup(temporary.fileno())
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


async def start(
    launch: Launch,
    *,
    stderr_bytes: int = 64 * 1024,
    line_limit: int = 64 * 1024,
    receiver: asyncio.Protocol | None = None,
) -> Process:
    """Start a program under a supervisor of its own; raise ToolConnectionError with the reason if that fails.

    Of what it writes to stderr the last `stderr_bytes` are kept. `line_limit` is the longest line that
    `stdout.readline` takes; up to twice as much is read ahead before the program has to wait. A `receiver` is given
    what the program writes to stdout as soon as it is read; `stdout` is empty then.
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

    `pid` is the program's own, `supervisor_pid` that of its supervisor. Once the program has ended, what it left
    behind is ended too; only then is `returncode` known: its exit code, or minus the number of the signal that killed
    it (-9 also when its supervisor was killed).
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
        """The last of what the program wrote to stderr."""
        return self._child.stderr.text

    @property
    def returncode(self) -> int | None:
        """How the program ended; None as long as any part of it runs."""
        ended = self._watching.done() and not self._watching.cancelled()
        return self._watching.result() if ended else None

    async def wait(self) -> int:
        """Wait until the program and all that it started have ended."""
        return await asyncio.shield(self._watching)

    async def close(self, grace_s: float = 2.0) -> None:
        """Close stdin, give the program `grace_s` to end by itself, then end it with all that it started.

        Another caller waits for the same end. A caller that is cancelled stops waiting; the end comes anyway.
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
                await asyncio.wait({self._watching}, timeout=_LAST_RESORT_S)
            await self._child.close_streams()


class _SupervisedChild:
    """A program below a supervisor and a worker of its own."""

    def __init__(self, supervisor: ProcessSupervisor, worker: WorkerConnection, pipes: _Pipes) -> None:
        self._supervisor = supervisor
        self._worker = worker
        self._pipes = pipes
        self.stdin = pipes.stdin
        self.stdout = pipes.stdout
        self.stderr = pipes.stderr

    @classmethod
    async def open(cls, stderr_bytes: int, line_limit: int, receiver: asyncio.Protocol | None) -> Self:
        """Start the supervisor with one worker, and make the pipes; OSError if the limits do not permit it."""
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
        """Have the program started, and return its process id."""
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
        """Wait until the program, its supervisor and their control group are gone; return how the program ended."""
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
    """Pipes of a program: asyncio streams for stdin and stdout; stderr is always drained, and its tail kept."""

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
        """Make streams of the pipes; a receiver gets stdout itself."""
        if receiver is not None:
            self.stdout.feed_eof()
        reading = receiver or asyncio.StreamReaderProtocol(self.stdout, loop=self._loop)
        stdout, _ = await self._loop.connect_read_pipe(lambda: reading, self._stdout_file)
        self._close_stdout = stdout.close
        # A StreamWriter asks its protocol about flow control; the reader of this one stays empty.
        writing = asyncio.StreamReaderProtocol(asyncio.StreamReader(loop=self._loop), loop=self._loop)
        stdin, _ = await self._loop.connect_write_pipe(lambda: writing, self._stdin_file)
        # asyncio fails to abort a pipe that is closed already.
        self._close_stdin = lambda: stdin.abort() if stdin.get_write_buffer_size() else stdin.close()
        self.stdin = asyncio.StreamWriter(stdin, writing, None, self._loop)

    def close_theirs(self) -> None:
        """Close the program's ends, so that both sides see when the other one is gone."""
        while self.theirs:
            os.close(self.theirs.pop())

    def close_stderr(self) -> None:
        """Read what is left of stderr, and close it."""
        self._stderr_pipe.drain()
        self._stderr_pipe.close()

    def abort(self) -> None:
        """Close everything; what was not written to stdin yet is lost."""
        self.close_theirs()
        self._stderr_pipe.close()
        self._close_stdout()
        self._close_stdin()


class _UnsupervisedChild:
    """A program on Windows, where no supervisor runs: only the program itself is ended. No test covers it."""

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
    while data := await stream.read(_CHUNK):
        keep(data)


async def _hand_on(stdout: asyncio.StreamReader, receiver: asyncio.Protocol) -> None:
    await _drain(stdout, receiver.data_received)
    receiver.connection_lost(None)


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
