"""A program under supervision as either of the two things that Toolpost starts: a server, or a command."""

import asyncio
import os
import signal
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Protocol, Self

import psutil

from toolpost.processes.commands import CommandRunner, run_command
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import Process, start

CHILDREN = Path(__file__).parent / "children"
GONE_WITHIN_S = 30.0


class Subject(Protocol):
    """A running program with what is above it."""

    @classmethod
    async def begin(cls, launch: Launch, *, stdin: bytes = b"") -> Self:
        """Start it; a command that cannot be started says so in `exit_code`."""
        ...

    async def line(self) -> str:
        """The next line of its stdout."""
        ...

    async def exit_code(self) -> int:
        """Wait until all of it has ended."""
        ...

    async def stderr(self) -> str:
        """The end of its stderr, once it has ended."""
        ...

    async def end(self) -> None:
        """End it as its owner does: a server is closed, the caller of a command is cancelled."""
        ...

    async def close(self) -> None:
        """Let go of everything."""
        ...

    def supervisors(self) -> tuple[int, int]:
        """The processes above it, the upper one first."""
        ...


class Server:
    def __init__(self, process: Process) -> None:
        self.process = process

    @classmethod
    async def begin(cls, launch: Launch, *, stdin: bytes = b"") -> Self:
        process = await start(launch)
        process.stdin.write(stdin)
        return cls(process)

    async def line(self) -> str:
        return (await self.process.stdout.readline()).decode().rstrip("\n")

    async def exit_code(self) -> int:
        return await self.process.wait()

    async def stderr(self) -> str:
        await self.process.wait()
        return self.process.stderr_tail

    async def end(self) -> None:
        await self.process.close(grace_s=0)

    async def close(self) -> None:
        await self.process.close(grace_s=0)

    def supervisors(self) -> tuple[int, int]:
        return below_supervisor(self.process.supervisor_pid)


class Command:
    def __init__(self, launch: Launch, stdin: bytes) -> None:
        self.commands = CommandRunner()
        self._lines: asyncio.Queue[str | None] = asyncio.Queue()
        running = run_command(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=stdin,
            timeout_s=120,
            max_output_bytes=2**24,
            on_line=self._take,
            commands=self.commands,
        )
        self.task = asyncio.create_task(running)
        self.task.add_done_callback(lambda _: self._lines.put_nowait(None))

    @classmethod
    async def begin(cls, launch: Launch, *, stdin: bytes = b"") -> Self:
        return cls(launch, stdin)

    async def line(self) -> str:
        line = await self._lines.get()
        if line is None:
            raise EOFError(f"no more lines: {await self.task}")
        return line

    async def exit_code(self) -> int:
        return (await self.task).exit_code

    async def stderr(self) -> str:
        return (await self.task).stderr

    async def end(self) -> None:
        self.task.cancel()
        with suppress(asyncio.CancelledError):
            await self.task

    async def close(self) -> None:
        await self.commands.close()
        await asyncio.gather(self.task, return_exceptions=True)  # else the loop logs its error, in some later test

    def supervisors(self) -> tuple[int, int]:
        return below_supervisor(self.commands.supervisor_pid)

    def _take(self, line: str, stream: str) -> None:
        if stream == "stdout":
            self._lines.put_nowait(line)


SUBJECTS: dict[str, type[Subject]] = {"server": Server, "command": Command}


def below_supervisor(pid: int | None) -> tuple[int, int]:
    """The supervisor of one program, and its worker."""
    assert pid is not None
    [worker] = psutil.Process(pid).children()
    return pid, worker.pid


def child(program: str, *arguments: str, **extra: str) -> Launch:
    argv = (sys.executable, str(CHILDREN / f"{program}.py"), *arguments)
    return Launch(argv=argv, env=child_environment(extra))


def shell(script: str) -> Launch:
    return Launch(argv=("sh", "-c", script), env=child_environment({}))


def running(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in {psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD}
    except psutil.NoSuchProcess:
        return False


def survivors(pids: Sequence[int], within_s: float = GONE_WITHIN_S) -> list[int]:
    """Who of them is still there after a while; they are killed, so that a failing test leaves nobody either."""
    deadline = time.monotonic() + within_s
    while (left := [pid for pid in pids if running(pid)]) and time.monotonic() < deadline:
        time.sleep(0.01)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    return left


def marked(mark: str) -> list[int]:
    """Whoever has this word in its command line."""
    return [one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]


def below(others: list[psutil.Process]) -> list[int]:
    """Who runs below this process, but for others and those whom they start when they please, as a browser does."""
    found: list[int] = []
    for one in psutil.Process().children():
        if one not in others:
            with suppress(psutil.NoSuchProcess):
                found += [one.pid, *(other.pid for other in one.children(recursive=True))]
    return found


def control_groups_of(host: int) -> list[Path]:
    """The control groups that a host made and that are still there."""
    return list(Path("/sys/fs/cgroup").glob(f"**/toolpost-{host}-*"))


def executable(folder: Path, name: str, text: str, mode: int = 0o755) -> str:
    """A file with this text and this mode."""
    path = folder / name
    path.write_text(text)
    path.chmod(mode)
    return str(path)
