"""Workers on a real PostgreSQL: how they scale, how fast a job begins, what they cost, and what kills lose.

Run: python -m bench.workers [drain|latency|idle|kills|paused]... [--kills N] [--server-kills N] [--paused N]
"""

# ruff: noqa: ASYNC110 - figures are read from files and tables that other processes write

from __future__ import annotations

import argparse
import asyncio
import random
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import psutil

from tests.postgres.databases import new_database
from tests.postgres.server import restartable
from tests.scale.workers import ANN, READY, Deployment, Worker, job, outcome_of
from toolpost import Settings, Toolbox, tool
from toolpost.contracts.clock import Clock
from toolpost.contracts.errors import StoreError
from toolpost.contracts.jobs import Job
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.runtime.jobs import call_job

ITEMS, ITEM_S, SLOTS = 400, 0.05, 4
LATENCIES, IDLE_S = 200, 20.0
DAY_S = 86_400.0
WORKERS, JOBS, PAYMENTS = 3, 20, 5  # jobs between two kills; every fifth job is a payment, which must not be repeated
STILL_S = 90.0  # without the end of a run, those that are left are lost
ANSWERED = 100


def main() -> None:
    """Print the figures that were asked for; by default all."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", choices=["drain", "latency", "idle", "kills", "paused", []])
    parser.add_argument("--kills", type=int, default=50, help="workers that are killed [default: 50]")
    parser.add_argument("--server-kills", type=int, default=5, help="times that PostgreSQL is, meanwhile [default: 5]")
    parser.add_argument("--paused", type=int, default=10_000, help="runs that wait for a person [default: 10,000]")
    given = parser.parse_args()
    parts = given.parts or ["drain", "latency", "idle", "kills", "paused"]
    with restartable() as (server, kill_server):
        for part in parts:
            with tempfile.TemporaryDirectory() as folder:
                match part:
                    case "drain":
                        asyncio.run(drain([new_database(server) for _ in range(2)], Path(folder)))
                    case "latency":
                        asyncio.run(latency(new_database(server), Path(folder)))
                    case "idle":
                        asyncio.run(idle(new_database(server), Path(folder)))
                    case "kills":
                        often = given.kills // (given.server_kills + 1) + 1
                        asyncio.run(kills(new_database(server), Path(folder), given.kills, kill_server, often=often))
                    case _:
                        asyncio.run(paused(Path(folder), given.paused))


async def drain(urls: list[str], folder: Path) -> None:
    """Compare how fast one worker and two empty a queue of items that wait for something else."""
    rates = list[float]()
    for count, url in enumerate(urls, 1):
        place = Path(tempfile.mkdtemp(dir=folder))
        rates.append(await _rate(url, place, count))
    floor = SLOTS / ITEM_S
    print(f"one worker: {rates[0]:.0f} items a second, {rates[0] / floor:.2f} of what its {SLOTS} slots allow")
    print(f"two workers: {rates[1]:.0f} items a second, {rates[1] / rates[0]:.2f} times one (wanted: 1.8)")


async def _rate(url: str, folder: Path, count: int) -> float:
    deployment = Deployment(folder, url, concurrency=SLOTS)
    async with deployment.client() as box:
        with ExitStack() as stack:
            for _ in range(count):
                stack.enter_context(deployment.worker("--queues", "calls"))
            await asyncio.gather(*(box.engine.enqueue(job(f"item-{n}", seconds=ITEM_S)) for n in range(ITEMS)))
            began = time.perf_counter()
            while deployment.effects().total() < ITEMS:
                await asyncio.sleep(0.02)
            took = time.perf_counter() - began
    return ITEMS / took


async def latency(url: str, folder: Path) -> None:
    """Measure the time from the request of a job to its call."""
    deployment = Deployment(folder, url)
    times: list[float] = []
    async with deployment.client() as box:
        with deployment.worker():
            for number in range(LATENCIES):
                await asyncio.sleep(random.uniform(0.0, 0.2))
                began = time.time()
                await box.engine.enqueue(job(f"l-{number}"))
                while not deployment.effects()[f"l-{number}"]:
                    await asyncio.sleep(0.005)
                times.append(_times(deployment)[f"l-{number}"] - began)
    times.sort()
    p50, p95 = times[len(times) // 2], times[int(len(times) * 0.95)]
    print(f"request to begin: p50 {p50 * 1000:.0f} ms, p95 {p95 * 1000:.0f} ms (wanted: 500), most {times[-1]:.3f} s")


def _times(deployment: Deployment) -> dict[str, float]:
    return {line.split()[0]: float(line.split()[2]) for line in deployment.ledger.read_text().splitlines()}


async def idle(url: str, folder: Path) -> None:
    """Measure the CPU of a worker without jobs."""
    deployment = Deployment(folder, url)
    async with deployment.client():
        with deployment.worker() as worker:
            await asyncio.sleep(5)
            process = worker.seen
            cpu, began = process.cpu_times(), time.perf_counter()
            await asyncio.sleep(IDLE_S)
            after = process.cpu_times()
            share = (after.user + after.system - cpu.user - cpu.system) / (time.perf_counter() - began)
            memory, sockets = process.memory_info().rss >> 20, process.net_connections(kind="inet")
    listening = sum(one.status == psutil.CONN_LISTEN for one in sockets)
    print(f"idle worker: {share:.1%} of a core (wanted: 3%), {memory} MB, {listening} listening ports")


async def kills(url: str, folder: Path, count: int, kill_server: Callable[[], None], *, often: int) -> None:
    """Kill workers under load, and PostgreSQL instead of every `often`th of them.

    Every run must complete, or wait for a person if its effect is not known.
    """
    deployment, dice = Deployment(folder, url, concurrency=8), random.Random(7)
    names: list[str] = []
    began, server_kills = time.perf_counter(), 0
    async with deployment.client() as box:
        workers = [Worker(deployment.config, (), {}) for _ in range(WORKERS)]
        try:
            for number in range(1, count + 1):
                for _ in range(JOBS):
                    name = f"{'pay' if len(names) % PAYMENTS == 0 else 'read'}-{len(names)}"
                    is_payment = name.startswith("pay")
                    await _enqueued(box, job(name, "local.pay" if is_payment else "local.fetch", seconds=1.5))
                    names.append(name)
                if number % often == 0:
                    await asyncio.to_thread(kill_server)
                    server_kills += 1
                victim = dice.randrange(WORKERS)
                workers[victim] = await asyncio.to_thread(_ready, workers[victim], deployment)
                await asyncio.sleep(dice.uniform(0.0, 1.0))
                workers[victim].kill()
                workers[victim].stop()
                workers[victim] = Worker(deployment.config, (), {})
                print(".", end="", flush=True)
            print()
            killed_s = time.perf_counter() - began
            outcomes: dict[str, Outcome | None] = dict.fromkeys(names)
            progressed = time.perf_counter()
            while None in outcomes.values() and time.perf_counter() - progressed < STILL_S:
                await asyncio.sleep(1)
                with suppress(StoreError):
                    ended = {name: await outcome_of(box, name) for name in names if outcomes[name] is None}
                    outcomes |= ended
                    if any(ended.values()):
                        progressed = time.perf_counter()
        finally:
            for worker in workers:
                worker.kill()
                worker.stop()
        depth = await box.engine.depth()
    effects = deployment.effects()
    kinds = Counter(type(one).__name__ for one in outcomes.values())
    lost = [name for name, one in outcomes.items() if one is None or (isinstance(one, Completed) and not effects[name])]
    failed = [f"{name}: {one.error}" for name, one in outcomes.items() if isinstance(one, Failed)]
    doubled = [name for name in names if name.startswith("pay") and effects[name] > 1]
    killed = f"{count} kills of {WORKERS} workers and {server_kills} of PostgreSQL"
    print(f"{killed}, {len(names)} runs: {len(lost)} lost, {len(doubled)} doubled")
    print(f"  {dict(kinds)}; {killed_s:.0f} s of kills, all ended {time.perf_counter() - began - killed_s:.0f} s later")
    print(f"  left in the queue: {depth[-1].waiting + depth[-1].running}")
    for problem in [*lost, *doubled, *failed][:10]:
        print(f"  {problem}")


async def _enqueued(box: Toolbox, wanted: Job) -> None:
    """Store a job; repeat it while the server is away, as the ID of the job allows."""
    while True:
        try:
            await box.engine.enqueue(wanted)
        except StoreError:
            await asyncio.sleep(0.1)
        else:
            return


def _ready(worker: Worker, deployment: Deployment) -> Worker:
    """Wait until a worker takes jobs; one that ended at its start, without a server, is started again."""
    while True:
        try:
            worker.wait_until(READY)
        except AssertionError:
            if worker.process.poll() is None:
                raise
            worker.stop()
            worker = Worker(deployment.config, (), {})
        else:
            return worker


@tool(side_effects="write", destructive=True)
async def wipe(disk: int) -> str:
    """Wipe a disk."""
    return f"wiped {disk}"


async def paused(folder: Path, count: int) -> None:
    """Pause many runs for a day, and count what they hold."""
    ahead_s = [0.0]
    clock, seen = Clock(wall=lambda: time.time() + ahead_s[0]), psutil.Process()
    settings = Settings.model_validate({"data_dir": folder, "limits": {"pending_ttl": "30d"}})
    async with Toolbox(tools=[wipe], settings=settings, clock=clock) as box, box.engine.run(box.jobs):
        before = _held(box, seen)
        began = time.perf_counter()
        for number in range(count):
            await box.engine.enqueue(
                call_job(f"run_{number}", "wipe", {"disk": number}, principal=ANN, at=clock.wall(), queue="calls")
            )
        while any(one.waiting + one.running for one in await box.engine.depth()):
            await asyncio.sleep(0.1)
        print(f"{count} runs paused in {time.perf_counter() - began:.0f} s")
        ahead_s[0] = DAY_S
        await box.recovery.sweep()
        await asyncio.sleep(6)
        held = _held(box, seen)
        slots = sum(one.running + one.waiting for one in await box.engine.depth())
        added = {name: held[name] - before[name] for name in held}
        print(f"  a day later they hold {slots} slots of queues, and in addition {added}")
        for action in await box.pending.list(by="acme:boss", limit=ANSWERED):
            outcome: Any = await box.approve(action.id, by="acme:boss")
            assert isinstance(outcome, Completed), outcome
        first = await outcome_of(box, "run_0")
        state = "paused" if isinstance(first, Paused) else str(first)
        print(f"  {ANSWERED} answers complete their runs; the first run is {state}")


def _held(_box: Toolbox, process: psutil.Process) -> dict[str, int]:
    return {"coroutines": len(asyncio.all_tasks()), "descriptors": process.num_fds(), "threads": process.num_threads()}


if __name__ == "__main__":
    main()
