"""Commands that are run to their end: what they get, what they give, and that nothing of them stays."""

import asyncio
import json
import os
import resource
import shutil
import signal
import sys
import threading
import time
import uuid
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.processes.subjects import (
    CHILDREN,
    GONE_WITHIN_S,
    below,
    control_groups_of,
    executable,
    marked,
    running,
    survivors,
)
from toolpost.contracts.errors import ToolClientError, ToolConnectionError, ToolTimeoutError
from toolpost.processes.commands import CommandResult, CommandRunner, run_command
from toolpost.processes.launch import child_environment

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the walk through /proc and its signals are Linux's"),
    pytest.mark.programs,
]


def words(program: str, *arguments: str) -> tuple[str, ...]:
    return sys.executable, str(CHILDREN / f"{program}.py"), *arguments


async def run(argv: Sequence[str], *, extra: dict[str, str] | None = None, **options: Any) -> CommandResult:
    given: dict[str, Any] = {"timeout_s": 60, "max_output_bytes": 2**24, "env": child_environment(extra or {})}
    return await run_command(argv, **{**given, **options})


@pytest.fixture
async def commands() -> AsyncIterator[CommandRunner]:
    async with CommandRunner() as commands:
        yield commands


@pytest.fixture(params=["supervised", "unsupervised"])
async def either(
    request: pytest.FixtureRequest, commands: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> CommandRunner:
    """Commands as they run here, and as they run on Windows."""
    monkeypatch.setattr("toolpost.processes.commands.SUPERVISED", request.param == "supervised")
    return commands


class Family:
    """A command that does not end by itself, with a grandchild, and the pids of both."""

    def __init__(self, commands: CommandRunner, kind: str, **options: Any) -> None:
        self._heard: asyncio.Queue[str] = asyncio.Queue()
        options["on_line"] = lambda line, _: self._heard.put_nowait(line)
        self.task = asyncio.create_task(run(words("family", kind), commands=commands, **options))

    async def pids(self) -> list[int]:
        """Both have said who they are; a command that ended before that raises why."""
        telling = asyncio.create_task(self._said())
        await asyncio.wait({telling, self.task}, return_when=asyncio.FIRST_COMPLETED)
        if not telling.done():
            telling.cancel()
            await self.task
        return await telling

    async def _said(self) -> list[int]:
        return [int((await self._heard.get()).split()[1]) for _ in range(2)]


async def timed(commands: CommandRunner, kind: str) -> tuple[Family, list[int], float]:
    """A family that is whole before its time is over, its pids, and its time; a busy machine gets more of it."""
    for timeout_s in (1.5, 6.0):
        family = Family(commands, kind, timeout_s=timeout_s)
        with suppress(ToolTimeoutError):
            return family, await family.pids(), timeout_s
    family = Family(commands, kind, timeout_s=30.0)
    return family, await family.pids(), 30.0


# ---------------------------------------------------------------- what it gets and gives


async def test_a_command_is_run_and_says_how_it_ended(either: CommandRunner) -> None:
    result = await run(("sh", "-c", "cat; echo problem >&2; exit 3"), stdin=b"in", commands=either)

    assert (result.exit_code, result.stdout, result.stderr) == (3, b"in", "problem\n")
    assert 0 < result.seconds < 60


async def test_no_secret_of_the_host_or_of_a_command_reaches_others(
    commands: CommandRunner, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOST_SECRET", "s3cret-of-the-host")
    first = await run(words("report"), extra={"TOKEN": "s3cret-of-the-first"}, commands=commands)
    second = await run(words("report"), commands=commands)
    supervisor = psutil.Process(commands.supervisor_pid)
    above = [Path(f"/proc/{one.pid}/environ").read_text() for one in (supervisor, *supervisor.children())]

    assert "s3cret-of-the-first" in json.loads(first.stdout)["environ"]
    assert "s3cret" not in json.loads(second.stdout)["environ"] + "".join(above)


@pytest.mark.parametrize("size", [1, 2**16, 2**22])
async def test_stdin_may_be_long_and_need_not_be_read(either: CommandRunner, size: int) -> None:
    read = await run(("wc", "-c"), stdin=b"x" * size, commands=either)
    unread = await run(("true",), stdin=b"x" * size, commands=either)

    assert (int(read.stdout), unread.exit_code) == (size, 0)


async def test_without_stdin_a_command_reads_its_end_at_once(either: CommandRunner) -> None:
    assert (await run(("cat",), commands=either)).stdout == b""


async def test_an_order_may_be_longer_than_a_sockets_buffer(commands: CommandRunner) -> None:
    long = ["x" * 100_000] * 10

    result = await run(("printf", "%s", *long), commands=commands)

    assert result.stdout == b"x" * 1_000_000


async def test_lines_of_both_streams_are_reported_while_the_command_runs(
    commands: CommandRunner, tmp_path: Path
) -> None:
    heard: list[tuple[str, str]] = []

    def tell(line: str, stream: str) -> None:
        heard.append((line, stream))
        (tmp_path / "go").touch()

    script = 'printf "one\\r\\ntw"; while [ ! -e go ]; do sleep 0.01; done; printf "o\\nrest"; echo \xfc >&2'
    result = await run(("sh", "-c", script.encode().decode()), cwd=str(tmp_path), on_line=tell, commands=commands)

    assert [line for line, stream in heard if stream == "stdout"] == ["one", "two", "rest"]
    assert [line for line, stream in heard if stream == "stderr"] == ["ü"]
    assert result.stdout == b"one\r\ntwo\nrest"


async def test_a_line_without_an_end_is_reported_in_pieces(commands: CommandRunner) -> None:
    heard: list[str] = []

    argv = ("head", "-c", "1000000", "/dev/zero")
    await run(argv, on_line=lambda line, _: heard.append(line), commands=commands)

    assert "".join(heard) == "\0" * 1_000_000
    assert max(map(len, heard)) < 200_000


async def test_of_a_flood_of_lines_the_last_are_reported(commands: CommandRunner) -> None:
    heard: list[str] = []

    await run(("seq", "500000"), on_line=lambda line, _: heard.append(line), commands=commands)

    assert heard[-1] == "500000"
    assert len(heard) < 50_000
    assert all(line.isdecimal() for line in heard)


# ---------------------------------------------------------------- what cannot be run


async def test_a_program_that_goes_away_between_two_runs_is_looked_for_again(
    commands: CommandRunner, tmp_path: Path
) -> None:
    executable(tmp_path, "tool", "#!/bin/sh\necho old\n", 0o755)
    env = {"PATH": f"{tmp_path}:{tmp_path}/other:{os.environ['PATH']}"}
    assert (await run(("tool",), env=env, commands=commands)).stdout == b"old\n"

    (tmp_path / "tool").unlink()
    with pytest.raises(ToolConnectionError, match="'tool' was not found") as raised:
        await run(("tool",), env=env, commands=commands)
    assert raised.value.sent is False

    (tmp_path / "other").mkdir()
    executable(tmp_path / "other", "tool", "#!/bin/sh\necho new\n", 0o755)
    assert (await run(("tool",), env=env, commands=commands)).stdout == b"new\n"


async def test_a_program_that_moved_may_be_run_again(commands: CommandRunner, tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        executable(tmp_path / name, "tool", f"#!/bin/sh\necho {name}\n", 0o755)
    env = {"PATH": f"{tmp_path}/one:{tmp_path}/two:{os.environ['PATH']}"}
    assert (await run(("tool",), env=env, commands=commands)).stdout == b"one\n"

    (tmp_path / "one" / "tool").unlink()
    with pytest.raises(ToolConnectionError, match=r"'tool' has moved to '.*/two/tool'") as raised:
        await run(("tool",), env=env, commands=commands)

    assert (raised.value.sent, raised.value.is_retryable) == (False, True)
    assert (await run(("tool",), env=env, commands=commands)).stdout == b"two\n"


async def test_a_program_that_is_being_written_may_be_run_later(either: CommandRunner, tmp_path: Path) -> None:
    program = tmp_path / "tool"
    shutil.copy("/bin/true", program)

    with (
        program.open("ab"),
        pytest.raises(ToolConnectionError, match="another program is still writing the file") as raised,
    ):
        await run((str(program),), commands=either)

    assert (raised.value.sent, raised.value.is_retryable) == (False, True)
    assert (await run((str(program),), commands=either)).exit_code == 0


@pytest.mark.parametrize("known", [False, True], ids=["at first", "once it was there"])
async def test_a_folder_that_is_not_there_is_named(commands: CommandRunner, tmp_path: Path, known: bool) -> None:
    folder = tmp_path / "work"
    if known:
        folder.mkdir()
        await run(("true",), cwd=str(folder), commands=commands)
        folder.rmdir()

    with pytest.raises(ToolConnectionError, match=r"'true' cannot run in '.*/work': .*; correct `cwd`") as raised:
        await run(("true",), cwd=str(folder), commands=commands)

    assert raised.value.sent is False


async def test_without_a_folder_a_command_runs_in_ours_wherever_that_is(
    commands: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        executable(tmp_path / name, "tool", f"#!/bin/sh\necho {name} $PWD\n", 0o755)
        monkeypatch.chdir(tmp_path / name)
        said = (await run(("./tool",), commands=commands)).stdout.decode().split()
        assert said == [name, str((tmp_path / name).resolve())]

    (tmp_path / "gone").mkdir()
    monkeypatch.chdir(tmp_path / "gone")
    (tmp_path / "gone").rmdir()
    with pytest.raises(ToolConnectionError, match="working directory of this process was deleted"):
        await run(("true",), commands=commands)


async def test_a_folder_may_be_written_from_ours_for_every_run(
    either: CommandRunner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path)

    found = [(await run(("pwd",), cwd=folder, commands=either)).stdout.decode() for folder in ("sub", "sub", ".", ".")]

    here = str(tmp_path.resolve())
    assert [os.path.normpath(line.strip()) for line in found] == [f"{here}/sub", f"{here}/sub", here, here]


async def test_a_command_that_no_descriptor_is_left_for_is_refused(commands: CommandRunner) -> None:
    await run(("true",), commands=commands)
    usual = resource.getrlimit(resource.RLIMIT_NOFILE)
    os.close(lowest := os.open(os.devnull, os.O_RDONLY))  # the first that is free, wherever the highest is
    resource.setrlimit(resource.RLIMIT_NOFILE, (lowest + 1, usual[1]))
    try:
        with pytest.raises(ToolConnectionError, match="no pipe could be created") as raised:
            await asyncio.gather(*(run(("true",), commands=commands) for _ in range(50)))
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, usual)

    assert raised.value.sent is False
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"


async def test_more_words_than_the_system_takes_are_refused(commands: CommandRunner) -> None:
    with pytest.raises(ToolConnectionError, match=r"arguments or its environment are too long") as raised:
        await run(("true", *["x" * 100_000] * 100), commands=commands)

    assert raised.value.sent is False
    assert (await run(("true",), commands=commands)).exit_code == 0


# ---------------------------------------------------------------- what is too much


async def test_a_flood_is_ended_with_an_error(either: CommandRunner) -> None:
    mark = uuid.uuid4().hex

    with pytest.raises(ToolClientError, match=r"'yes' wrote more than 100000 bytes to stdout, and was ended") as raised:
        await run(("yes", mark), max_output_bytes=100_000, commands=either)

    assert raised.value.error_code == "output_too_large"
    assert survivors(marked(mark)) == []


async def test_output_as_long_as_the_limit_is_taken(either: CommandRunner) -> None:
    result = await run(("head", "-c", "100000", "/dev/zero"), max_output_bytes=100_000, commands=either)

    assert result.stdout == bytes(100_000)


@pytest.mark.parametrize("kind", ["group", "session", "daemon"])
async def test_nothing_of_a_command_outlives_its_time(either: CommandRunner, kind: str) -> None:
    family, pids, timeout_s = await timed(either, kind)

    told = f"did not end within {timeout_s:g} s, and was ended with all that it started"
    with pytest.raises(ToolTimeoutError, match=told):
        await family.task

    assert survivors(pids, within_s=0) == []


async def test_nothing_of_a_command_outlives_its_caller(either: CommandRunner) -> None:
    family = Family(either, "daemon")
    pids = await family.pids()

    family.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await family.task
    assert survivors(pids, within_s=0) == []


async def test_a_caller_that_is_cancelled_twice_waits_no_more_and_leaves_no_one(commands: CommandRunner) -> None:
    family = Family(commands, "session")
    pids = await family.pids()

    family.task.cancel()
    await asyncio.sleep(0)
    family.task.cancel()

    with pytest.raises(asyncio.CancelledError):
        await family.task
    assert survivors(pids) == []


async def test_a_command_that_forks_many_times_ends_with_all_of_them(commands: CommandRunner) -> None:
    mark = uuid.uuid4().hex

    with pytest.raises(ToolTimeoutError):
        await run(words("hydra", "many", mark), timeout_s=1, commands=commands)

    assert survivors(marked(mark), within_s=0) == []


async def test_two_commands_end_each_with_their_own(commands: CommandRunner) -> None:
    long = Family(commands, "daemon")
    longs = await long.pids()
    short, shorts, _ = await timed(commands, "daemon")

    with pytest.raises(ToolTimeoutError):
        await short.task

    assert survivors(shorts, within_s=0) == []
    assert [running(pid) for pid in longs] == [True, True]
    long.task.cancel()
    await asyncio.wait({long.task})
    assert survivors(longs, within_s=0) == []


# ---------------------------------------------------------------- what it costs


async def test_workers_are_used_again(commands: CommandRunner) -> None:
    for _ in range(3):
        await asyncio.gather(*(run(("true",), commands=commands) for _ in range(5)))

    assert len(psutil.Process(commands.supervisor_pid).children()) == 5


async def test_a_crowd_does_not_leave_as_many_workers(commands: CommandRunner) -> None:
    done = await asyncio.gather(*(run(("echo", str(number)), commands=commands) for number in range(40)))

    assert [int(result.stdout) for result in done] == list(range(40))
    deadline = time.monotonic() + GONE_WITHIN_S
    while len(psutil.Process(commands.supervisor_pid).children()) > 16 and time.monotonic() < deadline:
        await asyncio.sleep(0.01)
    assert len(psutil.Process(commands.supervisor_pid).children()) == 16


async def test_nothing_is_started_before_a_command_is() -> None:
    async with CommandRunner() as commands:
        assert commands.supervisor_pid is None


async def test_cycles_leave_nothing_behind() -> None:
    async def cycle() -> None:
        async with CommandRunner() as commands:
            for number in range(10):
                await run(("cat",), stdin=b"x" * number, commands=commands)
            with pytest.raises(ToolConnectionError):
                await run(("no-such-command",), commands=commands)
            with pytest.raises(ToolTimeoutError):
                await run(("sleep", "60"), timeout_s=0.01, commands=commands)

    def held() -> list[object]:
        groups = control_groups_of(os.getpid())
        return [psutil.Process().num_fds(), threading.active_count(), len(asyncio.all_tasks()), below(others), groups]

    others = psutil.Process().children()
    await cycle()
    before = held()
    for _ in range(10):
        await cycle()

    deadline = time.monotonic() + GONE_WITHIN_S
    while held() != before and time.monotonic() < deadline:
        await asyncio.sleep(0.01)

    assert held() == before


async def test_a_single_command_needs_no_holder() -> None:
    before = psutil.Process().children()

    assert (await run(("echo", "hi"))).stdout == b"hi\n"

    assert psutil.Process().children() == before


# ---------------------------------------------------------------- who is killed


async def test_closing_ends_what_runs_and_says_so(commands: CommandRunner) -> None:
    family = Family(commands, "daemon")
    pids = await family.pids()

    await commands.close()

    assert survivors(pids, within_s=0) == []
    with pytest.raises(ToolConnectionError, match="was closed") as raised:
        await family.task
    assert raised.value.sent is True


async def test_once_closed_it_starts_nothing_any_more(commands: CommandRunner) -> None:
    await run(("true",), commands=commands)
    await commands.close()

    with pytest.raises(ToolConnectionError, match="its source or its runner was closed") as raised:
        await run(("true",), commands=commands)

    assert (raised.value.sent, raised.value.is_retryable) == (False, False)
    assert commands.supervisor_pid is None


def above(commands: CommandRunner) -> tuple[int, int]:
    """The worker and the supervisor above the only command."""
    supervisor = psutil.Process(commands.supervisor_pid)
    [worker] = supervisor.children()
    return worker.pid, supervisor.pid


async def test_no_one_survives_the_death_of_a_worker(commands: CommandRunner) -> None:
    family = Family(commands, "daemon")
    pids = await family.pids()

    os.kill(above(commands)[0], signal.SIGKILL)

    with pytest.raises(ToolConnectionError, match="It is unknown how"):
        await family.task
    assert survivors(pids) == []
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"


async def test_a_worker_that_dies_while_it_is_idle_is_passed_over(commands: CommandRunner) -> None:
    await run(("true",), commands=commands)
    [worker] = psutil.Process(commands.supervisor_pid).children()

    worker.kill()

    assert survivors([worker.pid]) == []
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"


async def test_no_one_survives_the_death_of_a_supervisor(commands: CommandRunner) -> None:
    family = Family(commands, "daemon")
    pids = await family.pids()
    worker, supervisor = above(commands)

    os.kill(supervisor, signal.SIGKILL)

    await asyncio.gather(family.task, return_exceptions=True)
    assert survivors([*pids, worker]) == []
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"
    assert commands.supervisor_pid != supervisor


@pytest.mark.parametrize("who", ["worker", "supervisor"])
async def test_no_one_survives_the_end_of_time_below_a_worker_or_a_supervisor_that_was_stopped(
    commands: CommandRunner, who: str
) -> None:
    family, pids, _ = await timed(commands, "daemon")
    worker, supervisor = above(commands)

    os.kill(worker if who == "worker" else supervisor, signal.SIGSTOP)

    with pytest.raises(ToolTimeoutError):
        await family.task
    assert survivors(pids, within_s=0) == []
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"


async def test_a_command_that_kills_its_worker_does_not_get_away(commands: CommandRunner) -> None:
    mark = uuid.uuid4().hex

    with pytest.raises(ToolConnectionError, match="It is unknown how command 'sh' ended") as raised:
        await run(("sh", "-c", "kill -9 $PPID; exec sleep 60", mark), commands=commands)

    assert raised.value.sent is True
    assert survivors(marked(mark)) == []
    assert (await run(("echo", "again"), commands=commands)).stdout == b"again\n"
