"""A pool of worker processes: kept alive, stopped together, and not started for ever."""

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from toolpost.processes.worker_pool import WorkerPool

pytestmark = pytest.mark.programs

SERVE = "import signal, sys; signal.signal(signal.SIGTERM, lambda *_: sys.exit(0)); "
READY = "print('ready', flush=True); "


def pool_of(home: Path, code: str, notes: list[str], count: int = 2) -> WorkerPool:
    def command(number: int, again: bool) -> list[str]:
        with (home / "started").open("a") as file:
            file.write(f"{number} {again}\n")
        return [sys.executable, "-S", "-c", code, str(number)]

    return WorkerPool(command, count, sockets=[], report=notes.append)


async def until_started(home: Path, times: int) -> list[str]:
    async with asyncio.timeout(60):
        while len(lines := (home / "started").read_text().splitlines()) < times:
            await asyncio.sleep(0.01)
    return lines


async def test_workers_are_started_again_and_end_with_sigterm(tmp_path: Path) -> None:
    notes: list[str] = []
    pool = pool_of(tmp_path, f"{SERVE}{READY}sys.stdin.read(); signal.pause()", notes)
    running = asyncio.create_task(pool.run(stop_within_s=30))
    await pool.all_ready.wait()
    pool.send(signal.SIGKILL)
    lines = await until_started(tmp_path, 4)
    running.cancel()

    assert await running == 0
    assert sorted(lines) == ["0 False", "0 True", "1 False", "1 True"]
    restarted = [f"worker {n} ended with SIGKILL; it is restarted" for n in (0, 1)]
    assert sorted(notes) == ["stopping the workers", *restarted]


async def test_a_worker_that_never_gets_ready_ends_them_all(tmp_path: Path) -> None:
    notes: list[str] = []
    code = f"{SERVE}sys.argv[1] == '1' and sys.exit(3); {READY}signal.pause()"

    assert await pool_of(tmp_path, code, notes).run(stop_within_s=30) == 3
    assert sorted((tmp_path / "started").read_text().splitlines()) == ["0 False", "1 False"]


async def test_workers_that_do_not_end_in_time_are_killed(tmp_path: Path) -> None:
    notes: list[str] = []
    deaf = f"import signal, time; signal.signal(signal.SIGTERM, signal.SIG_IGN); {READY}time.sleep(600)"
    pool = pool_of(tmp_path, deaf, notes, count=1)
    running = asyncio.create_task(pool.run(stop_within_s=0.1))
    await pool.all_ready.wait()
    running.cancel()

    assert await running == 0
    assert notes == ["stopping the workers", "1 workers did not end within 0.1 s, and are killed"]
