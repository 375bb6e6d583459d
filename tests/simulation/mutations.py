"""Mistakes planted in our own code, each of which the simulation must find: `python -m tests.simulation.mutations`.

Every mutation runs in a process of its own. The table has the seed that found it, and the promise that it broke.
"""

import argparse
import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from pathlib import Path
from typing import Any, NamedTuple

from toolpost.contracts.errors import ToolError
from toolpost.policy.call_hashes import call_hash
from toolpost.runtime import recovery, router
from toolpost.runtime.answer_checks import AnswerChecks, patched_arguments
from toolpost.runtime.router import Invoker, ToolRouter
from toolpost.runtime.tool_context import ContextServices
from toolpost.stores.sql import pending
from toolpost.stores.sqlite import calls
from toolpost.stores.sqlite.event_log import SQLiteEventLog
from toolpost.stores.sqlite.liveness import Liveness
from toolpost.testing.simulation import FaultRates, WorldOptions, simulate

MOST_SEEDS = 60
OPTIONS = WorldOptions(jobs=60)
# Every second world, so that each kind of fault is frequent and each kind is missing somewhere.
HOSTILE = FaultRates(crashes=0.02, full_disks=0.02, tools_break=0.2, answers_lost=0.1, kills_s=2.0, jumps_s=5.0)
Mutation = Callable[[], None]


class Found(NamedTuple):
    """The first seed with a broken promise; None if there was none."""

    name: str
    seed: int | None
    promise: str
    calls: int
    seconds: float


def claim_without_status() -> None:
    """An action is claimed although it was claimed before."""
    patch(pending, _CLAIM=vars(pending)["_CLAIM"]._replace(condition="id = :id"))


def intent_after_the_call() -> None:
    """The intent is written when the tool has run."""
    invoke = Invoker.invoke

    async def late_intent(self: Any, attempt: Any, runtime: Any, call: Any) -> Any:
        try:
            return await invoke(self, attempt, runtime, call)
        finally:
            if attempt.journaled:
                await self._journal.begin(attempt.journal_entry(""))

    async def no_intent(_: Any, attempt: Any) -> None:
        attempt.journaled = attempt.intent_written = True

    patch(Invoker, invoke=late_intent, _journal_intent=no_intent)


def recovery_takes_unsafe_calls_for_repeatable() -> None:
    """An interrupted unsafe call is reported as safe to repeat."""

    def never(_entry: Any) -> bool:
        return False

    patch(recovery, _is_unsafe=never)


def unsafe_calls_are_retried() -> None:
    """A retry after a broken connection does not look at the replay class."""

    def whenever_it_could_help(error: ToolError, *_: Any) -> bool:
        return error.is_retryable

    patch(router, may_repeat=whenever_it_could_help)


def followers_read_in_order_of_time() -> None:
    """Events are read by their times instead of their positions."""
    read = SQLiteEventLog.read

    async def by_time(self: Any, **only: Any) -> Any:
        return sorted(await read(self, **only), key=attrgetter("at"))

    patch(SQLiteEventLog, read=by_time)


def end_before_its_outcome() -> None:
    """The end of a call is emitted before its outcome is stored."""

    async def record(self: Any, attempt: Any, outcome: Any) -> None:
        self._end(attempt, outcome)
        if attempt.journaled or attempt.request.idempotency_key is not None:
            await self._recorder.record(attempt, outcome, lambda: None)

    patch(ToolRouter, _record=record)


def keys_are_reserved_twice() -> None:
    """A reservation replaces another one."""
    replacing = "ON CONFLICT (tenant, user, key) DO UPDATE SET call_id = excluded.call_id"
    patch(calls, _RESERVE=vars(calls)["_RESERVE"].replace("ON CONFLICT DO NOTHING", replacing))


def approvals_hold_for_other_definitions() -> None:
    """An approval is bound to the definition of the tool at the answer instead of that in the question."""

    def grant(self: Any, action: Any, changes: Any) -> str:
        entry = self._registry.find(action.tool_name)
        return call_hash(entry.spec, entry.fit(patched_arguments(action, changes)))

    def accept(*_: Any) -> None:
        pass

    patch(AnswerChecks, grant=grant, refuse_changed=accept)


def nothing_expires() -> None:
    """Questions stay open after their expiry."""

    async def expire(*_: Any) -> Sequence[Any]:
        return []

    patch(pending.SQLPendingStore, expire=expire)


def steps_are_not_stored() -> None:
    """`ctx.once` runs its function every time."""

    async def once(_self: Any, _key: str, fn: Any, **_: Any) -> Any:
        return await fn()

    patch(ContextServices, _once=once)


def living_processes_are_taken_for_dead() -> None:
    """Recovery adopts the calls of every other process."""

    def only_me(self: Liveness, owner_id: str) -> bool:
        return owner_id == self.owner_id

    patch(Liveness, alive=only_me)


def answers_do_not_wait_for_the_write() -> None:
    """A journal entry counts as written when it is queued."""
    begin = calls.SQLiteJournal.begin

    async def hasty(self: Any, entry: Any) -> None:
        task = asyncio.get_running_loop().create_task(begin(self, entry))
        task.add_done_callback(forget_error)

    def forget_error(task: asyncio.Task[None]) -> None:
        if not task.cancelled():
            task.exception()

    patch(calls.SQLiteJournal, begin=hasty)


def patch(owner: Any, **attributes: Any) -> None:
    for name, value in attributes.items():
        setattr(owner, name, value)


MUTATIONS: Mapping[str, Mutation] = {
    mutation.__name__: mutation
    for mutation in (
        claim_without_status,
        intent_after_the_call,
        recovery_takes_unsafe_calls_for_repeatable,
        unsafe_calls_are_retried,
        followers_read_in_order_of_time,
        end_before_its_outcome,
        keys_are_reserved_twice,
        approvals_hold_for_other_definitions,
        nothing_expires,
        steps_are_not_stored,
        living_processes_are_taken_for_dead,
        answers_do_not_wait_for_the_write,
    )
}


def find(name: str, *, most_seeds: int = MOST_SEEDS) -> Found:
    """Plant a mutation in a new process, and run seeds there until a promise is broken."""
    command = [sys.executable, "-m", "tests.simulation.mutations", "--plant", name, "--seeds", str(most_seeds)]
    done = subprocess.run(command, cwd=Path(__file__).parents[2], capture_output=True, text=True, check=True)
    return Found(**json.loads(done.stdout.splitlines()[-1]))


def plant_and_run(name: str, most_seeds: int) -> Found:
    """Plant a mutation in this process, and run seeds until a promise is broken."""
    MUTATIONS[name]()
    began, simulated = time.perf_counter(), 0
    for seed in range(most_seeds):
        report = simulate(seed, OPTIONS._replace(rates=HOSTILE) if seed % 2 else OPTIONS)
        simulated += report.calls
        if report.broken:
            return Found(name, seed, report.broken[0], simulated, time.perf_counter() - began)
    return Found(name, None, "", simulated, time.perf_counter() - began)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--plant", choices=MUTATIONS, help="run one in this process")
    parser.add_argument("--seeds", type=int, default=MOST_SEEDS, help=f"the most seeds [default: {MOST_SEEDS}]")
    given = parser.parse_args()
    if given.plant:
        print(json.dumps(plant_and_run(given.plant, given.seeds)._asdict()))
        return 0
    missed = 0
    for name in MUTATIONS:
        found = find(name, most_seeds=given.seeds)
        missed += found.seed is None
        where = "NOT FOUND" if found.seed is None else f"seed {found.seed}"
        print(f"{name:45s} {where:10s} {found.calls:6,} calls {found.seconds:6.1f} s  {found.promise[:90]}", flush=True)
    print(f"{len(MUTATIONS) - missed} of {len(MUTATIONS)} mutations found, goal: all within {given.seeds} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
