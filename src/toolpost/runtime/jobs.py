"""Run jobs: calls in the background, and the continuations of calls whose questions were answered."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.callers import KEY_ID
from toolpost.contracts.calls import OutcomeKey
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import StoreError, ToolAuthError, ToolError, ToolExecutionError
from toolpost.contracts.jobs import Job, QueueName, job_id
from toolpost.contracts.outcomes import Failed, Outcome
from toolpost.runtime.failures import STOPPED
from toolpost.runtime.persistence import INTERRUPTED, dump_outcome, kept_outcome

if TYPE_CHECKING:
    from collections.abc import Generator, Mapping

    from toolpost.contracts.jobs import JobStatus
    from toolpost.contracts.principal import Principal
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.recovery import Recovery
    from toolpost.runtime.router import ToolRouter

_log = logging.getLogger("toolpost.runtime")
_MOST_ATTEMPTS = 5  # of a job that may itself crash its process
_MOST_TRIES = 60  # while the store is unavailable
_LOOK_S = 0.5
_STORE_RETRY_S = 1.0
# An earlier attempt has the key of the call, until its outcome, or the question about it, is stored.
_HELD = frozenset({"in_progress", "outcome_unknown"})


class JobRunner:
    """Runs the jobs of a store with the tools of this process.

    A job that is run again after a crash repeats nothing that must not be repeated: the journal decides, as for any
    interrupted call. A call that pauses ends its job, and the answer stores another one.
    """

    def __init__(self, router: ToolRouter, actions: PendingActions, recovery: Recovery) -> None:
        self._router = router
        self._actions = actions
        self._recovery = recovery
        self._store = router.store
        self.running = Counter[str]()  # also those that this process tries to begin
        self._work = set[asyncio.Task[None]]()
        self._is_leaving = False

    async def begin(self, job_id: str) -> None:
        if job_id in self.running:
            return
        with self._counted(job_id):
            job = await self._store.jobs.begin(job_id)
            if job is not None:
                await self._run_unless_left(job)

    async def run(self, job: Job) -> None:
        with self._counted(job.id):
            await self._run_unless_left(job)

    async def leave(self, *, within_s: float) -> None:
        """Wait for jobs whose calls have ended or are suspended, and leave the others to another process.

        Call this after `ToolRouter.park`, when the process ends. Jobs are left if the store is unavailable.
        """
        self._is_leaving = True
        if not self._work:
            return
        _, late = await asyncio.wait(self._work, timeout=within_s)
        if late:
            _log.warning("jobs that are left to another process because the store is unavailable: %d", len(late))
        for task in late:
            task.cancel()
        await asyncio.gather(*late, return_exceptions=True)

    async def _run_unless_left(self, job: Job) -> None:
        """Run a job in a task that `leave` can cancel."""
        task = asyncio.get_running_loop().create_task(self._run(job))
        self._work.add(task)
        task.add_done_callback(self._work.discard)
        try:
            await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if not self._is_leaving or (current is not None and current.cancelling()):
                raise

    @contextmanager
    def _counted(self, job_id: str) -> Generator[None]:
        """Count a job as running; while one task tries to begin it, another one may run it."""
        self.running[job_id] += 1
        try:
            yield
        finally:
            self.running[job_id] -= 1
            if not self.running[job_id]:
                del self.running[job_id]

    async def _run(self, job: Job) -> None:
        try:
            outcome = await self._perform_when_possible(job)
        except ToolError as error:
            outcome = _failed(job, error)
        if isinstance(outcome, Failed) and outcome.error.error_code == STOPPED and outcome.run_id == job.run_id:
            return  # this process ends: another one runs the job again, or finds how the call has ended
        status: JobStatus = "failed" if isinstance(outcome, Failed) else "done"
        # Outcomes of other runs are found by their runs, and those of an earlier call with the same key by this job.
        is_told = outcome is None or (status == "done" and outcome.run_id == job.run_id)
        await self._finish(job, status, None if is_told or outcome is None else dump_outcome(outcome))

    async def _perform_when_possible(self, job: Job) -> Outcome | None:
        """Perform a job; while the store is unavailable, the job stays with this process."""
        while True:
            try:
                return await self._perform(job)
            except StoreError as error:
                if error.error_code != StoreError.error_code:
                    raise
                _log.warning("job %s waits for the store: %s", job.id, error)
            job = replace(job, attempts=max(job.attempts, 2))  # a call may have begun
            await asyncio.sleep(_STORE_RETRY_S)

    async def _perform(self, job: Job) -> Outcome | None:
        """Return the outcome of a job; None if the run contains it."""
        if job.attempts > _MOST_ATTEMPTS:
            crashes = f"its process ended {_MOST_ATTEMPTS} times while it ran"
            raise ToolExecutionError(f"job {job.id!r} is not run again: {crashes}; request the call again")
        match job.kind, job.body:
            case "call", {"tool": str(), "arguments": _}:
                return await self._call(job)
            case "answer", {"pending_id": str(pending_id)}:
                return await self._continue(job, pending_id)
            case _:
                reason = "its data is damaged, or was written by another version of toolpost"
                raise ToolExecutionError(f"job {job.id!r} cannot be run: {reason}", code="job_unreadable")

    async def _call(self, job: Job) -> Outcome | None:
        body, tries = job.body, 0
        while True:
            if (job.attempts > 1 or tries) and await self._is_settled(job):
                return None
            tries += 1
            await self._refuse_revoked(job)
            outcome = await self._router.call(
                body["tool"],
                body["arguments"],
                principal=job.principal,
                run_id=job.run_id,
                timeout_s=body.get("timeout_s"),
                idempotency_key=body.get("key") or OutcomeKey(body.get("outcome_key") or f"run:{job.run_id}"),
                context=ToolContext(caller=body.get("caller", "")),
                session=body.get("session"),
            )
            if not isinstance(outcome, Failed) or not self._is_temporary(job, outcome.error, tries):
                return outcome
            await asyncio.sleep(_LOOK_S)

    def _is_temporary(self, job: Job, error: ToolError, tries: int) -> bool:
        """Return whether a call failed because of an earlier attempt, or because the store was unavailable."""
        if isinstance(error, StoreError):
            return tries < _MOST_TRIES
        return job.attempts > 1 and error.error_code in _HELD

    async def _refuse_revoked(self, job: Job) -> None:
        """Raise ToolAuthError if the key that requested a call was revoked while the call waited."""
        caller = job.body.get("caller", "")
        if caller.startswith(KEY_ID) and await self._store.caller_keys.find(caller.removeprefix(KEY_ID)) is None:
            message = "the key that requested this call was revoked before the call began; request it with another key"
            raise ToolAuthError(message, code="key_revoked")

    async def _is_settled(self, job: Job) -> bool:
        """Wait until the calls of an earlier attempt are recovered; return whether the run needs no other call."""
        while True:
            await self._recovery.sweep()
            run = await self._store.events.run(job.run_id, tenant=job.principal.tenant)
            if run is None:
                return False
            if run.status in ("paused", "completed"):
                return True
            if run.status == "failed":
                kept = await kept_outcome(self._store, run)
                return isinstance(kept, Failed) and kept.error.error_code != INTERRUPTED
            await asyncio.sleep(_LOOK_S)

    async def _continue(self, job: Job, pending_id: str) -> Outcome | None:
        action = await self._store.pending.take_claim(pending_id)
        if action is None:  # it is settled, or was taken before; recovery adopts it after a crash
            return None
        with suppress(ToolError):
            await self._router.await_tool(action.tool_name)
        if self._actions.can_run(action):
            await self._actions.carry_out(action)
        else:
            await self._actions.return_to_person(action)
        return None

    async def _finish(self, job: Job, status: JobStatus, outcome: Mapping[str, Any] | None) -> None:
        """Store the end of a job; while the store cannot be written, the job stays with this process."""
        while True:
            try:
                await self._store.jobs.finish(job.id, status, outcome=outcome)
            except StoreError as error:
                _log.warning("the end of job %s is not recorded yet: %s", job.id, error)
                await asyncio.sleep(_STORE_RETRY_S)
            else:
                return


def call_job(
    run_id: str,
    tool_name: str,
    arguments: Any,
    *,
    principal: Principal,
    at: float,
    queue: QueueName,
    key: str | None = None,
    outcome_key: str | None = None,
    timeout_s: float | None = None,
    caller: str = "",
    session: str | None = None,
) -> Job:
    """Return the job that begins a run with a call.

    Without a `key` of the caller, the outcome is stored under `outcome_key`, by default that of the run.
    """
    body = {"tool": tool_name, "arguments": arguments, "timeout_s": timeout_s, "key": key, "outcome_key": outcome_key}
    return Job(
        id=job_id(run_id, 0),
        queue=queue,
        run_id=run_id,
        principal=principal,
        kind="call",
        body={**body, "caller": caller, "session": session},
        created_at=at,
    )


def _failed(job: Job, error: ToolError) -> Failed:
    return Failed("", job.run_id, str(job.body.get("tool", "")), error)
