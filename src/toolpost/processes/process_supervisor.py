"""Host side of process supervision: the supervisor process and its workers.

A program never outlives this process, regardless of how either of them ends.
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
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.processes.launch import (
    Launch,
    bad_folder_error,
    exec_error,
    invalid_launch_error,
    launch_error,
    supervisor_environment,
    working_directory,
)
from toolpost.processes.sandbox import ControlGroup, create_control_group
from toolpost.processes.supervisor_program import TERM_GRACE_S, SpawnRequest, descendants

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.errors import ToolConnectionError

END_S = TERM_GRACE_S + 4.0  # the longest wait for the end of a program
LAST_RESORT_S = 1.0
_LONGEST_REPLY = 64
_FOLDER = Path(__file__).parent
# Two empty packages replace Toolpost: importing its `__init__` takes longer than starting a supervisor.
_BOOT = """
import sys
for name, folder in (("toolpost", sys.argv[1]), ("toolpost.processes", sys.argv[2])):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [folder]
from toolpost.processes.supervisor_program import main
main(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
"""
_KILL_ROUNDS = 20
_MARK, _MARK_VALUE = "TOOLPOST_STARTED_BY", secrets.token_hex(8)


class ProcessSupervisor:
    """A supervisor process, with a control group if possible; its programs end with it and with this process."""

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
        """The supervisor's process id, which is also the process group of its workers."""
        return self._process.pid

    def worker(self, *, single_use: bool = False) -> WorkerConnection:
        """Start a worker; raise ConnectionError if the supervisor has ended.

        A worker for a single use runs one program, and ends the supervisor after it.
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
        """End every program; takes effect even if a fork of this process holds a copy of the socket."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """Kill all processes that can be reached without the supervisor: programs first, then the processes above them.

        Supervisor and workers adopt all orphans even while they are stopped, so the tree below them is complete.
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
        """End every program, and wait until the supervisor and its control group are gone."""
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
        deadline = self._loop.time() + LAST_RESORT_S
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
        """End every program without waiting, as a closing loop must; safe after `close`."""
        self.end()
        self._disconnect()
        if self._process.poll() is None:  # The loop can no longer reap it, and it must not remain a zombie.
            threading.Thread(target=self._process.wait, name=f"toolpost reap {self.pid}", daemon=True).start()

    def _on_end(self) -> None:
        """Kill the control group: the supervisor has ended or is too slow, and may have left processes behind."""
        if not self._gone.is_set() and self._group is not None:
            self._group.kill()
        self._disconnect()

    def _disconnect(self) -> None:
        if not self._gone.is_set():
            self._gone.set()
            self._loop.remove_reader(self._socket.fileno())
            self._socket.close()

    def _signal(self, number: int) -> None:
        """Signal supervisor and workers; SIGCONT resumes stopped ones."""
        if sys.platform != "win32" and self._process.poll() is None:
            with contextlib.suppress(OSError):
                os.killpg(self._process.pid, number)


class WorkerConnection:
    """Connection to a worker, which runs one program at a time and none after `end`; one task at a time waits for it.

    `reply` contains the words of the worker's last reply, `ended CODE` or `failed STAGE ERRNO`. It is empty if the
    worker has ended or `give_up` was called.
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
        """Send a request with the descriptors of stdout, stderr and stdin; on OSError, nothing was started."""
        self._pid = self.reply = None
        sent = socket.send_fds(self._socket, [request], descriptors)
        if sent < len(request):
            await self._loop.sock_sendall(self._socket, memoryview(request)[sent:])

    async def started(self) -> int | None:
        """Wait until a long-running program has started; return its process id, or None if it did not start."""
        while self._pid is None and self.reply is None:
            await self._wait_for_news()
        return self._pid

    async def ended(self) -> list[str]:
        """Wait until no process of the program is left; return the worker's last reply."""
        while self.reply is None:
            await self._wait_for_news()
        return self.reply

    def give_up(self) -> None:
        """Stop waiting for replies."""
        self.reply = self.reply or []
        self._news.set()

    def end(self) -> None:
        """End the program; takes effect even if a fork of this process holds a copy of the socket."""
        self.reusable = False
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End the program, and stop reading replies."""
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


def pack_request(launch: Launch, program: str, *, long_running: bool) -> bytes:
    """Encode the request for a worker to start a program."""
    request = SpawnRequest(
        program, launch.argv, {**launch.env, **host_mark()}, cwd=working_directory(launch), long_running=long_running
    )
    try:
        return request.pack()
    except ValueError:
        raise invalid_launch_error(launch) from None


def start_error(launch: Launch, stage: str, number: str) -> ToolConnectionError:
    """Return the error for a worker's reply that a program could not be started."""
    return bad_folder_error(launch) if stage == "cwd" else exec_error(launch, int(number))


def kill_orphans() -> None:
    """Kill processes of this process that are no longer below a supervisor, found by their environment (Linux).

    This is needed if a program kills both processes above it. A program that clears its environment is not found.
    """
    if sys.platform != "linux":
        return
    mark = b"".join(f"{name}={value}\0".encode() for name, value in host_mark().items())
    for _ in range(_KILL_ROUNDS):
        supervised = descendants(os.getpid())
        pids = [int(path.name) for path in Path("/proc").iterdir() if path.name.isdigit()]
        marked = [pid for pid in pids if _has_mark(pid, mark)]
        children = {pid for pid in marked if _parent(pid) == os.getpid()}  # if orphans are adopted by this process
        orphans = [pid for pid in marked if pid not in supervised or pid in children]
        if not orphans:
            return
        for pid in orphans:
            _kill(pid)


def host_mark() -> dict[str, str]:
    """Return the variable that marks the processes started by this process."""
    return {_MARK: f"{os.getpid()}-{_MARK_VALUE}"}


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
