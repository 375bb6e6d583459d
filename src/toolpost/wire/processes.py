"""Supervised child processes: what is started here never outlives its host, however either of them ends."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from asyncio.subprocess import PIPE
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Self, TypeVar

from toolpost.wire.cgroups import ControlGroup, make_group
from toolpost.wire.environment import keeper_environment
from toolpost.wire.keeper import TERM_GRACE_S, Order
from toolpost.wire.launch import Launch, bad_folder, locate, not_executable, refusal, unfit
from toolpost.wire.lifeline import Lifeline
from toolpost.wire.pipes import Pipes

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

__all__ = ["Launch", "Process", "start"]

_KEEPER = str(Path(__file__).with_name("keeper.py"))
_START_S = 30.0
_END_S = TERM_GRACE_S + 4.0
_LAST_RESORT_S = 1.0
_Value = TypeVar("_Value")


async def start(launch: Launch, *, stderr_bytes: int = 64 * 1024, line_limit: int = 64 * 1024) -> Process:
    """Start a program under its keeper; a ToolConnectionError says why it could not be.

    Of what it writes to stderr the last `stderr_bytes` are kept. `line_limit` is the longest line that
    `stdout.readline` takes; up to twice as much is read ahead before the program has to wait.
    """
    program = locate(launch)
    pipes = partial(Pipes, stderr_bytes=stderr_bytes, line_limit=line_limit)
    if sys.platform == "win32":
        return await _start_bare(launch, program, pipes)
    return await _start_kept(launch, program, pipes)


class Process:
    """A running program with its pipes.

    `pid` is the program's own, `keeper_pid` that of the process above it. Once the program has ended, what it
    left behind is ended too; only then is `returncode` known: its exit code, or minus the number of the signal
    that killed it (-9 also when somebody killed a keeper).
    """

    def __init__(self, child: _Child, *, pid: int) -> None:
        self.pid = pid
        self.keeper_pid = child.transport.get_pid()
        self._child = child
        self._watching = asyncio.create_task(child.ended(), name=f"toolpost process {pid}")
        self._closing: asyncio.Task[None] | None = None

    @property
    def stdin(self) -> asyncio.StreamWriter:
        """Where the program reads from."""
        return _present(self._child.pipes.stdin)

    @property
    def stdout(self) -> asyncio.StreamReader:
        """What the program writes."""
        return _present(self._child.pipes.stdout)

    @property
    def stderr_tail(self) -> str:
        """The last of what the program wrote to stderr."""
        return self._child.pipes.stderr_tail

    @property
    def returncode(self) -> int | None:
        """How the program ended; None as long as anything of it runs."""
        ended = self._watching.done() and not self._watching.cancelled()
        return self._watching.result() if ended else None

    async def wait(self) -> int:
        """Wait until the program and all that it started have ended."""
        return await asyncio.shield(self._watching)

    async def close(self, grace_s: float = 2.0) -> None:
        """Close stdin, give the program so long to end by itself, then end it with all that it started.

        Whoever calls again waits for the same end. A caller that is cancelled stops waiting; the end comes anyway.
        """
        if self._closing is None:
            self._closing = asyncio.create_task(self._close(grace_s), name=f"toolpost close {self.pid}")
        await asyncio.shield(self._closing)

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __repr__(self) -> str:
        return f"<Process pid={self.pid} returncode={self.returncode}>"

    async def _close(self, grace_s: float) -> None:
        try:
            self.stdin.close()
            await asyncio.wait({self._watching}, timeout=grace_s)
        finally:
            self._child.hang_up()
            await self._bury()

    async def _bury(self) -> None:
        await asyncio.wait({self._watching}, timeout=_END_S)
        if not self._watching.done():  # Somebody cannot be killed, or belongs to another user.
            self._child.kill()
            await asyncio.wait({self._watching}, timeout=_LAST_RESORT_S)
        self._child.transport.close()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_LAST_RESORT_S):
                await self._child.pipes.closed.wait()


@dataclass(frozen=True, slots=True, kw_only=True)
class _Child:
    """What a host holds of a child: the outer keeper as asyncio sees it, or without keepers the program itself."""

    transport: asyncio.SubprocessTransport
    pipes: Pipes
    line: Lifeline | None = None
    group: ControlGroup | None = None

    async def ended(self) -> int:
        """Wait until both keepers are gone, clear away what they may have left, and return the status."""
        try:
            if self.line:
                await self.line.ended()
            await self.pipes.exited.wait()
            await self._clear_group()
        finally:
            self.hang_up()
            if self.line:
                self.line.close()
        return _present(self.transport.get_returncode())

    def hang_up(self) -> None:
        """Have it ended; a keeper does that in its own time, unless it was stopped."""
        if self.line:
            self.line.hang_up()
        if self.transport.get_returncode() is not None:
            return
        if sys.platform == "win32":
            self.transport.terminate()
        else:
            self._signal_keepers(signal.SIGCONT)

    def kill(self) -> None:
        """Kill what can be reached without a keeper's help."""
        if self.group:
            self.group.kill()
        if sys.platform == "win32":
            self.transport.kill()
        else:
            self._signal_keepers(signal.SIGKILL)

    def _signal_keepers(self, number: int) -> None:
        if sys.platform != "win32":
            with contextlib.suppress(OSError):
                os.killpg(self.transport.get_pid(), number)

    async def _clear_group(self) -> None:
        """Remove the group; the keepers did, unless both were killed and its members may still run."""
        for attempt in range(10):
            if self.group is None or self.group.remove():
                return
            self.group.kill()
            await asyncio.sleep(0.01 * attempt)


async def _start_kept(launch: Launch, program: str, pipes: Callable[[], Pipes]) -> Process:
    with contextlib.ExitStack() as undo:
        group = make_group()
        if group:
            undo.callback(group.remove)
        order = _packed(launch, program, group)
        line, keeper_end = Lifeline.pair()
        undo.callback(line.close)
        with keeper_end:
            transport, protocol = await _run_keeper(launch, pipes, keeper_end.fileno())
        undo.pop_all()
    child = _Child(transport=transport, pipes=protocol, line=line, group=group)
    try:
        pid = await _hand_over(order, line, launch)
    except BaseException:
        await Process(child, pid=0).close(grace_s=0)
        raise
    return Process(child, pid=pid)


def _packed(launch: Launch, program: str, group: ControlGroup | None) -> bytes:
    place = str(group.path) if group else ""
    try:
        return Order(program, launch.argv, dict(launch.env), cwd=launch.cwd or "", group=place).pack()
    except ValueError:
        raise unfit(launch) from None


async def _run_keeper(
    launch: Launch, pipes: Callable[[], Pipes], descriptor: int
) -> tuple[asyncio.SubprocessTransport, Pipes]:
    argv = (sys.executable, "-I", "-S", _KEEPER, str(descriptor), str(os.getpid()))
    try:
        return await asyncio.get_running_loop().subprocess_exec(
            pipes,
            *argv,
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=keeper_environment(),
            pass_fds=(descriptor,),
            start_new_session=True,
        )
    except OSError as failed:
        raise refusal(
            f"Command {launch.argv[0]!r} was not started: its keeper, {sys.executable!r}, "
            f"could not be run ({failed.strerror}); check the limits on processes and open files."
        ) from failed


async def _hand_over(order: bytes, line: Lifeline, launch: Launch) -> int:
    """Give the order to the keeper, and read the program's pid from its answer."""
    try:
        async with asyncio.timeout(_START_S):
            answer = await line.ask(order)
    except TimeoutError:
        answer = []
    match answer:
        case ["started", pid]:
            return int(pid)
        case ["failed", "cwd", _]:
            raise bad_folder(launch)
        case ["failed", _, number]:
            raise not_executable(launch, int(number))
        case _:
            raise refusal(
                f"Command {launch.argv[0]!r} was not started: its keeper, {sys.executable!r}, ended before it could, "
                f"or took longer than {_START_S:g} s; check that this interpreter runs with `-I -S`."
            )


async def _start_bare(launch: Launch, program: str, pipes: Callable[[], Pipes]) -> Process:
    """Start a program where no keeper can run (Windows): only the program itself is ended. No test covers it."""
    try:
        transport, protocol = await asyncio.get_running_loop().subprocess_exec(
            pipes,
            program,
            *launch.argv[1:],
            stdin=PIPE,
            stdout=PIPE,
            stderr=PIPE,
            env=dict(launch.env),
            cwd=launch.cwd,
        )
    except OSError as failed:
        raise not_executable(launch, failed.errno or 0) from failed
    return Process(_Child(transport=transport, pipes=protocol), pid=transport.get_pid())


def _present(value: _Value | None) -> _Value:
    """What asyncio declares as optional, for those who start a process without pipes or do not wait for its end."""
    if value is None:
        raise RuntimeError("the child process has no such pipe, or has not ended")
    return value
