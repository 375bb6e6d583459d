"""Runs in the background, as callers see them: from the job until their first event, then from the log."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.errors import ToolCancelledError
from toolpost.contracts.events import RunSummary
from toolpost.contracts.outcomes import Failed
from toolpost.runtime.persistence import current_outcome, dump_outcome, kept_outcome

if TYPE_CHECKING:
    from toolpost.contracts.jobs import Job
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.storage import Store


async def find_run(store: Store, run_id: str, *, tenant: str) -> RunSummary | None:
    """Return a run; its status is `running` while its job waits, or runs again after a crash."""
    run = await store.events.run(run_id, tenant=tenant)
    if run is not None and run.status != "failed":
        return run
    job = await store.jobs.of_run(run_id, tenant=tenant)
    if job is None:
        return run
    if run is not None:
        return run if job.has_ended else replace(run, status="running")
    return await _run_of_job(store, job)


async def find_outcome(store: Store, run: RunSummary) -> Outcome | None:
    """Return the stored outcome of a run, or its open question; None if none is stored, or if it still runs."""
    job = await store.jobs.of_run(run.run_id, tenant=run.tenant) if run.status != "completed" else None
    if job is not None and job.outcome is not None:
        return await current_outcome(store.pending, job.outcome)
    outcome = await kept_outcome(store, run)
    return None if isinstance(outcome, Failed) and job is not None and not job.has_ended else outcome


async def _run_of_job(store: Store, job: Job) -> RunSummary | None:
    """Return the run of a job that has no event: it has not begun, or it is an earlier one with the same key."""
    if job.outcome is not None and (run_id := job.outcome["run_id"]) != job.run_id:
        return await store.events.run(run_id, tenant=job.principal.tenant)
    status = "running" if not job.has_ended else "completed" if job.status == "done" else "failed"
    return RunSummary(
        run_id=job.run_id,
        tenant=job.principal.tenant,
        user=job.principal.user,
        tool_name="" if job.outcome is None else job.outcome["tool_name"],
        status=status,
        started_at=job.created_at,
        updated_at=job.created_at,
        events=0,
        call_id="",
    )


def cancelled_job(run_id: str) -> dict[str, Any]:
    """Return the outcome of a run that was cancelled before it began."""
    return dump_outcome(Failed("", run_id, "", ToolCancelledError("the run was cancelled before it began")))
