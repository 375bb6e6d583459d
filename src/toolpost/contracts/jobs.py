"""Background work: jobs in durable queues, schedules that request calls, and the Protocol of the engine that runs them.

A job is a row of the store. It names the run that it works on, and its body is encrypted. An engine decides in which
process and when a job runs, and needs its ID only.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, TypeAlias

from msgspec import Struct

from toolpost.contracts.principal import Principal
from toolpost.contracts.records import represent

QueueName: TypeAlias = Literal["runs", "tasks", "calls"]
JobKind: TypeAlias = Literal["call", "answer"]
JobStatus: TypeAlias = Literal["waiting", "running", "done", "failed", "cancelled"]
QUEUES: tuple[QueueName, ...] = ("runs", "tasks", "calls")
ENDED = frozenset({"done", "failed", "cancelled"})
DEFAULT_PRIORITY = 5
ANSWER_PRIORITY = 1  # a person waits for what an answer starts
RECORDED_S = 5.0  # at a shutdown, for jobs whose ends cannot be recorded


class Job(Struct, frozen=True, kw_only=True):
    """Work of a run: a call, or the continuation of a call after the answer to its question.

    `id` is `run:<run_id>:<n>`: storing a job again under its ID has no effect. The jobs with the lowest `priority` are
    first. `attempts` counts how often a process has begun it, and `sent` how often it was handed over to an engine
    outside the store. `outcome` is stored if the run does not contain it.
    """

    id: str
    queue: QueueName
    run_id: str
    principal: Principal
    kind: JobKind
    body: Mapping[str, Any]
    created_at: float
    priority: int = DEFAULT_PRIORITY
    status: JobStatus = "waiting"
    attempts: int = 0
    sent: int = 0
    owner: str = ""
    outcome: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return represent(self, without=("body", "outcome"))

    @property
    def has_ended(self) -> bool:
        """Whether no process will run the job again."""
        return self.status in ENDED


def job_id(run_id: str, number: int) -> str:
    """Return the ID of a run's job: 0 begins the run, and each answer adds one."""
    return f"run:{run_id}:{number}"


class QueueDepth(NamedTuple):
    """The jobs of a queue that wait and that run, and when the oldest waiting one was stored."""

    queue: QueueName
    waiting: int
    running: int
    oldest_at: float | None


class QueueLimits(Struct, frozen=True, kw_only=True):
    """The most jobs that may wait in a queue, in total and of one tenant; None is unlimited."""

    waiting: int | None = None
    waiting_of_tenant: int | None = None


class TakeLimits(Struct, frozen=True, kw_only=True):
    """How many jobs to take: one per `free` slot, while all processes run fewer than `of_tenant` of its tenant."""

    free: int
    of_tenant: int | None = None


class JobStore(Protocol):
    """The jobs of a store. A job is begun by one process at a time; that of a terminated process can be begun again."""

    @property
    def owner_id(self) -> str:
        """The ID of this process, which the jobs that it runs have."""
        ...

    async def add(self, job: Job, *, limits: QueueLimits) -> bool:
        """Store a job; return False if its ID exists. ToolRateLimitError `queue_full` if its queue is full."""
        ...

    async def take(self, queues: Collection[QueueName], *, limits: TakeLimits) -> list[Job]:
        """Begin waiting jobs: those of each tenant by priority and age, and the tenants in turn."""
        ...

    async def begin(self, job_id: str) -> Job | None:
        """Begin a job that waits, or whose process has terminated; None for any other."""
        ...

    async def finish(self, job_id: str, status: JobStatus, *, outcome: Mapping[str, Any] | None = None) -> bool:
        """End a job of this process and delete its body; return False if another process has begun it."""
        ...

    async def cancel(self, run_id: str, *, tenant: str, outcome: Mapping[str, Any] | None = None) -> int:
        """End the waiting jobs of a run, and return their number; `outcome` is for the one that begins the run."""
        ...

    async def of_run(self, run_id: str, *, tenant: str) -> Job | None:
        """Return the newest job of a run, without its body."""
        ...

    async def release_orphans(self, *, running: Collection[str]) -> list[str]:
        """Let the jobs of terminated processes wait again, and those of this process that are not `running`.

        Return the IDs of the jobs.
        """
        ...

    async def hand_over(self, queues: Collection[QueueName], *, limit: int) -> list[Job]:
        """Return waiting jobs, without bodies, that no engine outside the store knows; of several callers, to one."""
        ...

    async def handed_over(self, job_ids: Sequence[str]) -> None:
        """Store that an engine outside the store knows these jobs."""
        ...

    async def overdue(self, queues: Collection[QueueName], *, age_s: float, limit: int) -> list[Job]:
        """Return waiting jobs, without bodies, that were handed over `age_s` ago or earlier, each once in `age_s`."""
        ...

    async def ended_owners(self, owner_ids: Collection[str]) -> list[str]:
        """Return the processes of these IDs that have terminated."""
        ...

    async def depth(self) -> list[QueueDepth]:
        """Return the depth of every queue."""
        ...

    async def wait(self, known: object = None, *, timeout_s: float) -> object:
        """Wait until the state of the waiting jobs is not `known`; return it, or `known` at the timeout."""
        ...


class Schedule(Struct, frozen=True, kw_only=True):
    """A call that is requested at the times of a cron expression, in UTC or in a time zone."""

    name: str
    cron: str
    principal: Principal
    tool_name: str
    arguments: Mapping[str, Any]
    created_at: float
    created_by: str
    timezone: str = "UTC"
    last_at: float | None = None  # the time of the last call that was requested

    def __repr__(self) -> str:
        return represent(self, without=("arguments",))


class ScheduleStore(Protocol):
    """The schedules of a store; their names are unique within a tenant."""

    async def put(self, schedule: Schedule) -> bool:
        """Store a schedule; return False if the tenant has one of this name, which stays."""
        ...

    async def list(self, *, tenant: str | None = None) -> list[Schedule]:
        """Return the schedules, by tenant and name."""
        ...

    async def remove(self, name: str, *, tenant: str) -> bool:
        """Remove a schedule; return whether the tenant had it."""
        ...

    async def tick(self, name: str, *, tenant: str, at: float) -> Schedule | None:
        """Note that the call of a time is requested; None if it was, or if the schedule does not exist."""
        ...


class JobWorker(Protocol):
    """Runs jobs in this process; `running` contains the IDs of those that it has begun, or is about to begin."""

    @property
    def running(self) -> Collection[str]: ...

    async def run(self, job: Job) -> None:
        """Run a job that this process has begun, to its end."""
        ...

    async def begin(self, job_id: str) -> None:
        """Begin a job and run it to its end; do nothing if it has ended, or another process runs it."""
        ...


Stop: TypeAlias = Callable[[], None]
"""Begins no more jobs."""


class Engine(Protocol):
    """Runs the jobs of a store: in this process, or in any worker of the deployment."""

    async def enqueue(self, job: Job) -> bool:
        """Store a job and run it once, in a process that takes its queue; return False if its ID exists."""
        ...

    async def cancel(self, run_id: str, *, tenant: str, outcome: Mapping[str, Any] | None = None) -> int:
        """End the waiting jobs of a run, and return their number; a running job is cancelled with its run."""
        ...

    async def schedule(self, schedule: Schedule) -> bool:
        """Request a call at the times of a schedule; return False if its name is in use."""
        ...

    async def unschedule(self, name: str, *, tenant: str) -> bool:
        """End a schedule; return whether it existed."""
        ...

    async def depth(self) -> list[QueueDepth]:
        """Return the depth of every queue, and when its oldest waiting job was stored."""
        ...

    def run(
        self, worker: JobWorker, *, queues: Collection[QueueName] = QUEUES, concurrency: int | None = None
    ) -> AbstractAsyncContextManager[Stop]:
        """Run jobs of these queues in this process; when the context ends, wait for those that run.

        The context yields a function that prevents the process from beginning more jobs.
        """
        ...
