"""Jobs; their bodies are encrypted, and a job is begun by one atomic change of its row."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError, ToolRateLimitError
from toolpost.contracts.jobs import (
    QUEUES,
    Job,
    JobStatus,
    QueueDepth,
    QueueLimits,
    QueueName,
    TakeLimits,
    job_id,
)
from toolpost.contracts.principal import Principal
from toolpost.stores.changes import Changes
from toolpost.stores.encryption import ROW_FAULTS, RowCipher, skip_damaged
from toolpost.stores.sql.database import SharedDatabase, SQLConnection
from toolpost.stores.topics import JOBS

DAMAGED = "job_unreadable"
_FACTS = 'id, queue, run_id, tenant, "user", kind, priority, status, attempts, sent, created_at, owner'
_ADD = """
INSERT INTO jobs (id, queue, run_id, tenant, "user", kind, priority, status, attempts, sent, created_at, owner, body)
VALUES (:id, :queue, :run_id, :tenant, :user, :kind, :priority, 'waiting', 0, 0, :created_at, '', :body)
ON CONFLICT DO NOTHING
"""
_COUNT = "SELECT count(*) FROM (SELECT 1 FROM jobs WHERE status = 'waiting'{} LIMIT :most) AS counted"
_OF_QUEUE, _OF_TENANT = " AND queue = :queue", " AND queue = :queue AND tenant = :tenant"
_NEWEST = "SELECT id FROM jobs WHERE run_id = :run_id ORDER BY nr DESC LIMIT 1"
# Each step reads the first entry of the next tenant from the index of waiting jobs.
_TENANTS = """
WITH RECURSIVE found(tenant) AS (
    SELECT min(tenant) FROM jobs WHERE status = 'waiting'
    UNION ALL
    SELECT (SELECT min(tenant) FROM jobs WHERE status = 'waiting' AND jobs.tenant > found.tenant) FROM found
    WHERE found.tenant IS NOT NULL
)
SELECT tenant FROM found WHERE tenant IS NOT NULL
"""
_RUNNING_OF_TENANTS = "SELECT tenant, count(*) FROM jobs WHERE status = 'running' GROUP BY tenant"
_WAITING = """
SELECT id, priority, nr FROM jobs WHERE status = 'waiting' AND tenant = :tenant AND queue = ANY(:queues)
ORDER BY priority, nr LIMIT :most
"""
_BEGIN = f"""
UPDATE jobs SET status = 'running', owner = :owner, attempts = attempts + 1 WHERE id = :id RETURNING {_FACTS}, body
"""  # noqa: S608 - constants, here and below
_TAKE = _BEGIN.replace("WHERE id = :id", "WHERE id = :id AND status = 'waiting'")
_STATUS = "SELECT status, owner FROM jobs WHERE id = :id FOR UPDATE"
_FINISH = """
UPDATE jobs SET status = :status, ended_at = :at, owner = '', body = NULL, outcome = :outcome
WHERE id = :id AND status = 'running' AND owner = :owner
"""
_NAMES = 'SELECT id, tenant, "user" FROM jobs WHERE'
_WAITING_OF_RUN = """
SELECT id, kind FROM jobs WHERE run_id = :run_id AND tenant = :tenant AND status = 'waiting' FOR UPDATE
"""
_CANCEL = """
UPDATE jobs SET status = 'cancelled', ended_at = :at, owner = '', body = NULL, outcome = :outcome
WHERE id = :id AND status = 'waiting'
"""
_OF_RUN = f"SELECT {_FACTS}, outcome FROM jobs WHERE run_id = :run_id AND tenant = :tenant ORDER BY nr DESC LIMIT 1"  # noqa: S608
_OWNERS = "SELECT DISTINCT owner FROM jobs WHERE status = 'running'"
_RELEASE = """
UPDATE jobs SET status = 'waiting', owner = '' WHERE status = 'running'
AND (owner = ANY(:dead) OR (owner = :owner AND NOT id = ANY(:running))) RETURNING id
"""
_UNSENT = """
SELECT id, owner FROM jobs WHERE status = 'waiting' AND sent_at IS NULL AND queue = ANY(:queues) ORDER BY nr LIMIT :most
"""
_HOLD = f"UPDATE jobs SET owner = :owner WHERE id = ANY(:ids) AND status = 'waiting' RETURNING {_FACTS}"  # noqa: S608
_SENT = "UPDATE jobs SET sent = sent + 1, sent_at = :at, owner = '' WHERE id = ANY(:ids) AND status = 'waiting'"
_SENT_RUNNING = "UPDATE jobs SET sent = sent + 1, sent_at = :at WHERE id = ANY(:ids) AND status <> 'waiting'"
_OVERDUE = """
SELECT id FROM jobs WHERE status = 'waiting' AND sent_at < :before AND queue = ANY(:queues) ORDER BY sent_at LIMIT :most
"""
_DEFER = f"UPDATE jobs SET sent_at = :at WHERE id = ANY(:ids) AND status = 'waiting' RETURNING {_FACTS}"  # noqa: S608
_DEPTH = """
SELECT queue, sum(CASE WHEN status = 'waiting' THEN 1 ELSE 0 END),
    sum(CASE WHEN status = 'running' THEN 1 ELSE 0 END), min(CASE WHEN status = 'waiting' THEN created_at END)
FROM jobs WHERE status IN ('waiting', 'running') GROUP BY queue
"""
_LOCK = "jobs that are handed over"


class SQLJobStore:
    """Jobs by ID; those of one run are numbered."""

    def __init__(self, shared: SharedDatabase, changes: Changes) -> None:
        self._shared = shared
        self._changes = changes

    @property
    def owner_id(self) -> str:
        return self._shared.owner_id

    async def add(self, job: Job, *, limits: QueueLimits) -> bool:
        values = _job_values(job, self._shared.cipher)

        def work(db: SQLConnection) -> bool:
            _check_room(db, job, limits)
            if not db.execute(_ADD, values).rowcount:
                return False
            db.publish()
            return True

        is_new = await self._shared.write(work)
        self._changes.notify((JOBS,))
        return is_new

    async def take(self, queues: Collection[QueueName], *, limits: TakeLimits) -> list[Job]:
        def work(db: SQLConnection) -> list[_Begun]:
            values = [{"id": id_, "owner": self._shared.owner_id} for id_ in _next_jobs(db, queues, limits)]
            rows = [db.execute(_TAKE, each).fetchone() for each in values]
            return [_Begun(*row) for row in rows if row is not None]  # another process was faster

        if limits.free <= 0:
            return []
        return [self._read(row) for row in await self._shared.write(work)]

    async def begin(self, job_id: str) -> Job | None:
        me = self._shared.owner_id

        def work(db: SQLConnection) -> _Begun | None:
            row = db.execute(_STATUS, {"id": job_id}).fetchone()
            if row is None or row[0] not in ("waiting", "running"):
                return None
            status, owner = row
            if status == "running" and (owner == me or not db.ended([owner])):
                return None
            return _Begun(*db.execute(_BEGIN, {"id": job_id, "owner": me}).fetchone())

        row = await self._shared.write(work)
        return None if row is None else self._read(row)

    def _read(self, row: _Begun) -> Job:
        """Return a job that was begun; one with a body that cannot be decrypted has none."""
        try:
            return row.job(self._shared.cipher)
        except ROW_FAULTS as error:
            skip_damaged(f"job {row.id!r}", error)
            return replace(row.facts(), body={DAMAGED: True})

    async def finish(self, job_id: str, status: JobStatus, *, outcome: Mapping[str, Any] | None = None) -> bool:
        def work(db: SQLConnection) -> bool:
            encrypted = self._encrypt_outcome(db, job_id, outcome)
            values = {"id": job_id, "status": status, "owner": self._shared.owner_id, "outcome": encrypted}
            done = db.execute(_FINISH, {**values, "at": self._shared.clock.wall()}).rowcount == 1
            db.publish()
            return done

        return await self._shared.write(work)

    def _encrypt_outcome(self, db: SQLConnection, job_id: str, outcome: Mapping[str, Any] | None) -> bytes | None:
        named = None if outcome is None else db.execute(f"{_NAMES} id = :id", {"id": job_id}).fetchone()
        return None if named is None else self._shared.cipher.encrypt(dict(outcome or {}), *_row_name(named, "outcome"))

    async def cancel(self, run_id: str, *, tenant: str, outcome: Mapping[str, Any] | None = None) -> int:
        def work(db: SQLConnection) -> int:
            found = db.execute(_WAITING_OF_RUN, {"run_id": run_id, "tenant": tenant}).fetchall()
            at = self._shared.clock.wall()
            for id_, kind in found:
                encrypted = self._encrypt_outcome(db, id_, outcome if kind == "call" else None)
                db.execute(_CANCEL, {"id": id_, "at": at, "outcome": encrypted})
            return len(found)

        return await self._shared.write(work)

    async def of_run(self, run_id: str, *, tenant: str) -> Job | None:
        values = {"run_id": run_id, "tenant": tenant}
        row = await self._shared.read(lambda db: db.execute(_OF_RUN, values).fetchone())
        if row is None:
            return None
        facts, outcome = _Begun(*row[:-1]).facts(), row[-1]
        if outcome is None:
            return facts
        return replace(facts, outcome=self._shared.cipher.decrypt(outcome, *_row_name(_names(facts), "outcome")))

    async def release_orphans(self, *, running: Collection[str]) -> list[str]:
        def work(db: SQLConnection) -> list[str]:
            dead = db.ended([owner for (owner,) in db.execute(_OWNERS).fetchall()])
            values = {"dead": dead, "owner": self._shared.owner_id, "running": list(running)}
            released = [id_ for (id_,) in db.execute(_RELEASE, values).fetchall()]
            if released:
                db.publish()
            return released

        released = await self._shared.write(work)
        self._changes.notify((JOBS,))
        return released

    async def hand_over(self, queues: Collection[QueueName], *, limit: int) -> list[Job]:
        me = self._shared.owner_id

        def work(db: SQLConnection) -> list[Job]:
            db.lock(_LOCK)
            found = db.execute(_UNSENT, {"queues": list(queues), "most": limit}).fetchall()
            others = {owner for _, owner in found} - {"", me}
            held = others.difference(db.ended(others))
            ids = [id_ for id_, owner in found if owner not in held]
            return [_Begun(*row).facts() for row in db.execute(_HOLD, {"ids": ids, "owner": me}).fetchall()]

        # Most often there is nothing to hand over: a query alone does not wait for the writer.
        values = {"queues": list(queues), "most": 1}
        if not await self._shared.read(lambda db: db.execute(_UNSENT, values).fetchall()):
            return []
        return await self._shared.write(work)

    async def handed_over(self, job_ids: Sequence[str]) -> None:
        values = {"ids": list(job_ids), "at": self._shared.clock.wall()}

        def work(db: SQLConnection) -> None:
            db.execute(_SENT, values)
            db.execute(_SENT_RUNNING, values)  # a worker was faster

        await self._shared.write(work)

    async def overdue(self, queues: Collection[QueueName], *, age_s: float, limit: int) -> list[Job]:
        now = self._shared.clock.wall()

        def work(db: SQLConnection) -> list[Job]:
            values = {"before": now - age_s, "queues": list(queues), "most": limit}
            ids = [id_ for (id_,) in db.execute(_OVERDUE, values).fetchall()]
            return [_Begun(*row).facts() for row in db.execute(_DEFER, {"ids": ids, "at": now}).fetchall()]

        return await self._shared.write(work)

    async def ended_owners(self, owner_ids: Collection[str]) -> list[str]:
        return await self._shared.write(lambda db: db.ended(owner_ids)) if owner_ids else []

    async def depth(self) -> list[QueueDepth]:
        rows = await self._shared.read(lambda db: db.execute(_DEPTH).fetchall())
        found = {
            queue: QueueDepth(queue, int(waiting), int(running), oldest) for queue, waiting, running, oldest in rows
        }
        return [found.get(queue, QueueDepth(queue, 0, 0, None)) for queue in QUEUES]

    async def wait(self, known: object = None, *, timeout_s: float) -> object:
        return await self._changes.wait_for([JOBS], known, timeout_s=timeout_s)


class _Begun(NamedTuple):
    """A row of `jobs`, with its body if it is wanted."""

    id: str
    queue: QueueName
    run_id: str
    tenant: str
    user: str
    kind: Any
    priority: int
    status: JobStatus
    attempts: int
    sent: int
    created_at: float
    owner: str
    body: bytes | None = None

    def facts(self) -> Job:
        """Return the job without its body."""
        return Job(
            id=self.id,
            queue=self.queue,
            run_id=self.run_id,
            principal=Principal(self.tenant, self.user),
            kind=self.kind,
            body={},
            created_at=self.created_at,
            priority=self.priority,
            status=self.status,
            attempts=self.attempts,
            sent=self.sent,
            owner=self.owner,
        )

    def job(self, cipher: RowCipher) -> Job:
        """Return the job with its body."""
        body = cipher.decrypt(self.body or b"", *_row_name((self.id, self.tenant, self.user), "body"))
        return replace(self.facts(), body=body)


def add_continuation(db: SQLConnection, job: Job, cipher: RowCipher) -> None:
    """Store the next job of a run, in the transaction that needs it.

    Several questions of a run may be answered concurrently, and its first jobs may have been pruned.
    """
    db.lock(f"jobs of {job.run_id}")
    newest = db.execute(_NEWEST, {"run_id": job.run_id}).fetchone()
    named = job_id(job.run_id, 0) if newest is None else following_id(newest[0])
    if not db.execute(_ADD, _job_values(replace(job, id=named), cipher)).rowcount:
        raise StoreError(f"job {named!r} exists already, so the answer is not stored: answer again")


def following_id(newest: str) -> str:
    """Return the ID of the job that follows the newest one of its run."""
    run, _, number = newest.rpartition(":")
    return f"{run}:{int(number) + 1}"


def _job_values(job: Job, cipher: RowCipher) -> dict[str, Any]:
    return {
        "id": job.id,
        "queue": job.queue,
        "run_id": job.run_id,
        "tenant": job.principal.tenant,
        "user": job.principal.user,
        "kind": job.kind,
        "priority": job.priority,
        "created_at": job.created_at,
        "body": cipher.encrypt(dict(job.body), *_row_name(_names(job), "body")),
    }


def _names(job: Job) -> tuple[str, str, str]:
    return job.id, job.principal.tenant, job.principal.user


def _row_name(names: tuple[str, str, str], column: str) -> tuple[str, ...]:
    job_id, tenant, user = names
    return ("jobs", tenant, user, job_id, column)


def _check_room(db: SQLConnection, job: Job, limits: QueueLimits) -> None:
    """Raise ToolRateLimitError if the queue of a job is full."""
    tenant = job.principal.tenant
    for most, condition, whose in (
        (limits.waiting, _OF_QUEUE, ""),
        (limits.waiting_of_tenant, _OF_TENANT, f" of the tenant {tenant!r}"),
    ):
        if most is None:
            continue
        values = {"queue": job.queue, "tenant": tenant, "most": most}
        if db.execute(_COUNT.format(condition), values).fetchone()[0] >= most:
            raise queue_full(job.queue, most, whose)


def queue_full(queue: QueueName, most: int, whose: str) -> ToolRateLimitError:
    """Return the error for a job that a queue has no room for."""
    message = f"the queue {queue!r} is full: {most} jobs{whose} wait, which is the maximum; nothing was stored"
    return ToolRateLimitError(f"{message}; request it when jobs have ended", code="queue_full", retry_after_s=5.0)


def _next_jobs(db: SQLConnection, queues: Collection[QueueName], limits: TakeLimits) -> list[str]:
    """Return the IDs of the next jobs: of equal priority, the first of each tenant before the second of any."""
    running: dict[str, int] = {}
    if limits.of_tenant is not None:
        running = dict(db.execute(_RUNNING_OF_TENANTS).fetchall())
    found: list[tuple[int, int, int, str]] = []
    for (tenant,) in db.execute(_TENANTS).fetchall():
        most = limits.free if limits.of_tenant is None else min(limits.free, limits.of_tenant - running.get(tenant, 0))
        if most > 0:
            rows = db.execute(_WAITING, {"tenant": tenant, "queues": list(queues), "most": most}).fetchall()
            found += [(priority, place, nr, id_) for place, (id_, priority, nr) in enumerate(rows)]
    return [id_ for *_, id_ in sorted(found)[: limits.free]]
