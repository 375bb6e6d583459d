"""Measure several processes on one database.

Run: python -m bench.replicas [approvals|kills|stopped ...] [--database sqlite|postgresql] [--quick]
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.core.figures import Target
from bench.replicas import approvals, server_kills, stopped
from tests.postgres.server import restartable

_ALL = ("approvals", "kills", "stopped")


def main() -> int:
    """Print each figure with its goal; return 1 if a goal is missed."""
    chosen = _parser().parse_args()
    is_quick: bool = chosen.quick
    missed = 0
    for name in chosen.parts or _ALL:
        if name == "kills" and chosen.database == "sqlite":
            continue
        print(f"== {name} on {chosen.database}", flush=True)
        with tempfile.TemporaryDirectory() as folder, _server(chosen.database) as (database, kill):
            for target in _measure(name, database, kill, Path(folder), is_quick=is_quick):
                missed += not target.met
                mark = "ok    " if target.met else "MISSED"
                print(f"{mark} {target.name}: {target.value:,.0f} ({target.sense} {target.limit:,.0f})", flush=True)
    return 1 if missed else 0


def _measure(name: str, database: str, kill: Callable[[], None], folder: Path, *, is_quick: bool) -> list[Target]:
    if name == "approvals":
        return approvals.measure(database, folder, processes=8, approvals=300 if is_quick else 10_000)
    if name == "stopped":
        return stopped.measure(database, folder, stopped_s=20 if is_quick else 60, running=20)
    paused, kills = (200, 3) if is_quick else (5_000, 12)
    return server_kills.measure(database, kill, folder, paused=paused, running=200, kills=kills, every_s=5)


@contextmanager
def _server(database: str) -> Iterator[tuple[str, Callable[[], None]]]:
    """Yield the setting `database`, and a function that kills its server and starts it again."""
    if database == "sqlite":
        yield database, lambda: None
        return
    with restartable() as (server, kill_and_start):
        yield server.url(), kill_and_start


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("parts", nargs="*", choices=[*_ALL, []], help="what to measure (default: all)")
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="postgresql")
    parser.add_argument("--quick", action="store_true", help="small numbers, to try the measurement")
    return parser


if __name__ == "__main__":
    sys.exit(main())
