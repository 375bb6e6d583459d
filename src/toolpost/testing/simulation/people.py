"""The people and programs of a simulated world: clients that repeat calls, approvers that click twice, a follower."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from toolpost import Toolbox
from toolpost.contracts.errors import PendingNotFoundError, StoreError, ToolConflictError, ToolError
from toolpost.contracts.events import StoredEvent
from toolpost.contracts.outcomes import Failed, Outcome, Paused
from toolpost.contracts.questions import PendingAction
from toolpost.testing.simulation.process import DisconnectedError, SimulatedProcess
from toolpost.testing.simulation.world import BOSS, EffectLedger, SimulatedJob, SimulatedReply, root_job

T = TypeVar("T")
_LATER = frozenset({"in_progress", "outcome_unknown"})  # conflicts of a key whose call has not ended
_LONGEST_PAUSE_S = 2.0
_RERUN = frozenset({"order", "bundle", "pack"})  # tools that may run again: their effects are steps or nested calls


class Network:
    """Connects people with processes, of which some are down. Mutable: the list of `processes` changes."""

    def __init__(self, random: Random, now: Callable[[], float], tell: Callable[[str], None]) -> None:
        self.processes: list[SimulatedProcess] = []
        self.random = random
        self.now = now
        self.tell = tell

    async def ask(self, work: Callable[[Toolbox], Coroutine[Any, Any, T]]) -> T:
        """Do something in any process that accepts requests; DisconnectedError if there is none, or it crashes."""
        await self.pause(0.01)
        able = [process for process in self.processes if process.box is not None]
        if not able:
            raise DisconnectedError("no process")
        return await self.random.choice(able).request(work)

    async def pause(self, most_s: float = _LONGEST_PAUSE_S) -> None:
        """Wait for a moment that the seed chooses."""
        await asyncio.sleep(self.random.random() * most_s)


class SimulatedClient:
    """Sends the calls of one job, and repeats those without an answer that have an idempotency key."""

    def __init__(self, network: Network, job: SimulatedJob) -> None:
        self._network = network
        self._job = job

    async def run(self) -> None:
        """Send all calls, cancel them if the plan says so, and wait for the ends."""
        job = self._job
        await asyncio.sleep(job.starts_at)
        async with asyncio.TaskGroup() as group:
            for _ in range(job.sends):
                group.create_task(self._send())
            if job.cancels_after is not None:
                group.create_task(self._cancel(job.cancels_after))
        job.is_done = True

    async def _send(self) -> None:
        """Send one call until its outcome arrives."""
        job, network = self._job, self._network
        if job.sends > 1:
            await network.pause(0.5)
        while True:
            asked_at = network.now()
            outcome = await self._call()
            job.replies.append(SimulatedReply(asked_at, network.now(), outcome))
            network.tell(f"{job.id} {job.tool}: {job.replies[-1].code}")
            if job.key is None:  # it must not be sent again
                return await self._wait(outcome) if isinstance(outcome, Paused) else None
            if outcome is not None and not _comes_later(outcome, job.replies[:-1]):
                return None
            await network.pause()

    async def _call(self) -> Outcome | None:
        job = self._job

        def call(box: Toolbox) -> Coroutine[Any, Any, Outcome]:
            return box.call(job.tool, job.arguments, user=job.user, idempotency_key=job.key, run_id=job.run_id)

        asking = asyncio.ensure_future(self._network.ask(call))
        patience, job.hangs_up_after = job.hangs_up_after, None
        if patience is not None:
            await asyncio.wait([asking], timeout=patience)
            asking.cancel()
        try:
            return await asking
        except (DisconnectedError, asyncio.CancelledError):
            if not asking.done():
                raise
            return None

    async def _wait(self, paused: Paused) -> None:
        """Wait for the outcome of a call without a key by the id of its question."""
        job, network = self._job, self._network
        while True:
            asked_at = network.now()
            try:
                outcome = await network.ask(
                    lambda box: box.pending.outcome(paused.pending_id, by=job.user, wait_s=_LONGEST_PAUSE_S)
                )
            except (DisconnectedError, StoreError):
                await network.pause()
                continue
            except PendingNotFoundError:
                return  # the call was cancelled while the question was being written
            if not isinstance(outcome, Paused):
                job.replies.append(SimulatedReply(asked_at, network.now(), outcome))
                network.tell(f"{job.id} {job.tool}: {job.replies[-1].code} after a question")
                return
            await network.pause()

    async def _cancel(self, after_s: float) -> None:
        job, network = self._job, self._network
        await asyncio.sleep(after_s)
        job.is_cancelled = True
        try:
            found = await network.ask(lambda box: box.cancel(job.run_id, by=job.user))
            network.tell(f"{job.id} cancelled: {found}")
        except (DisconnectedError, StoreError) as error:
            network.tell(f"{job.id} not cancelled: {error}")


def _comes_later(outcome: Outcome, earlier: Sequence[SimulatedReply]) -> bool:
    """Return whether a call with a key has to be repeated to learn its end."""
    if not isinstance(outcome, Failed):
        return isinstance(outcome, Paused)
    if isinstance(outcome.error, StoreError):  # the recorded outcome of the tool, if the same call fails again
        return all(reply.outcome is None or reply.outcome.call_id != outcome.call_id for reply in earlier)
    return outcome.error.error_code in _LATER


class Approver:
    """Answers the questions of all jobs by their plans, often twice, and reports the truth about unknown outcomes."""

    def __init__(self, network: Network, jobs: Sequence[SimulatedJob], ledger: EffectLedger) -> None:
        self._network = network
        self._jobs = {job.id: job for job in jobs}
        self._ledger = ledger
        self._busy: set[str] = set()
        self._refused: set[str] = set()  # questions whose tool has changed
        self.unknown: set[str] = set()  # jobs whose outcome was asked about

    async def run(self) -> None:
        """Answer questions until cancelled."""
        async with asyncio.TaskGroup() as group:
            while True:
                await asyncio.sleep(0.5)
                try:
                    actions = await self._network.ask(lambda box: box.pending.list(by=BOSS, limit=1000))
                except (DisconnectedError, StoreError):
                    continue
                for action in actions:
                    if action.id not in self._busy:
                        self._busy.add(action.id)
                        group.create_task(self._handle(action))

    async def _handle(self, action: PendingAction) -> None:
        network, kind = self._network, action.question.kind
        if kind == "unknown":
            self.unknown.add(str(action.arguments["job"]))
        plan = self._jobs[root_job(str(action.arguments["job"]))]
        if kind == "approval" and plan.decision == "ignore":
            return
        late_s = action.expires_at - action.created_at if kind == "approval" and plan.decision == "late" else 0.0
        await asyncio.sleep(late_s)
        await network.pause()
        clicks = network.random.choice((1, 1, 2, 3))
        async with asyncio.TaskGroup() as group:
            for _ in range(clicks):
                group.create_task(self._click(action, plan))
        self._busy.discard(action.id)  # it may still be open

    async def _click(self, action: PendingAction, plan: SimulatedJob) -> None:
        network = self._network
        await network.pause(0.05)
        decision = self._decision(action, plan)
        try:
            outcome = await network.ask(lambda box: _answer(box, action, plan, decision))
            network.tell(f"{action.id} {action.arguments['job']}: {decision}, then {_code(outcome)}")
        except DisconnectedError:
            network.tell(f"{action.id} {action.arguments['job']}: {decision}, no answer")
        except ToolError as error:
            network.tell(f"{action.id} {action.arguments['job']}: {decision} refused, {error.error_code}")
            if isinstance(error, ToolConflictError) and error.error_code in ("tool_changed", "outer_failed"):
                self._refused.add(action.id)

    def _decision(self, action: PendingAction, plan: SimulatedJob) -> str:
        job, kind = str(action.arguments["job"]), action.question.kind
        if kind == "approval":
            if action.id in self._refused or plan.decision == "deny":
                return "deny"
            return "change" if plan.decision == "change" else "approve"
        if kind != "unknown":
            return "answer"
        step = action.question.payload.get("step")
        if step is None and action.tool_name in _RERUN and action.id not in self._refused:
            return "rerun"
        happened = self._ledger.count(f"{job}.{step}" if step else job)
        if happened or action.tool_name in _RERUN:
            return "happened" if happened else "not_happened"
        may_rerun = step is None and action.id not in self._refused
        return "rerun" if may_rerun and plan.amount % 2 else "not_happened"


def _code(outcome: Outcome) -> str:
    return outcome.error.error_code if isinstance(outcome, Failed) else outcome.status


async def _answer(box: Toolbox, action: PendingAction, plan: SimulatedJob, decision: str) -> Outcome:
    if decision == "change":
        changes = [{"op": "replace", "path": "/amount", "value": plan.changed_amount}]
        return await box.approve(action.id, by=BOSS, changes=changes)
    if decision == "approve":
        return await box.approve(action.id, by=BOSS)
    if decision == "deny":
        return await box.deny(action.id, by=BOSS)
    value = plan.amount if decision == "answer" else None
    return await box.answer(action.id, value, by=BOSS, decision=decision)  # type: ignore[arg-type]


class Follower:
    """Reads the events of all runs in order, from one process after another."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self.seen: list[StoredEvent] = []

    async def run(self) -> None:
        """Read new events until cancelled."""
        while True:
            await self._network.pause(1.0)
            try:
                await self.read()
            except (DisconnectedError, StoreError):
                continue

    async def read(self) -> None:
        """Read the events after the last one seen."""
        after = self.seen[-1].id if self.seen else 0
        self.seen += await self._network.ask(lambda box: box.store.events.read(after=after, limit=10_000))
