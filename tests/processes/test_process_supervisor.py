"""Long-running processes: their streams, how they start and how they end; test_guarantees has what commands share."""

import asyncio
import gc
import os
import signal
import sys
import threading
import time
import uuid
from contextlib import suppress
from pathlib import Path

import psutil
import pytest

from tests.processes.subjects import GONE_WITHIN_S, below_supervisor, child, running, shell, survivors
from toolpost.processes.launch import Launch, child_environment
from toolpost.processes.process import Process, start

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the walk through /proc and its signals are Linux's"),
    pytest.mark.programs,
]


async def family(kind: str) -> tuple[Process, list[int]]:
    """A server that does not end by itself, with a grandchild, and the pids of both."""
    process = await start(child("family", kind))
    return process, [int((await process.stdout.readline()).split()[1]) for _ in range(2)]


# ---------------------------------------------------------------- how it starts


async def test_a_server_answers_on_its_own_pipes_and_ends_with_stdin() -> None:
    async with await start(child("echo", "7")) as process:
        assert int(await process.stdout.readline()) == process.pid
        process.stdin.write(b"hello\n")
        assert await process.stdout.readline() == b"hello\n"
        assert process.returncode is None

    assert process.returncode == 7


async def test_a_server_that_exits_by_itself_is_seen_with_its_code() -> None:
    process = await start(shell("echo last; exit 3"))

    assert await process.wait() == 3
    assert await process.stdout.read() == b"last\n"
    await process.close()
    assert process.returncode == 3


async def test_supervisors_hold_no_end_of_a_servers_pipes() -> None:
    launch = shell("exec <&- >&- 2>&-; exec sleep 60")
    process = await start(launch)

    async with asyncio.timeout(GONE_WITHIN_S):
        assert await process.stdout.read() == b""
        while not process.stdin.is_closing():
            await asyncio.sleep(0.01)
    assert running(process.pid)
    await process.close(grace_s=0)


async def test_a_flood_of_stderr_neither_blocks_nor_grows() -> None:
    before = psutil.Process().memory_info().rss
    async with await start(child("flood", "50"), stderr_bytes=1000) as process:
        async with asyncio.timeout(60):
            assert await process.stdout.readline() == b"done\n"
            await process.wait()

        assert process.stderr_tail == "x" * 989 + "\ufffd last word"
    assert psutil.Process().memory_info().rss - before < 20 * 2**20


async def test_a_line_may_be_as_long_as_the_caller_says() -> None:
    line = b"x" * 2**20 + b"\n"
    async with await start(child("echo"), line_limit=2**21) as process:
        await process.stdout.readline()
        process.stdin.write(line)
        assert await process.stdout.readline() == line


# ---------------------------------------------------------------- what it sees


def test_a_child_inherits_few_variables_and_what_it_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        monkeypatch.delenv(name)
    for name in ("HOME", "LOGNAME", "PATH", "SHELL", "USER", "OTHER"):
        monkeypatch.setenv(name, f"our {name}")

    assert child_environment({"PATH": "/theirs", "TOKEN": "t"}) == {
        "HOME": "our HOME",
        "LOGNAME": "our LOGNAME",
        "PATH": "/theirs",
        "SHELL": "our SHELL",
        "USER": "our USER",
        "TOKEN": "t",
    }


def test_a_launch_does_not_show_its_environment() -> None:
    assert "s3cret" not in repr(Launch(argv=("x",), env={"TOKEN": "s3cret"}))


# ---------------------------------------------------------------- how it ends


async def test_a_server_may_take_its_grace_to_end() -> None:
    launch = shell("cat; sleep 0.2; echo saved >&2")
    process = await start(launch)

    await process.close(grace_s=GONE_WITHIN_S)

    assert (process.returncode, process.stderr_tail) == (0, "saved\n")


async def test_many_may_close_and_close_again() -> None:
    process = await start(child("echo", "4"))

    await asyncio.gather(*(process.close() for _ in range(5)))
    await process.close()

    assert process.returncode == 4


async def test_a_cancelled_close_still_ends_everything() -> None:
    process, pids = await family("session")
    closing = asyncio.create_task(process.close(grace_s=0.2))
    await asyncio.sleep(0)

    closing.cancel()

    with pytest.raises(asyncio.CancelledError):
        await closing
    await process.close()
    assert survivors(pids) == []


async def test_a_cancelled_start_leaves_no_one() -> None:
    mark, before = uuid.uuid4().hex, psutil.Process().children()
    for delay in (0, 0.002, 0.005, 0.01, 0.02, 0.04):
        starting = asyncio.create_task(start(child("family", "group", mark)))
        await asyncio.sleep(delay)
        starting.cancel()
        with suppress(asyncio.CancelledError):
            await (await starting).close(grace_s=0)

    assert survivors([one.pid for one in psutil.process_iter(["cmdline"]) if mark in (one.info["cmdline"] or [])]) == []
    assert survivors([one.pid for one in psutil.Process().children() if one not in before]) == []


def test_a_server_lives_on_when_the_thread_that_started_it_ends() -> None:
    loop = asyncio.new_event_loop()
    started: list[Process] = []
    thread = threading.Thread(target=lambda: started.append(loop.run_until_complete(start(child("echo")))))
    thread.start()
    thread.join()

    async def talk() -> bytes:
        async with started[0] as process:
            await process.stdout.readline()
            process.stdin.write(b"still here\n")
            return await process.stdout.readline()

    assert loop.run_until_complete(talk()) == b"still here\n"
    assert started[0].returncode == 0
    loop.close()


def test_a_loop_that_ends_without_a_close_leaves_no_zombie_and_nothing_open() -> None:
    before, descriptors = psutil.Process().children(), psutil.Process().num_fds()

    asyncio.run(family("daemon"))

    deadline = time.monotonic() + GONE_WITHIN_S
    while psutil.Process().children() != before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert psutil.Process().children() == before
    assert psutil.Process().num_fds() == descriptors
    gc.collect()  # What is still open says so now.


# ---------------------------------------------------------------- what is killed


async def test_a_server_that_had_to_be_killed_has_that_signals_negative_number() -> None:
    process, pids = await family("group")

    await process.close(grace_s=0.1)

    assert process.returncode == -signal.SIGKILL
    assert survivors([*pids, process.supervisor_pid]) == []


@pytest.mark.parametrize("which", [0, 1], ids=["supervisor", "worker"])
async def test_a_server_whose_supervisor_was_killed_is_seen_to_end(which: int) -> None:
    process, pids = await family("daemon")

    os.kill(below_supervisor(process.supervisor_pid)[which], signal.SIGKILL)

    async with asyncio.timeout(GONE_WITHIN_S):
        assert await process.wait() == -signal.SIGKILL
    assert survivors([*pids, process.supervisor_pid]) == []
    await process.close()


async def test_a_server_dies_with_supervisor_and_worker_even_without_a_control_group(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("toolpost.processes.sandbox._MOUNTS", Path(os.devnull))
    process = await start(child("echo"))

    os.killpg(process.supervisor_pid, signal.SIGKILL)

    assert survivors([process.pid]) == []
    await process.close()
