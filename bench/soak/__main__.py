"""Let two gateways and two workers work on PostgreSQL for half an hour, and show what grows.

Run: python -m bench.soak [--minutes N] [--every SECONDS] | --plot FILE

The load is light and steady, so what grows is no queue. The samples are kept as CSV in bench/results; `--plot` draws
such a file as docs/images/soak.svg.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

import psutil
import psycopg

from bench.__main__ import DOCS, RESULTS
from bench.envs import HERE, environment
from bench.soak.load import Address, Load
from bench.soak.samples import SECONDS, WARM_UP, Course, Sample, courses_of, write
from tests.postgres.databases import new_database
from tests.postgres.server import running
from tests.scale.workers import Deployment

GATEWAYS = WORKERS = 2
_STOP_S = 30.0
# All clients have one credential and one source, so limits that protect a gateway from them are out of the way.
_CONFIG = """
server: {requests_per_minute: 100000, concurrent_requests: 200}
limits: {absolute_max_parallel: 200}
"""
_CONNECTIONS = """
SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()
"""
_REPORT = '''
@tool(side_effects="read")
async def report(name: str) -> str:
    """Return a text that is stored as an artifact."""
    return name * (200_000 // len(name))
'''


def main() -> int:
    """Soak, keep the samples and print how each measure went; or draw kept samples."""
    given = _parser().parse_args()
    if given.plot:
        return plot(given.plot)
    RESULTS.mkdir(exist_ok=True)
    kept = RESULTS / time.strftime("soak-%Y%m%d-%H%M%S.csv")
    with tempfile.TemporaryDirectory() as folder, running(autovacuum=True) as server:
        soak = Soak(Deployment(Path(folder), new_database(server), concurrency=8), kept)
        problems = asyncio.run(soak.run(given.minutes * 60, every_s=given.every))
    missed = tell(courses_of(soak.samples))
    for problem in problems[:10]:
        print(f"MISSED {problem}")
    print(f"{soak.told}; {len(problems)} problems; {len(soak.samples)} samples in {kept}")
    return 1 if missed or problems else 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m bench.soak", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=30.0, help="how long [default: 30]")
    parser.add_argument("--every", type=float, default=5.0, help="seconds between samples [default: 5]")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="draw kept samples as docs/images/soak.svg")
    return parser


def tell(courses: Sequence[Course]) -> int:
    """Print how each column went, and return how many were not flat."""
    print(f"medians of the first and the last third after {WARM_UP:.0%} of warm-up, and the slope")
    for course in courses:
        target = course.target
        unit = f" {target.unit}" if target.unit else ""
        print(
            f"{'flat  ' if target.met else 'MISSED'} {target.name}: {course.first:,.1f} to {course.last:,.1f}{unit}"
            f" (at most {target.limit:,.1f}), {course.per_hour:+,.1f} an hour"
        )
    return sum(not course.target.met for course in courses)


def plot(kept: Path) -> int:
    """Draw kept samples."""
    command = [str(environment("plots")), "-m", "bench.plots", str(kept.resolve()), str(DOCS / "images")]
    return subprocess.run(command, cwd=HERE.parent, check=False).returncode


class Soak:
    """The processes under load and their samples."""

    def __init__(self, deployment: Deployment, kept: Path) -> None:
        self._deployment = deployment
        self._kept = kept
        self.samples: list[Sample] = []
        self.told = ""
        for path, text in ((deployment.config, _CONFIG), (deployment.folder / "tools.py", _REPORT)):
            with path.open("a") as file:
                file.write(text)

    async def run(self, seconds: float, *, every_s: float) -> list[str]:
        """Run the processes and the load, and return what went wrong."""
        with ExitStack() as stack:
            addresses: list[Address] = []
            processes: dict[str, psutil.Process] = {}
            for number in range(1, GATEWAYS + 1):
                address, process = stack.enter_context(_gateway(self._deployment))
                addresses.append(address)
                processes[f"gateway {number}"] = process
            for number in range(1, WORKERS + 1):
                processes[f"worker {number}"] = stack.enter_context(self._deployment.worker()).seen
            load = Load(addresses)
            async with asyncio.TaskGroup() as group:
                running_load = group.create_task(load.run())
                try:
                    await self._sample(load, processes, seconds, every_s)
                finally:
                    load.stop()
                await running_load
        done = ", ".join(f"{times:,} {kind}" for kind, times in load.done.items())
        self.told = f"{seconds / 60:g} minutes with {done}; {load.events:,} events streamed"
        return [*load.failures, *self._lost_or_doubled(load)]

    async def _sample(
        self, load: Load, processes: Mapping[str, psutil.Process], seconds: float, every_s: float
    ) -> None:
        began = time.monotonic()
        with psycopg.connect(self._deployment.url, autocommit=True) as db:
            while (now := time.monotonic() - began) < seconds:
                await asyncio.sleep(every_s)
                [(connections,)] = db.execute(_CONNECTIONS).fetchall()
                sample = {SECONDS: now + every_s}
                for name, process in processes.items():
                    sample |= _sample_of(name, process)
                sample |= {"PostgreSQL connections": float(connections), **load.latencies()}
                self.samples.append(sample)
                write(self.samples, self._kept)  # also if the soak is ended early

    def _lost_or_doubled(self, load: Load) -> list[str]:
        effects = self._deployment.effects()
        paid = {name: times for name, times in effects.items() if name.startswith(("background-", "approval-"))}
        missing = load.done["background"] + load.done["approval"] - len(paid)
        return [
            *([f"{missing} effects of background calls are missing"] if missing > 0 else []),
            *(f"{name} happened {times} times" for name, times in paid.items() if times > 1),
        ]


def _sample_of(name: str, process: psutil.Process) -> Sample:
    """What a process holds now."""
    with process.oneshot():
        return {
            f"{name} memory_mb": process.memory_info().rss / (1 << 20),
            f"{name} descriptors": float(process.num_fds()),
            f"{name} connections": float(len(process.net_connections(kind="all"))),
            f"{name} threads": float(process.num_threads()),
        }


@contextmanager
def _gateway(deployment: Deployment) -> Generator[tuple[Address, psutil.Process]]:
    """A gateway on a free port, which is ended by its ID."""
    command = [sys.executable, "-m", "toolpost", "up", "--port", "0", "--json", "--config", str(deployment.config)]
    with subprocess.Popen(command, cwd=deployment.folder, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            told = json.loads(process.stdout.readline())
            address = Address(told["mcp"], Path(told["token_file"]).read_text(encoding="ascii"))
            yield address, psutil.Process(process.pid)
        finally:
            process.terminate()
            try:
                process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                process.kill()


if __name__ == "__main__":
    sys.exit(main())
