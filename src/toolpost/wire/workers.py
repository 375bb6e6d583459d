"""The host's ends of all that lies between it and a steward: the lines to its workers, the pipes of their commands."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from toolpost.wire.cgroups import ControlGroup, make_group
from toolpost.wire.environment import keeper_environment
from toolpost.wire.keeper import TERM_GRACE_S
from toolpost.wire.launch import refusal

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

END_S = TERM_GRACE_S + 4.0
"""How long the end of a command may take before nobody waits for it any more."""

_LONGEST_ANSWER = 64
_LAST_RESORT_S = 1.0
_CHUNK = 64 * 1024
_MOST_READS = 64
_WIRE = Path(__file__).parent
# Two empty packages stand for Toolpost: its own `__init__` takes longer to import than a steward to start.
_BOOT = """
import sys
for name, folder in (("toolpost", sys.argv[1]), ("toolpost.wire", sys.argv[2])):
    sys.modules[name] = type(sys)(name)
    sys.modules[name].__path__ = [folder]
from toolpost.wire.steward import main
main(int(sys.argv[3]), int(sys.argv[4]), sys.argv[5])
"""


class Steward:
    """A running steward; without it, and so without this process, none of its commands run on."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._gone = asyncio.Event()
        with contextlib.ExitStack() as undo:
            self._group = make_group()
            if self._group:
                undo.callback(self._group.remove)
            self._line, theirs = socket.socketpair()
            undo.callback(self._line.close)
            with theirs:
                self._process = _started(theirs.fileno(), self._group)
            undo.pop_all()
        self._line.settimeout(0)
        self._loop.add_reader(self._line.fileno(), self._end)

    @property
    def pid(self) -> int:
        """The process that all of its commands run below."""
        return self._process.pid

    def worker(self) -> Worker:
        """A new worker; ConnectionError when the steward is gone."""
        own, theirs = socket.socketpair()
        own.settimeout(0)
        self._wake()
        try:
            with theirs:
                socket.send_fds(self._line, [b"+"], [theirs.fileno()])
        except OSError as failed:
            own.close()
            raise ConnectionError(failed.strerror) from failed
        return Worker(own)

    async def close(self) -> None:
        """Have everything ended, and wait for it."""
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)
        self._wake()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await self._gone.wait()
        self._end()
        await self._buried()

    def _wake(self) -> None:
        """Let it go on; somebody may have stopped it."""
        self._process.send_signal(signal.SIGCONT)

    def _end(self) -> None:
        """The steward is gone, or has had its time; should it have left anybody, its control group holds them."""
        if self._gone.is_set():
            return
        self._gone.set()
        self._loop.remove_reader(self._line.fileno())
        self._line.close()
        if self._group is not None:
            self._group.kill()

    async def _buried(self) -> None:
        deadline = self._loop.time() + _LAST_RESORT_S
        while self._process.poll() is None:
            if self._loop.time() > deadline:
                self._process.kill()
            await asyncio.sleep(0.001)
        for attempt in range(10):
            if self._group is None or self._group.remove():
                return
            self._group.kill()
            await asyncio.sleep(0.01 * attempt)


def _started(descriptor: int, group: ControlGroup | None) -> subprocess.Popen[bytes]:
    folders = (str(_WIRE.parent), str(_WIRE))
    words = (*folders, str(descriptor), str(os.getpid()), str(group.path) if group else "")
    nothing: Any = subprocess.DEVNULL
    try:
        return subprocess.Popen(  # noqa: S603 - this interpreter, with our own program
            (sys.executable, "-I", "-S", "-c", _BOOT, *words),
            stdin=nothing,
            stdout=nothing,
            stderr=nothing,
            env=keeper_environment(),
            pass_fds=(descriptor,),
            start_new_session=True,
        )
    except OSError as failed:
        raise refusal(
            f"No command can be run: the steward of commands, {sys.executable!r}, could not be started "
            f"({failed.strerror}); check the limits on processes and open files."
        ) from failed


class Worker:
    """A worker; it takes one order at a time, and after `hang_up` no other."""

    def __init__(self, own: socket.socket) -> None:
        self._line = own
        self._loop = asyncio.get_running_loop()
        self._answer: asyncio.Future[None] | None = None
        self._heard = b""
        self.usable = True
        self._loop.add_reader(own.fileno(), self._hear)

    async def take(self, order: bytes, descriptors: Sequence[int]) -> None:
        """Give it an order; OSError when it is gone, and then nothing was started."""
        self._heard = b""
        sent = socket.send_fds(self._line, [order], descriptors)
        if sent < len(order):
            await self._loop.sock_sendall(self._line, memoryview(order)[sent:])

    async def answer(self) -> list[str]:
        """Wait for the words of its answer; there are none when the worker is gone, or `give_up` was called."""
        if not self._heard and self._line.fileno() >= 0:
            self._answer = self._loop.create_future()
            await self._answer
        return self._heard.decode("ascii", "replace").split()

    def give_up(self) -> None:
        """Wait no more."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(None)

    def hang_up(self) -> None:
        """Have the command ended; in force even if a forked copy of this process holds the socket."""
        self.usable = False
        with contextlib.suppress(OSError):
            self._line.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Hang up, and stop listening."""
        if self._line.fileno() >= 0:
            self._loop.remove_reader(self._line.fileno())
        self.hang_up()
        self._line.close()

    def _hear(self) -> None:
        try:
            chunk = self._line.recv(_LONGEST_ANSWER)
        except BlockingIOError:
            return
        except OSError:
            chunk = b""
        if not chunk:
            self.close()
        self._heard += chunk
        if not chunk or chunk.endswith(b"\n"):
            self.give_up()


class Capture:
    """A pipe: one end is read here, the other is the command's."""

    def __init__(self, keep: Callable[[bytes], None]) -> None:
        self._own, self.theirs = os.pipe()
        self._keep = keep
        self._loop: asyncio.AbstractEventLoop | None = None
        os.set_blocking(self._own, False)

    def listen(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read whatever comes."""
        self._loop = loop
        loop.add_reader(self._own, self._read)

    def drain(self) -> None:
        """Read what is left; whoever else may hold the other end, and write for ever, is not waited for."""
        for _ in range(_MOST_READS):
            if not self._read():
                return

    def close(self) -> None:
        """Read no more."""
        if self._own < 0:
            return
        if self._loop is not None:
            self._loop.remove_reader(self._own)
        os.close(self._own)
        self._own = -1

    def _read(self) -> bool:
        """Take what has come; whether there was anything."""
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


def memory_file(data: bytes) -> int:
    """A file in memory to read from, at its beginning: it has an end, and nobody has to write while it is read."""
    descriptor = os.memfd_create("stdin")
    try:
        with open(descriptor, "wb", closefd=False) as file:
            file.write(data)
        os.lseek(descriptor, 0, os.SEEK_SET)
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor
