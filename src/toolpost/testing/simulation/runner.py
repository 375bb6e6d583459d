"""Run one simulated world: start processes, run all jobs under faults, let everything end, and audit it."""

from __future__ import annotations

import asyncio
import gc
import logging
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from toolpost.configuration.loading import in_code
from toolpost.contracts.questions import PendingAction
from toolpost.contracts.spec import ToolSpec
from toolpost.policy.call_hashes import call_hash
from toolpost.policy.log_redaction import LOGGERS
from toolpost.testing.simulation.auditor import Evidence, audit
from toolpost.testing.simulation.faults import NO_FAULTS, CrashPoint, FaultRates, Faults
from toolpost.testing.simulation.loop import WALL_OFFSET, Scheduler, SimulatedLoop
from toolpost.testing.simulation.people import Approver, Follower, Network, SimulatedClient
from toolpost.testing.simulation.process import DisconnectedError, ProcessParts, SimulatedProcess
from toolpost.testing.simulation.workload import Workload
from toolpost.testing.simulation.world import EffectLedger, SimulatedJob

PENDING_TTL_S = 20.0
_PER_SECOND = 40.0  # jobs
_LONGEST_STALL_S = 60.0
_FARTHEST_CLOCK_S = 30.0
_LONGEST_WAIT_S = 120.0  # for the end of all jobs, after the last fault
_RECOVERED_AFTER_S = 6.0  # the next sweep of Recovery
_LEASES_END_S = 2 * 15.0  # on a server: the lease of a killed process, and that of the one which finds that it ended
_REVISIONS = 2
_MEMORY = Path("/dev/shm")  # noqa: S108 - of Linux: commits need no disk


class WorldOptions(NamedTuple):
    """The size of a world: jobs, processes on one store, the faults, and the database (default: SQLite in a folder).

    Without `rates`, the seed chooses them. For the URL of a PostgreSQL server, the world creates a database there, and
    drops it. `tell` receives the lines of the trace.
    """

    jobs: int = 100
    processes: int | None = None
    rates: FaultRates | None = None
    crash_point: CrashPoint | None = None
    database: str | None = None
    folder: Path | None = None
    tell: Callable[[str], None] | None = None


class Report(NamedTuple):
    """The result of a world: broken promises, and what happened in it; equal runs have equal fingerprints."""

    seed: int
    broken: list[str]
    calls: int
    crashes: int
    commits: int
    questions: int
    unknown: int
    virtual_s: float
    fingerprint: str
    crash_point: CrashPoint | None = None


def simulate(seed: int, options: WorldOptions | None = None) -> Report:
    """Run the world of a seed, and return its report."""
    options = options or WorldOptions()
    parent = options.folder or (_MEMORY if _MEMORY.is_dir() else None)
    folder = Path(tempfile.mkdtemp(prefix="toolpost-simulation-", dir=parent))
    with _contained():
        try:
            if not (options.database or "").startswith("postgres"):
                return World(seed, options, folder).run()
            databases = import_module("toolpost.testing.simulation.databases")  # needs the extra `postgres`
            with databases.new_database(options.database) as database:
                return World(seed, options._replace(database=database.url), folder, on_time=database.set_time).run()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


def enumerate_crashes(seed: int, options: WorldOptions | None = None) -> Iterator[Report]:
    """Run the world of a seed without faults, and then once for each crash before and after one of its commits."""
    options = options or WorldOptions()
    whole = simulate(seed, options._replace(rates=NO_FAULTS, crash_point=None))
    yield whole
    for commit in range(1, whole.commits + 1):
        for moment in ("before", "after"):
            yield simulate(seed, options._replace(rates=NO_FAULTS, crash_point=CrashPoint(commit, moment)))


class World:
    """One world. Mutable: it counts processes."""

    def __init__(
        self, seed: int, options: WorldOptions, folder: Path, *, on_time: Callable[[float], None] | None = None
    ) -> None:
        self.seed = seed
        self.options = options
        self.recovered_after_s = _RECOVERED_AFTER_S + (0.0 if on_time is None else _LEASES_END_S)
        self.random = Random(f"world of {seed}")  # noqa: S311 - a simulation has to be repeatable
        rates = options.rates or FaultRates.of(self.random)
        self.scheduler = Scheduler(seed)
        if on_time is not None:
            self.scheduler.on_time = on_time
        self.faults = Faults(seed, rates, options.crash_point)
        self.outside = SimulatedLoop(self.scheduler, "outside")
        self.ledger = EffectLedger()
        self.workload = Workload(seed, self.ledger, self.faults)
        self.processes = options.processes or self.random.choice((1, 1, 2, 2, 3))
        span_s = options.jobs / _PER_SECOND
        starts = [self.random.random() * span_s for _ in range(options.jobs)]
        self.jobs = [SimulatedJob.plan(number, self.random, starts_at=at) for number, at in enumerate(starts)]
        self.changes_at = self.random.random() * span_s if self.random.random() < 0.3 else None
        self.network = Network(Random(f"people of {seed}"), lambda: self.scheduler.now, self.tell)  # noqa: S311
        self.started = 0
        self.is_over = False
        self._folder = str(folder)
        settings: Mapping[str, Any] = {
            "data_dir": str(folder),
            "database": options.database,
            "lock": None,
            "policy": "standard",
            "limits": {"pending_ttl": PENDING_TTL_S},
        }
        self._settings = in_code(settings).settings
        self._specs = {revision: self._spec_of_wipe(revision) for revision in range(1, _REVISIONS + 1)}

    def run(self) -> Report:
        """Run everything, and audit it."""
        began = self.scheduler.now
        main = self.outside.create_task(self._main())
        try:
            evidence = self.scheduler.run_until_done(main)
        finally:
            self.scheduler.kill(self.outside)
            self.outside.discard()
        return Report(
            seed=self.seed,
            broken=audit(evidence),
            calls=evidence.calls,
            crashes=self.faults.crashes,
            commits=self.faults.commits,
            questions=len(evidence.actions),
            unknown=evidence.unknown,
            virtual_s=self.scheduler.now - began,
            fingerprint=self.scheduler.fingerprint,
            crash_point=self.options.crash_point,
        )

    def tell(self, line: str) -> None:
        """Write a line of the trace."""
        if self.options.tell is not None:
            line = line.replace(self._folder, "FOLDER")
            self.options.tell(f"{self.scheduler.now - 1000.0:10.4f}  {line}")

    async def _main(self) -> Evidence:
        approver, follower = Approver(self.network, self.jobs, self.ledger), Follower(self.network)
        async with asyncio.TaskGroup() as group:
            keepers = [group.create_task(self._keep_running()) for _ in range(self.processes)]
            faults = (self._kill(), self._stall(), self._jump())
            helpers = [group.create_task(work) for work in (approver.run(), follower.run(), *faults)]
            clients = [group.create_task(SimulatedClient(self.network, job).run()) for job in self.jobs]
            last = max((job.starts_at for job in self.jobs), default=0.0)
            await asyncio.sleep(last + 2.0)
            self.tell("no more faults")
            self.faults.stop()
            await self._wait_for_end(clients)
            self.is_over = True
            for task in (*helpers, *clients):
                task.cancel()
            await asyncio.wait(keepers)
        while True:
            try:
                return await self._collect(approver, follower)
            except DisconnectedError:  # it crashed, too
                self.network.processes.clear()

    async def _keep_running(self) -> None:
        """Restart a process each time it ends."""
        while not self.is_over:
            process = self._new_process()
            self.network.processes.append(process)
            self.tell(f"{process.name} starts")
            try:
                await process.start()
                while process.is_alive and not self.is_over:  # noqa: ASYNC110 - two conditions of two owners
                    await asyncio.sleep(0.5)
                await process.stop()
            except DisconnectedError:
                pass
            self.network.processes.remove(process)
            if not self.is_over:
                await self.network.pause()

    def _new_process(self) -> SimulatedProcess:
        self.started += 1
        name = f"p{self.started}"
        is_changed = self.changes_at is not None and self.scheduler.now - 1000.0 > self.changes_at
        revision = 2 if is_changed else 1
        tools = self.workload.tools(name, revision)
        parts = ProcessParts(self.scheduler, self.faults, self.outside, tools, self._settings, self.tell)
        return SimulatedProcess(parts, name)

    async def _kill(self) -> None:
        """Kill processes at random times, at any step."""
        while self.faults.rates.kills_s:
            await asyncio.sleep(self.random.expovariate(1 / self.faults.rates.kills_s))
            living = [process for process in self.network.processes if process.is_alive]
            if living and self.faults.rates.kills_s:
                self.random.choice(living).crash()

    async def _stall(self) -> None:
        """Stop a process at random times, for longer or shorter than its lease."""
        while self.faults.rates.stalls_s:
            await asyncio.sleep(self.random.expovariate(1 / self.faults.rates.stalls_s))
            living = [process for process in self.network.processes if process.is_alive]
            if living and self.faults.rates.stalls_s:
                self.random.choice(living).stall(self.random.random() * _LONGEST_STALL_S)

    async def _jump(self) -> None:
        """Set the wall clock forward or back at random times, near the true time."""
        while self.faults.rates.jumps_s:
            await asyncio.sleep(self.random.expovariate(1 / self.faults.rates.jumps_s))
            if self.faults.rates.jumps_s:
                seconds = self.random.uniform(-_FARTHEST_CLOCK_S, _FARTHEST_CLOCK_S)
                self.tell(f"the wall clock jumps to {seconds:.1f} s from the true time")
                self.scheduler.wall_offset = WALL_OFFSET + seconds

    async def _wait_for_end(self, clients: list[asyncio.Task[None]]) -> None:
        """Wait until all clients have their outcomes and no question is open, up to a limit."""
        until = self.scheduler.now + _LONGEST_WAIT_S + self.recovered_after_s
        await asyncio.wait(clients, timeout=_LONGEST_WAIT_S + (_LONGEST_STALL_S if self.faults.stalls else 0.0))
        await asyncio.sleep(self.recovered_after_s)  # calls of a crashed process may become questions
        while self.scheduler.now < until:
            try:
                waiting = await self.network.ask(lambda box: box.store.pending.list(limit=1))
                claimed = await self.network.ask(lambda box: box.store.pending.list(status="claimed", limit=1))
            except DisconnectedError:
                waiting = claimed = []
                continue
            if not waiting and not claimed:
                return
            await asyncio.sleep(1.0)

    async def _collect(self, approver: Approver, follower: Follower) -> Evidence:
        """Open the store in one more process, which recovers unfinished calls, and read all records."""
        process = self._new_process()
        await process.start()
        self.network.processes.append(process)
        await asyncio.sleep(self.recovered_after_s)
        await follower.read()
        problems = await process.request(lambda box: box.store.events.verify())
        events = await process.request(lambda box: box.store.events.read(limit=10_000_000))
        actions = await process.request(lambda box: box.store.pending.list(status=None, limit=1_000_000))
        await process.stop()
        return Evidence(
            jobs=self.jobs,
            ledger=self.ledger,
            events=events,
            followed=follower.seen,
            actions=actions,
            problems=problems,
            unknown=len(approver.unknown),
            crowds=[] if self.faults.stalls else self.workload.crowds,  # a stalled process continues its calls
            disk_was_full=self.faults.full_disks > 0,
            has_stalls=self.faults.stalls > 0,
            revision_of=self._revision_of,
        )

    def _spec_of_wipe(self, revision: int) -> ToolSpec:
        return next(tool.spec for tool in self.workload.tools("", revision) if tool.spec.name == "wipe")

    def _revision_of(self, action: PendingAction) -> int | None:
        """Return the revision of `wipe` that a question was about."""
        for revision, spec in self._specs.items():
            if call_hash(spec, action.arguments) == action.arguments_hash:
                return revision
        return None


@contextmanager
def _contained() -> Generator[None]:
    """Disable logs, and remove leftovers of crashed processes: coroutines that cannot be closed, and log filters."""
    filters = {name: list(logging.getLogger(name).filters) for name in LOGGERS}
    disabled, hook = logging.root.manager.disable, sys.unraisablehook
    logging.disable(logging.CRITICAL)
    sys.unraisablehook = _ignore
    gc.freeze()  # older objects need not be searched
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # coroutines that were never awaited
            yield
            gc.collect()
    finally:
        gc.unfreeze()
        sys.unraisablehook = hook
        logging.disable(disabled)
        for name, own in filters.items():
            logging.getLogger(name).filters[:] = own


def _ignore(_: object) -> None:
    pass
