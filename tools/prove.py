"""Prove the promises of calls: simulated worlds, enumerated crashes, planted mistakes and real kills, with their goals.

`make prove` runs everything, in about an hour of two cores. The options make each part smaller.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from itertools import count
from multiprocessing import get_context
from typing import NamedTuple, TypeVar

from toolpost.testing.simulation import Report, WorldOptions, enumerate_crashes, simulate
from tools.real_kills import run_trials

R = TypeVar("R")
CALLS_OF_CLIENTS = 400  # in each world; a client repeats calls, and calls nest
CALLS_OF_CRASHES = 5


class Figure(NamedTuple):
    """One line of the result."""

    text: str
    is_reached: bool


def main() -> int:
    """Run all parts, or some, and print their figures."""
    given = _parser().parse_args()
    parts: dict[str, Callable[[], Iterator[Figure]]] = {
        "worlds": lambda: prove_worlds(given.calls, given.seeds, given.workers),
        "crashes": lambda: prove_crashes(given.crashes, given.workers),
        "mutations": prove_mutations,
        "kills": lambda: prove_kills(given.kills),
    }
    failed = 0
    for name in given.only or parts:
        began = time.perf_counter()
        for figure in parts[name]():
            failed += not figure.is_reached
            took = time.perf_counter() - began
            print(f"{'reached' if figure.is_reached else 'MISSED':8s} {figure.text} ({took:.0f} s)", flush=True)
    return 1 if failed else 0


def prove_worlds(calls: int, seeds: int, workers: int) -> Iterator[Figure]:
    """Run worlds with faults until there were so many seeds, and so many calls."""
    found = crashes = broken = worlds = unknown = 0
    for report in _parallel(_run_world, count(), workers):
        worlds, found, crashes = worlds + 1, found + report.calls, crashes + report.crashes
        unknown += report.unknown
        broken += _tell(report)
        if worlds >= seeds and found >= calls:
            break
    text = f"{found:,} simulated calls in {worlds:,} worlds with {crashes:,} crashes and {unknown:,} unknown outcomes"
    yield Figure(f"{text}: {broken} worlds with broken promises; goal: {calls:,} in {seeds:,}, 0", broken == 0)


def prove_crashes(crashes: int, workers: int) -> Iterator[Figure]:
    """Crash before and after every commit of small worlds, until there were so many crashes."""
    found = broken = unknown = seeds = 0
    for reports in _parallel(_run_crashes, count(1_000_000), workers):
        seeds += 1
        found += sum(report.crashes for report in reports)
        unknown += sum(report.unknown for report in reports)
        broken += sum(map(_tell, reports))
        if found >= crashes:
            break
    text = f"{found:,} simulated crashes at every commit of {seeds:,} worlds, {unknown:,} unknown outcomes asked about"
    yield Figure(f"{text}: {broken} broken promises; goal: {crashes:,}, 0", broken == 0)


def prove_mutations() -> Iterator[Figure]:
    """Plant each mistake in our own code."""
    command = [sys.executable, "-m", "tests.simulation.mutations"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:  # noqa: S603 - our own module
        lines = [] if process.stdout is None else list(process.stdout)
    for line in lines[:-1]:
        yield Figure(line.strip(), "NOT FOUND" not in line)
    yield Figure(lines[-1].strip() if lines else "mutations: no result", process.returncode == 0)


def prove_kills(kills: int) -> Iterator[Figure]:
    """Kill real processes at the commits of their store."""
    unknown = 0
    broken: list[str] = []
    for trial in run_trials(kills):
        unknown += trial.unknown
        broken += trial.broken
    for promise in broken:
        print(f"    {promise}", file=sys.stderr)
    text = f"{kills:,} processes killed with SIGKILL before and after commits, {unknown:,} unknown outcomes asked about"
    yield Figure(f"{text}: {len(broken)} broken promises; goal: 500, 0", not broken)


def _run_world(seed: int) -> Report:
    return simulate(seed, WorldOptions(jobs=CALLS_OF_CLIENTS))


def _run_crashes(seed: int) -> list[Report]:
    return list(enumerate_crashes(seed, WorldOptions(jobs=CALLS_OF_CRASHES)))


def _parallel(run: Callable[[int], R], seeds: Iterable[int], workers: int) -> Iterator[R]:
    """Run seeds in processes of their own, and yield the results in order, until the caller stops."""
    endless = iter(seeds)
    with ProcessPoolExecutor(workers, mp_context=get_context("spawn")) as pool:
        running = [pool.submit(run, next(endless)) for _ in range(workers * 2)]
        try:
            while True:
                yield running.pop(0).result()
                running.append(pool.submit(run, next(endless)))
        finally:
            pool.shutdown(cancel_futures=True)


def _tell(report: Report) -> int:
    """Print the broken promises of a world, and return 1 if there are any."""
    for promise in report.broken:
        print(f"    seed {report.seed}, {report.crash_point or 'no chosen crash'}: {promise}", file=sys.stderr)
    return int(bool(report.broken))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.prove", description=__doc__)
    parser.add_argument("only", nargs="*", choices=("worlds", "crashes", "mutations", "kills", []), help="parts")
    parser.add_argument("--calls", type=int, default=1_000_000, help="simulated calls [default: 1,000,000]")
    parser.add_argument("--seeds", type=int, default=1000, help="worlds, at the least [default: 1,000]")
    parser.add_argument("--crashes", type=int, default=10_000, help="enumerated crashes [default: 10,000]")
    parser.add_argument("--kills", type=int, default=500, help="real kills [default: 500]")
    parser.add_argument("--workers", type=int, default=2, help="processes [default: 2]")
    return parser


if __name__ == "__main__":
    sys.exit(main())
