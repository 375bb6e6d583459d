"""Prove the promises of calls: simulated worlds, enumerated crashes, planted mistakes and real kills, with their goals.

`make prove` runs everything on SQLite and PostgreSQL, for hours of two cores. The options make each part smaller.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import partial
from itertools import count
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

from tests.parts import PartMissingError
from tests.postgres.databases import temporary_database
from tests.postgres.server import NotStartedError, PostgreSQL, running
from toolpost.testing.simulation import Report, WorldOptions, enumerate_crashes, simulate
from tools.real_kills import run_trials

R = TypeVar("R")
CALLS_OF_CLIENTS = 400  # in each world; a client repeats calls, and calls nest
CALLS_OF_CRASHES = 5
SHARE_OF_POSTGRESQL = 100  # one of so many simulated calls; a world there takes ten times as long


class Figure(NamedTuple):
    """One line of the result."""

    text: str
    is_reached: bool


class Engine(NamedTuple):
    """A database, and what starts its servers: none for SQLite."""

    name: str
    server: Callable[[], AbstractContextManager[PostgreSQL | None]]


SQLITE = Engine("SQLite", nullcontext)
POSTGRESQL = Engine("PostgreSQL", running)
ENGINES = {"sqlite": SQLITE, "postgresql": POSTGRESQL}


def main() -> int:
    """Run all parts, or some, and print their figures."""
    given = _parser().parse_args()
    engines = [ENGINES[name] for name in given.database or ENGINES]
    parts: dict[str, Callable[[Engine], Iterator[Figure]]] = {
        "worlds": lambda engine: prove_worlds(engine, given.calls, given.seeds, given.workers),
        "crashes": lambda engine: prove_crashes(engine, given.crashes, given.workers),
        "kills": lambda engine: prove_kills(engine, given.kills),
    }
    failed = 0
    for name in given.only or (*parts, "mutations"):
        for figures in [prove_mutations()] if name == "mutations" else [parts[name](engine) for engine in engines]:
            failed += sum(not figure.is_reached for figure in _printed(figures))
    return 1 if failed else 0


def _printed(figures: Iterator[Figure]) -> Iterator[Figure]:
    """Print figures as they arrive; one whose server cannot start is missed."""
    began = time.perf_counter()
    try:
        for figure in figures:
            took = time.perf_counter() - began
            print(f"{'reached' if figure.is_reached else 'MISSED':8s} {figure.text} ({took:.0f} s)", flush=True)
            yield figure
    except (PartMissingError, NotStartedError) as missing:
        print(f"MISSED   NOT TESTED: {missing}", flush=True)
        yield Figure(str(missing), is_reached=False)


def prove_worlds(engine: Engine, calls: int, seeds: int, workers: int) -> Iterator[Figure]:
    """Run worlds with faults until there were so many seeds, and so many calls; fewer of both on a server."""
    if engine is POSTGRESQL:
        calls, seeds = calls // SHARE_OF_POSTGRESQL, seeds // SHARE_OF_POSTGRESQL
    found = crashes = broken = worlds = unknown = 0
    for report in _parallel(_run_world, count(), engine, workers):
        worlds, found, crashes = worlds + 1, found + report.calls, crashes + report.crashes
        unknown += report.unknown
        broken += _tell(report)
        if worlds >= seeds and found >= calls:
            break
    text = f"{found:,} simulated calls in {worlds:,} worlds with {crashes:,} crashes and {unknown:,} unknown outcomes"
    goal = f"goal: {calls:,} in {seeds:,}, 0"
    yield Figure(f"{engine.name}: {text}: {broken} worlds with broken promises; {goal}", broken == 0)


def prove_crashes(engine: Engine, crashes: int, workers: int) -> Iterator[Figure]:
    """Crash before and after every commit of small worlds, until there were so many crashes."""
    found = broken = unknown = seeds = 0
    for reports in _parallel(_run_crashes, count(1_000_000), engine, workers):
        seeds += 1
        found += sum(report.crashes for report in reports)
        unknown += sum(report.unknown for report in reports)
        broken += sum(map(_tell, reports))
        if found >= crashes:
            break
    text = f"{found:,} simulated crashes at every commit of {seeds:,} worlds, {unknown:,} unknown outcomes asked about"
    yield Figure(f"{engine.name}: {text}: {broken} broken promises; goal: {crashes:,}, 0", broken == 0)


def prove_mutations() -> Iterator[Figure]:
    """Plant each mistake in our own code."""
    command = [sys.executable, "-m", "tests.simulation.mutations"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        lines = [] if process.stdout is None else list(process.stdout)
    for line in lines[:-1]:
        yield Figure(line.strip(), "NOT FOUND" not in line)
    yield Figure(lines[-1].strip() if lines else "mutations: no result", process.returncode == 0)


def prove_kills(engine: Engine, kills: int) -> Iterator[Figure]:
    """Kill real processes at the commits of their store."""
    unknown = 0
    broken: list[str] = []
    with engine.server() as server:
        for trial in run_trials(
            kills, new_database=nullcontext if server is None else partial(temporary_database, server)
        ):
            unknown += trial.unknown
            broken += trial.broken
    for promise in broken:
        print(f"    {promise}", file=sys.stderr)
    text = f"{kills:,} processes killed with SIGKILL before and after commits, {unknown:,} unknown outcomes asked about"
    yield Figure(f"{engine.name}: {text}: {len(broken)} broken promises; goal: {kills:,}, 0", not broken)


def _run_world(seed: int, database: str | None) -> Report:
    return simulate(seed, WorldOptions(jobs=CALLS_OF_CLIENTS, database=database))


def _run_crashes(seed: int, database: str | None) -> list[Report]:
    return list(enumerate_crashes(seed, WorldOptions(jobs=CALLS_OF_CRASHES, database=database)))


def _parallel(run: Callable[[int, str | None], R], seeds: Iterable[int], engine: Engine, workers: int) -> Iterator[R]:
    """Run seeds in processes, each with a server of its own, and yield the results in order, until the caller stops.

    The transactions of one world would delay the followers of another on the same server.
    """
    endless = iter(seeds)
    with _workers(engine, workers) as pools:
        running_seeds = [pool.submit(run, next(endless), database) for _ in range(2) for pool, database in pools]
        while True:
            for pool, database in pools:
                yield running_seeds.pop(0).result()
                running_seeds.append(pool.submit(run, next(endless), database))


@contextmanager
def _workers(engine: Engine, workers: int) -> Generator[list[tuple[ProcessPoolExecutor, str | None]]]:
    """Provide pools of one process each, with the databases of their worlds."""
    with ExitStack() as stack:
        pools: list[tuple[ProcessPoolExecutor, str | None]] = []
        for _ in range(workers):
            server = stack.enter_context(engine.server())
            pool = stack.enter_context(ProcessPoolExecutor(1, mp_context=get_context("spawn")))
            stack.callback(pool.shutdown, cancel_futures=True)
            pools.append((pool, None if server is None else server.url()))
        yield pools


def _tell(report: Report) -> int:
    """Print the broken promises of a world, and return 1 if there are any."""
    for promise in report.broken:
        print(f"    seed {report.seed}, {report.crash_point or 'no chosen crash'}: {promise}", file=sys.stderr)
    return int(bool(report.broken))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.prove", description=__doc__)
    parser.add_argument("only", nargs="*", choices=("worlds", "crashes", "mutations", "kills", []), help="parts")
    parser.add_argument("--database", action="append", choices=ENGINES, help="databases [default: both]")
    parser.add_argument("--calls", type=int, default=1_000_000, help="simulated calls [default: 1,000,000]")
    parser.add_argument("--seeds", type=int, default=1000, help="worlds, at the least [default: 1,000]")
    parser.add_argument("--crashes", type=int, default=10_000, help="crashes on each database [default: 10,000]")
    parser.add_argument("--kills", type=int, default=500, help="real kills on each database [default: 500]")
    parser.add_argument("--workers", type=int, default=2, help="processes [default: 2]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
