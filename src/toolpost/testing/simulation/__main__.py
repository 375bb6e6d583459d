"""Run simulated worlds from the command line, and replay one with its trace."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from toolpost.testing.simulation.runner import Report, WorldOptions, enumerate_crashes, simulate


def main(arguments: list[str] | None = None) -> int:
    """Run the worlds; return 1 if a promise is broken, and print how to replay it."""
    given = _parser().parse_args(arguments)
    first, last = given.seeds or (given.seed, given.seed)
    options = WorldOptions(
        jobs=given.calls,
        processes=given.processes,
        database=given.database,
        folder=given.folder,
        tell=None if given.seeds or given.enumerate else print,
    )
    began, totals, broken = time.perf_counter(), Totals(), 0
    for report in _reports(range(first, last + 1), options, enumerates=given.enumerate):
        totals.add(report)
        for promise in report.broken:
            print(f"seed {report.seed}{_at(report)}: {promise}", file=sys.stderr)
        if report.broken:
            broken += 1
            print(f"    replay: {_command(report, given)}", file=sys.stderr)
    print(totals.text(time.perf_counter() - began))
    print(f"{broken} worlds with broken promises" if broken else "0 broken promises")
    return 1 if broken else 0


class Totals:
    """Sums over worlds."""

    def __init__(self) -> None:
        self.worlds = self.calls = self.crashes = self.commits = self.questions = self.unknown = 0
        self.virtual_s = 0.0

    def add(self, report: Report) -> None:
        """Add a world."""
        self.worlds += 1
        self.calls += report.calls
        self.crashes += report.crashes
        self.commits += report.commits
        self.questions += report.questions
        self.unknown += report.unknown
        self.virtual_s += report.virtual_s

    def text(self, seconds: float) -> str:
        """Return the sums, and the speed."""
        return (
            f"{self.worlds:,} worlds, {self.calls:,} calls, {self.crashes:,} crashes, {self.commits:,} commits, "
            f"{self.questions:,} questions, {self.unknown:,} unknown outcomes, {self.virtual_s:,.0f} virtual seconds "
            f"in {seconds:.1f} s ({self.calls / seconds:,.0f} calls a second)"
        )


def _reports(seeds: range, options: WorldOptions, *, enumerates: bool) -> Iterator[Report]:
    for seed in seeds:
        if enumerates:
            yield from enumerate_crashes(seed, options)
        else:
            yield simulate(seed, options)


def _at(report: Report) -> str:
    point = report.crash_point
    return "" if point is None else f", crash {point.moment} commit {point.commit}"


def _command(report: Report, given: argparse.Namespace) -> str:
    command = f"python -m toolpost.testing.simulation --seed {report.seed} --calls {given.calls}"
    if given.processes is not None:
        command += f" --processes {given.processes}"
    if given.database is not None:
        command += " --database URL"  # which may contain a password
    return command + (" --enumerate" if report.crash_point else "")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m toolpost.testing.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0, help="run one world, and print its trace [default: 0]")
    parser.add_argument("--seeds", type=_seeds, metavar="A-B", help="run the worlds of several seeds")
    parser.add_argument("--calls", type=int, default=100, help="calls of clients in each world [default: 100]")
    parser.add_argument("--processes", type=int, help="processes on one store [default: the seed chooses]")
    parser.add_argument("--enumerate", action="store_true", help="crash before and after every commit, one by one")
    parser.add_argument(
        "--database",
        metavar="URL",
        help="of PostgreSQL: each world creates a database there [default: SQLite]",
    )
    parser.add_argument("--folder", type=Path, help="where to create the folders of worlds [default: in memory]")
    return parser


def _seeds(text: str) -> tuple[int, int]:
    first, _, last = text.partition("-")
    return int(first), int(last or first)


if __name__ == "__main__":
    sys.exit(main())
