"""Measure limits that processes share, on SQLite and PostgreSQL.

Run: python -m bench.limits [--quick]
"""

from __future__ import annotations

import argparse
import asyncio
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager

from bench.limits.cost import measure_cost
from bench.limits.outage import measure_outage
from bench.limits.rate import measure_rate
from tests.parts import PartMissingError
from tests.postgres.databases import new_database
from tests.postgres.server import NotStartedError, running

PROCESSES = 8


def main() -> int:
    """Print each figure with its goal; return 1 if a goal is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true", help="shorter runs, for a first look")
    seconds = 3.0 if parser.parse_args().quick else 12.0
    targets = [*asyncio.run(measure_cost("memory"))]
    with _databases() as databases:
        for name, new in databases.items():
            targets += asyncio.run(measure_cost(name, new()))
            targets += measure_rate(name, new(), processes=PROCESSES)
            targets += asyncio.run(measure_outage(name, new, processes=PROCESSES, seconds=seconds))
    for target in targets:
        mark = "ok    " if target.met else "MISSED"
        print(f"{mark} {target.name}: {target.value:,.2f} ({target.sense} {target.limit:,.2f})")
    return 0 if all(target.met for target in targets) else 1


@contextmanager
def _databases() -> Generator[dict[str, Callable[[], str]]]:
    """Yield what makes the setting `database` of a new database, by name; PostgreSQL if it can start here."""
    try:
        with running() as server:
            yield {"SQLite": lambda: "sqlite", "PostgreSQL": lambda: new_database(server)}
    except (PartMissingError, NotStartedError) as missing:
        print(f"without PostgreSQL: {missing}")
        yield {"SQLite": lambda: "sqlite"}


if __name__ == "__main__":
    sys.exit(main())
