"""Kill real processes with SIGKILL before and after the commits of their store, and check what another one recovers.

Each trial forks a process that makes calls on a new data folder and kills itself at one commit. Tools append their
effects to a file. A second process recovers the folder, answers what it is asked, and repeats every call by its key.
On PostgreSQL, each trial has a new database, and the lease of the killed process is ended instead of awaited.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import tempfile
from collections import Counter
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, Literal, NamedTuple

from toolpost import Toolbox, ToolContext, tool
from toolpost.configuration.loading import in_code
from toolpost.contracts.outcomes import Failed, Outcome, Paused
from toolpost.stores.postgres.database import Database
from toolpost.stores.postgres.store import open_postgres_store
from toolpost.stores.registry import find_backend
from toolpost.stores.threads import Blocking, DaemonThreads, StoreThread, Work
from toolpost.toolbox.wiring import store_options

Moment = Literal["before", "after"]
ANN, BOSS = "acme:ann", "acme:boss"
CALLS = (("pay", "p1"), ("pay", "p2"), ("put", "u1"), ("charge", "c1"), ("charge", "c2"), ("wipe", "w1"), ("pay", "p3"))
_SIGKILL = -signal.SIGKILL


class Trial(NamedTuple):
    """A kill at one commit: whether it happened, the number of unknown outcomes, and the broken promises."""

    was_killed: bool
    unknown: int
    broken: list[str]


def run_trials(
    count: int, *, new_database: Callable[[], AbstractContextManager[str | None]] = nullcontext
) -> Iterator[Trial]:
    """Kill processes before and after each commit, with calls in other orders, until there were `count` kills.

    `new_database` provides the URL of a new database on PostgreSQL, or None for SQLite in a new folder.
    """
    killed = order = 0
    while killed < count:
        commit, was_killed = 0, True
        while was_killed and killed < count:
            commit += 1
            for moment in ("before", "after"):
                with new_database() as database:
                    trial = run_trial(commit, moment, order, database=database)
                was_killed = trial.was_killed
                killed += was_killed
                if was_killed:
                    yield trial
        order += 1


def run_trial(commit: int, moment: Moment, order: int, *, database: str | None = None) -> Trial:
    """Kill one process, recover in another one, and check the effects."""
    folder = Path(tempfile.mkdtemp(prefix="toolpost-kill-"))
    try:
        ended = _fork(lambda: _make_calls(folder, KillingThreads(commit, moment), order, database))
        _fork(lambda: _recover(folder, database))
        found = json.loads((folder / "found.json").read_text())
        return Trial(ended == _SIGKILL, found["unknown"], list(_check(found, Counter(_effects(folder)))))
    finally:
        shutil.rmtree(folder, ignore_errors=True)


class KillingThreads(DaemonThreads):
    """Kills this process before or after one commit, counted from 1."""

    def __init__(self, commit: int, moment: Moment) -> None:
        self._left = commit
        self._moment = moment
        self._kills = False

    def start(self, work: Work, *, name: str, stop: Callable[[], None]) -> StoreThread:
        return super().start(self._watched(work), name=name, stop=stop)

    def before_commit(self) -> None:
        self._left -= 1
        if self._left == 0:
            if self._moment == "before":
                os.kill(os.getpid(), signal.SIGKILL)
            self._kills = True

    def _watched(self, work: Work) -> Work:
        item: Any = None
        while True:
            try:
                blocking: Blocking = work.send(item)
            except StopIteration:
                return
            if self._kills:
                os.kill(os.getpid(), signal.SIGKILL)
            item = yield blocking


def _fork(work: Callable[[], Coroutine[Any, Any, None]]) -> int:
    """Run a coroutine in a forked process, and return its exit code, negative for a signal."""
    child = os.fork()
    if child:
        return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    code = 1
    try:
        asyncio.run(work())
        code = 0
    finally:
        os._exit(code)


def _tools(folder: Path) -> Sequence[Any]:
    def effect(name: str) -> None:
        descriptor = os.open(folder / "effects", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        os.write(descriptor, f"{name}\n".encode())
        os.close(descriptor)

    @tool(side_effects="external", replay="unsafe")
    async def pay(job: str) -> str:
        await asyncio.sleep(0.001)
        effect(job)
        await asyncio.sleep(0.001)
        return job

    @tool(side_effects="write", replay="idempotent")
    async def put(job: str) -> str:
        effect(job)
        return job

    @tool(side_effects="external", replay="keyed")
    async def charge(job: str, ctx: ToolContext) -> str:
        effect(f"{job}={ctx.idempotency_key}")
        return job

    @tool(side_effects="write", destructive=True)
    async def wipe(job: str) -> str:
        effect(job)
        return job

    return [pay, put, charge, wipe]


async def _make_calls(folder: Path, threads: DaemonThreads, order: int, database: str | None) -> None:
    settings = _settings(folder, database)
    options = store_options(settings)._replace(threads=threads)
    store = await find_backend(options.database).open(options)
    async with Toolbox(tools=_tools(folder), settings=settings, store=store) as box:
        start = order % len(CALLS)
        calls = CALLS[start:] + CALLS[:start]
        await asyncio.gather(*(_call(box, name, job) for name, job in calls))
        for action in await box.pending.list(by=BOSS):
            await box.approve(action.id, by=BOSS)
    await store.close()


async def _recover(folder: Path, database: str | None) -> None:
    settings = _settings(folder, database)
    options = store_options(settings)
    if database is None:
        store = await find_backend(options.database).open(options)
    else:
        with closing(Database(database).connect("check")) as db:
            db.execute("UPDATE owners SET until = 0")
        data = folder / "data"
        store = open_postgres_store(database, data, cipher=options.make_cipher(data), probation_s=0.0)
    async with Toolbox(tools=_tools(folder), settings=settings, store=store) as box:
        effects = _effects(folder)
        unknown = 0
        for action in await box.pending.list(by=BOSS):
            if action.question.kind == "unknown":
                unknown += 1
                happened = action.arguments["job"] in effects
                await box.answer(action.id, by=BOSS, decision="happened" if happened else "not_happened")
        outcomes = {job: await _call(box, name, job) for name, job in CALLS}
        for action in await box.pending.list(by=BOSS):
            await box.approve(action.id, by=BOSS)
        outcomes["w1"] = await _call(box, "wipe", "w1")
        problems = await box.store.events.verify()
    await store.close()
    states = {job: _state(outcome) for job, outcome in outcomes.items()}
    (folder / "found.json").write_text(json.dumps({"unknown": unknown, "states": states, "problems": problems}))


def _effects(folder: Path) -> list[str]:
    file = folder / "effects"
    return file.read_text().split() if file.exists() else []


def _settings(folder: Path, database: str | None) -> Any:
    return in_code({"data_dir": str(folder / "data"), "database": database, "lock": None}).settings


async def _call(box: Toolbox, name: str, job: str) -> Outcome:
    return await box.call(name, {"job": job}, user=ANN, idempotency_key=f"key-{job}")


def _state(outcome: Outcome) -> str:
    if isinstance(outcome, Failed):
        return outcome.error.error_code
    return f"paused for {outcome.question.kind}" if isinstance(outcome, Paused) else "completed"


def _check(found: dict[str, Any], effects: Counter[str]) -> Iterator[str]:
    """Yield the broken promises: no effect is lost or doubled, and an unsafe call never runs again by itself."""
    yield from found["problems"]
    for name, job in CALLS:
        state = found["states"][job]
        if name == "charge":
            keys = {line for line in effects if line.startswith(f"{job}=")}
            count = len(keys)
        else:
            count = min(effects[job], 1) if name == "put" else effects[job]
        allowed = {"completed": 1, "not_executed": 0}
        if state not in allowed or allowed[state] != count or (state != "completed" and name in ("put", "charge")):
            yield f"{name} {job}: {state} with {count} effects"
