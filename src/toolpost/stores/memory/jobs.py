"""Jobs and schedules of the store in memory, which no other process uses."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

from msgspec.structs import replace

from toolpost.contracts.jobs import (
    QUEUES,
    Job,
    JobStatus,
    QueueDepth,
    QueueLimits,
    QueueName,
    Schedule,
    TakeLimits,
    job_id,
)
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.encryption import copy_json
from toolpost.stores.sql.jobs import following_id, queue_full
from toolpost.stores.topics import JOBS


class MemoryJobStore:
    """Jobs by ID, in the order in which they were stored."""

    def __init__(self, owner_id: str, now: Callable[[], float]) -> None:
        self.jobs: dict[str, Job] = {}
        self.ended_at: dict[str, float] = {}
        self.owner_id = owner_id
        self._now = now
        self._sent_at: dict[str, float] = {}
        self._stored = 0
        self._changes = Changes(self._states)

    async def add(self, job: Job, *, limits: QueueLimits) -> bool:
        waiting = [one for one in self._waiting() if one.queue == job.queue]
        tenant = job.principal.tenant
        if limits.waiting is not None and len(waiting) >= limits.waiting:
            raise queue_full(job.queue, limits.waiting, "")
        theirs = sum(one.principal.tenant == tenant for one in waiting)
        if limits.waiting_of_tenant is not None and theirs >= limits.waiting_of_tenant:
            raise queue_full(job.queue, limits.waiting_of_tenant, f" of the tenant {tenant!r}")
        if job.id in self.jobs:
            return False
        self._store(job)
        return True

    def add_continuation(self, job: Job) -> None:
        """Store the next job of a run."""
        of_run = [one.id for one in self.jobs.values() if one.run_id == job.run_id]
        self._store(replace(job, id=following_id(of_run[-1]) if of_run else job_id(job.run_id, 0)))

    def _store(self, job: Job) -> None:
        self._stored += 1
        self.jobs[job.id] = replace(job, status="waiting", body=copy_json(dict(job.body), "jobs"))
        self._changes.notify((JOBS,))

    async def take(self, queues: Collection[QueueName], *, limits: TakeLimits) -> list[Job]:
        running = Counter(one.principal.tenant for one in self.jobs.values() if one.status == "running")
        places = Counter[str]()
        found: list[tuple[int, int, int, str]] = []
        ordered = sorted(enumerate(self._waiting()), key=lambda item: (item[1].priority, item[0]))
        for number, job in ordered:
            tenant = job.principal.tenant
            if job.queue not in queues:
                continue
            if limits.of_tenant is not None and running[tenant] + places[tenant] >= limits.of_tenant:
                continue
            found.append((job.priority, places[tenant], number, job.id))
            places[tenant] += 1
        return [self._begin(self.jobs[id_]) for *_, id_ in sorted(found)[: max(0, limits.free)]]

    async def begin(self, job_id: str) -> Job | None:
        job = self.jobs.get(job_id)
        return None if job is None or job.status != "waiting" else self._begin(job)

    def _begin(self, job: Job) -> Job:
        begun = replace(job, status="running", attempts=job.attempts + 1, owner=self.owner_id)
        self.jobs[job.id] = begun
        return replace(begun, body=copy_json(dict(begun.body), "jobs"))

    async def finish(self, job_id: str, status: JobStatus, *, outcome: Mapping[str, Any] | None = None) -> bool:
        job = self.jobs.get(job_id)
        if job is None or job.status != "running":
            return False
        self._end(job, status, outcome)
        return True

    def _end(self, job: Job, status: JobStatus, outcome: Mapping[str, Any] | None) -> None:
        self.jobs[job.id] = replace(job, status=status, owner="", body={}, outcome=outcome)
        self.ended_at[job.id] = self._now()

    async def cancel(self, run_id: str, *, tenant: str, outcome: Mapping[str, Any] | None = None) -> int:
        of_run = [one for one in self._waiting() if (one.run_id, one.principal.tenant) == (run_id, tenant)]
        for job in of_run:
            self._end(job, "cancelled", outcome if job.kind == "call" else None)
        return len(of_run)

    async def of_run(self, run_id: str, *, tenant: str) -> Job | None:
        of_run = [one for one in self.jobs.values() if (one.run_id, one.principal.tenant) == (run_id, tenant)]
        return replace(of_run[-1], body={}) if of_run else None

    async def release_orphans(self, *, running: Collection[str]) -> list[str]:
        left = [one for one in self.jobs.values() if one.status == "running" and one.id not in running]
        for job in left:
            self.jobs[job.id] = replace(job, status="waiting", owner="")
        if left:
            self._changes.notify((JOBS,))
        return [job.id for job in left]

    async def hand_over(self, queues: Collection[QueueName], *, limit: int) -> list[Job]:
        unsent = [one for one in self._waiting() if one.queue in queues and one.id not in self._sent_at]
        return [replace(one, body={}) for one in unsent[:limit]]

    async def handed_over(self, job_ids: Sequence[str]) -> None:
        for job in [self.jobs[id_] for id_ in job_ids if id_ in self.jobs]:
            self.jobs[job.id] = replace(job, sent=job.sent + 1)
            self._sent_at[job.id] = self._now()

    async def overdue(self, queues: Collection[QueueName], *, age_s: float, limit: int) -> list[Job]:
        now = self._now()
        late = [one for one in self._waiting() if one.queue in queues and self._sent_at.get(one.id, now) < now - age_s]
        for job in late[:limit]:
            self._sent_at[job.id] = now
        return [replace(one, body={}) for one in late[:limit]]

    async def ended_owners(self, owner_ids: Collection[str]) -> list[str]:
        return [owner_id for owner_id in owner_ids if owner_id != self.owner_id]

    async def depth(self) -> list[QueueDepth]:
        return [self._depth(queue) for queue in QUEUES]

    def _depth(self, queue: QueueName) -> QueueDepth:
        of_queue = [one for one in self.jobs.values() if one.queue == queue]
        waiting = [one.created_at for one in of_queue if one.status == "waiting"]
        running = sum(one.status == "running" for one in of_queue)
        return QueueDepth(queue, len(waiting), running, min(waiting, default=None))

    def flow(self, queue: QueueName, *, after: float) -> tuple[int, int]:
        """Return how many jobs of a queue were stored, and how many ended, after a time."""
        of_queue = [one for one in self.jobs.values() if one.queue == queue]
        ended = sum(self.ended_at.get(one.id, 0.0) > after for one in of_queue)
        return sum(one.created_at > after for one in of_queue), ended

    async def wait(self, known: object = None, *, timeout_s: float) -> object:
        return await self._changes.wait_for([JOBS], known, timeout_s=timeout_s)

    async def _states(self, topics: Collection[Topic]) -> dict[Topic, Any]:
        return dict.fromkeys(topics, self._stored)

    def _waiting(self) -> list[Job]:
        return [job for job in self.jobs.values() if job.status == "waiting"]


class MemoryScheduleStore:
    """Schedules by tenant and name."""

    def __init__(self) -> None:
        self.rows: dict[tuple[str, str], Schedule] = {}

    async def put(self, schedule: Schedule) -> bool:
        key = (schedule.principal.tenant, schedule.name)
        return self.rows.setdefault(key, schedule) is schedule

    async def list(self, *, tenant: str | None = None) -> list[Schedule]:
        return [self.rows[key] for key in sorted(self.rows) if tenant in (None, key[0])]

    async def remove(self, name: str, *, tenant: str) -> bool:
        return self.rows.pop((tenant, name), None) is not None

    async def tick(self, name: str, *, tenant: str, at: float) -> Schedule | None:
        schedule = self.rows.get((tenant, name))
        if schedule is None or (schedule.last_at or schedule.created_at) >= at:
            return None
        self.rows[tenant, name] = ticked = replace(schedule, last_at=at)
        return ticked
