"""Run jobs with DBOS on PostgreSQL: one workflow without steps for each job, whose only argument is the ID of the job.

The store contains the jobs, and the journal decides what may be repeated. DBOS decides which worker runs a job, and
when. A job that was stored is handed over to DBOS by a worker, under a workflow ID that follows from the job: handing
over again after a crash has no effect.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, NoReturn

from dbos import DBOS, DBOSClient, DBOSConfig, Serializer
from dbos._serialization import DefaultSerializer  # rows that name it would be unpickled
from dbos._utils import GlobalParams
from sqlalchemy.exc import OperationalError  # DBOS depends on it

from toolpost.contracts.errors import StoreError
from toolpost.contracts.jobs import QueueName, Stop
from toolpost.runtime.concurrency import map_concurrent

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Callable, Collection, Sequence

    from dbos import WorkflowStatus

    from toolpost.contracts.clock import Clock
    from toolpost.contracts.jobs import Job, JobWorker
    from toolpost.contracts.storage import Store

_log = logging.getLogger("toolpost.runtime")
APPLICATION = "toolpost"
# Constant, because DBOS neither recovers nor dequeues workflows of another version: jobs are read by any version.
APPLICATION_VERSION = "1"
WORKFLOW = "run_job"
_PREFIX = "toolpost-"  # of queues
_VARIABLES = ("DBOS_", "DBOS__")  # such as those of Conductor, which would open a connection to a service
_POLL_S = 2.0  # for entries of workers that have ended; new ones ring
_OTHERS_S = 0.05  # until another worker has handed a job over
_SWEEP_S = 5.0
_OVERDUE_S = 30.0
_STUCK_S = 10.0
_RETRY_S = 1.0
_BATCH = 200
_CONNECTIONS = 4
_CLEAN_S = 600.0
_KEPT_S = 86_400.0
_ENDED = ["SUCCESS", "ERROR", "CANCELLED", "MAX_RECOVERY_ATTEMPTS_EXCEEDED"]
_ALIVE = ["ENQUEUED", "DELAYED", "PENDING"]
_COMPLETION_S = 10  # for the rows of workflows that have ended, if the database is away
_LOG_LEVEL = "WARNING"


class DBOSConsumer:
    """Runs the jobs of a store in a worker, and at most `of_tenant` jobs of one tenant in all workers.

    A process can run one at a time, because DBOS is a singleton.
    """

    def __init__(
        self, store: Store, url: str, clock: Clock, *, concurrency: int, of_tenant: int | None, poll_s: float = _POLL_S
    ) -> None:
        self._store = store
        self._url = url
        self._clock = clock
        self._concurrency = concurrency
        self._of_tenant = of_tenant
        self._poll_s = poll_s
        self._begun: dict[str, float] = {}  # when workflows of this process began, by job
        self._has_ended = asyncio.Event()  # a workflow of this process
        self._is_stopping = False

    @asynccontextmanager
    async def run(
        self, worker: JobWorker, *, queues: Collection[QueueName], concurrency: int | None
    ) -> AsyncGenerator[Stop]:
        forget_variables()
        refuse_pickle()
        executor = self._store.jobs.owner_id
        try:
            engine = await self._launch(worker, executor, queues, concurrency or self._concurrency)
        except Exception as error:
            raise StoreError(describe_launch_failure(error), cause=error) from error
        self._bell = _Bell(engine)
        client = DBOSClient(
            system_database_url=self._url,
            serializer=JsonSerializer(),
            application_name=APPLICATION,
            system_database_pool_size=_CONNECTIONS,
        )
        tender = _Tending(self._store, client, queues, self._clock)
        loop = asyncio.get_running_loop()
        tending = loop.create_task(tender.run(self, worker))
        try:
            yield self._stop
        finally:
            self._stop()
            tending.cancel()
            await asyncio.gather(tending, return_exceptions=True)
            while self._begun:
                self._has_ended.clear()
                await self._has_ended.wait()
            # In a thread, because workflows end on this loop.
            with ThreadPoolExecutor(1) as thread:
                destroy = partial(DBOS.destroy, destroy_registry=True, workflow_completion_timeout_sec=_COMPLETION_S)
                await loop.run_in_executor(thread, destroy)
                await loop.run_in_executor(thread, client.destroy)
            loop.set_default_executor(ThreadPoolExecutor())  # in place of that of DBOS, which has ended

    def _stop(self) -> None:
        self._is_stopping = True
        self._bell.stop()

    def ring(self) -> None:
        """Wake the threads that read the queues, because there are new jobs or free slots."""
        self._bell.ring()

    async def _launch(self, worker: JobWorker, executor: str, queues: Collection[QueueName], concurrency: int) -> DBOS:
        config = DBOSConfig(
            name=APPLICATION,
            system_database_url=self._url,
            serializer=JsonSerializer(),
            executor_id=executor,
            application_version=APPLICATION_VERSION,
            conductor_key=None,
            enable_otlp=False,
            log_level=_LOG_LEVEL,
            use_listen_notify=False,  # for events and messages, which are not used
            sys_db_pool_size=_CONNECTIONS,
        )
        engine = DBOS(config=config)
        DBOS.workflow(name=WORKFLOW)(self._workflow(worker))
        DBOS.listen_queues([queue_of(queue) for queue in queues])
        logger = logging.getLogger("dbos")
        logger.setLevel(logging.CRITICAL)  # an error of the launch is raised, and need not be logged with its traceback
        DBOS.launch()  # on this loop, which then runs the workflows
        logger.setLevel(_LOG_LEVEL)
        for queue in queues:
            await DBOS.register_queue_async(
                queue_of(queue),
                worker_concurrency=concurrency,
                partition_worker_concurrency=min(concurrency, self._of_tenant or concurrency),
                partition_concurrency=self._of_tenant,
                polling_interval_sec=self._poll_s,
                on_conflict="always_update",
            )
        return engine

    def _workflow(self, worker: JobWorker) -> Any:
        async def run_job(job_id: object) -> None:
            if not isinstance(job_id, str):
                _log.error("an entry of a queue names no job, and is skipped: it was written outside of toolpost")
                return
            self._begun[job_id] = self._clock.monotonic()
            try:
                await self._begin(worker, job_id)
            finally:
                self._begun.pop(job_id, None)
                self._has_ended.set()
                self.ring()

        return run_job

    async def _begin(self, worker: JobWorker, job_id: str) -> None:
        """Run a job; wait while the store is unavailable, because the workflow is not run again.

        Once this process stops, the job is left to another one, under another workflow ID.
        """
        while True:
            try:
                await worker.begin(job_id)
            except StoreError as error:
                _log.warning("job %s cannot begin: %s", job_id, error)
            else:
                return
            if self._is_stopping:
                return
            await asyncio.sleep(_RETRY_S)

    def is_working_on(self, job_id: str) -> bool:
        """Return whether a workflow of this process runs a job."""
        return job_id in self._begun


def describe_launch_failure(error: Exception) -> str:
    """Describe why the schema of DBOS could not be prepared, and what to do."""
    reason = (str(error) or type(error).__name__).splitlines()[0]
    remedy = "its user needs the right to create this schema, or all rights on an existing one"
    if isinstance(error, OperationalError):
        remedy = "start the worker again when the server accepts connections"
    return f"the worker could not prepare the schema dbos of the database: {reason}; {remedy}"


class _Tending:
    """Hands jobs over to DBOS, and resumes the workflows of workers that have ended and those that were lost."""

    def __init__(self, store: Store, client: DBOSClient, queues: Collection[QueueName], clock: Clock) -> None:
        self._store = store
        self._client = client
        self._queues = queues
        self._clock = clock
        self._resumed = set[str]()  # dequeued by this process without being run; the second time, they are damaged

    async def run(self, consumer: DBOSConsumer, worker: JobWorker) -> None:
        """Hand over each new job immediately, and sweep periodically; continue after errors of the database."""
        known: object = None
        swept = cleaned = float("-inf")
        loop = asyncio.get_running_loop()
        while True:
            try:
                if await self._hand_over():
                    consumer.ring()
                if loop.time() - swept >= _SWEEP_S:
                    swept = loop.time()
                    await self._sweep(consumer, worker)
                if loop.time() - cleaned >= _CLEAN_S:
                    cleaned = loop.time()
                    await self._delete_ended()
                known = await self._store.jobs.wait(known, timeout_s=_SWEEP_S)
                loop.call_later(_OTHERS_S, consumer.ring)
            except Exception as error:  # noqa: BLE001 - DBOS and its driver raise errors of many classes
                _log.warning("jobs cannot be handed over to DBOS: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def _hand_over(self) -> bool:
        """Hand over all new jobs; return whether there were any."""
        found = False
        while jobs := await self._store.jobs.hand_over(self._queues, limit=_BATCH):
            found = True
            await self._enqueue(jobs)
            if len(jobs) < _BATCH:
                break
        return found

    async def _enqueue(self, jobs: Sequence[Job]) -> None:
        await map_concurrent(jobs, self._enqueue_one, max_concurrency=_CONNECTIONS)
        await self._store.jobs.handed_over([job.id for job in jobs])

    async def _enqueue_one(self, job: Job) -> None:
        await self._client.enqueue_async(
            {
                "workflow_name": WORKFLOW,
                "queue_name": queue_of(job.queue),
                "workflow_id": _workflow_id(job.id, job.sent),
                "priority": max(1, job.priority),
                "queue_partition_key": job.principal.tenant,
            },
            job.id,
        )

    async def _sweep(self, consumer: DBOSConsumer, worker: JobWorker) -> None:
        released = await self._store.jobs.release_orphans(running=worker.running)
        if released:
            _log.info("%d jobs of workers that have ended wait again", len(released))
        for queue in self._queues:
            await self._resume_lost(queue, consumer)
        late = await self._store.jobs.overdue(self._queues, age_s=_OVERDUE_S, limit=_BATCH)
        if not late:
            return
        ids = [_workflow_id(job.id, job.sent - 1) for job in late]
        found = await self._client.list_workflows_async(
            workflow_ids=ids, status=_ALIVE, load_input=False, load_output=False
        )
        alive = {one.workflow_id: one for one in found}
        await self._enqueue([job for job, id_ in zip(late, ids, strict=True) if not _will_run(alive.get(id_), job)])

    async def _delete_ended(self) -> None:
        """Delete the workflows that ended long ago; the store has their jobs."""
        before = datetime.fromtimestamp(self._clock.wall() - _KEPT_S, UTC).isoformat()
        while True:
            ended = await self._client.list_workflows_async(
                status=_ENDED, name=WORKFLOW, completed_before=before, limit=_BATCH, load_input=False, load_output=False
            )
            if ended:
                await self._client.delete_workflows_async([one.workflow_id for one in ended])
            if len(ended) < _BATCH:
                return

    async def _resume_lost(self, queue: QueueName, consumer: DBOSConsumer) -> None:
        """Resume workflows of workers that have ended, and those that this worker dequeued and does not run."""
        me = self._store.jobs.owner_id
        pending = await self._client.list_workflows_async(
            status="PENDING", queue_name=queue_of(queue), load_input=False, load_output=False
        )
        executors = {one.executor_id for one in pending if one.executor_id} - {me}
        ended = set(await self._store.jobs.ended_owners(executors))
        now_ms = self._clock.wall() * 1000
        left = [one.workflow_id for one in pending if one.executor_id in ended]
        stuck = [one.workflow_id for one in pending if one.executor_id == me and _is_stuck(one, consumer, now_ms)]
        lost = [*left, *(one for one in stuck if one not in self._resumed)]
        if lost:
            _log.info("%d workflows of %s are resumed", len(lost), queue)
            await self._client.resume_workflows_async(lost, queue_name=queue_of(queue))
        if damaged := [one for one in stuck if one in self._resumed]:
            _log.error("entries of the queue %s cannot be read, and are cancelled: %s", queue, ", ".join(damaged))
            await self._client.cancel_workflows_async(damaged)
        self._resumed.update(stuck)


def _is_stuck(one: WorkflowStatus, consumer: DBOSConsumer, now_ms: float) -> bool:
    job_id = one.workflow_id.partition("#")[0]
    age_ms = now_ms - (one.dequeued_at or one.updated_at or now_ms)
    return age_ms > _STUCK_S * 1000 and not consumer.is_working_on(job_id)


def _will_run(one: WorkflowStatus | None, job: Job) -> bool:
    """Return whether a worker dequeues the workflow of a job, or runs it: not if its row was changed from outside."""
    return one is not None and (
        one.app_version in (None, APPLICATION_VERSION)
        and one.queue_name == queue_of(job.queue)
        and one.queue_partition_key == job.principal.tenant
    )


class _Bell:
    """Wakes the threads that read the queues, which otherwise poll every few seconds.

    DBOS is not notified of new entries. Between two reads, its threads wait for the event that stops them. This object
    replaces that wait by one that also ends when the bell rings.
    """

    def __init__(self, engine: DBOS) -> None:
        self._condition = threading.Condition()
        self._seen = threading.local()
        self._rings = 0
        self._stops = [self._replace(event) for event in engine.background_thread_stop_events]

    def _replace(self, event: threading.Event) -> Callable[[], None]:
        """Replace the wait for an event by one for the bell; return the original function that sets the event."""
        stop = event.set
        event.wait = partial(self._wait, event)  # type: ignore[method-assign]
        event.set = partial(self._set, stop)  # type: ignore[method-assign]
        return stop

    def _set(self, stop: Callable[[], None]) -> None:
        stop()
        self.ring()

    def ring(self) -> None:
        """Wake the threads."""
        with self._condition:
            self._rings += 1
            self._condition.notify_all()

    def stop(self) -> None:
        """End the threads."""
        for stop in self._stops:
            stop()
        self.ring()

    def _wait(self, event: threading.Event, timeout: float | None = None) -> bool:
        is_reader = threading.current_thread().name.startswith(f"queue-worker-{_PREFIX}")

        def is_over() -> bool:
            return event.is_set() or (is_reader and self._rings != getattr(self._seen, "rings", 0))

        with self._condition:
            self._condition.wait_for(is_over, timeout)
            self._seen.rings = self._rings
        return event.is_set()


class JsonSerializer(Serializer):
    """Serializes the values of workflows as JSON; of exceptions only the class, as the text may contain arguments."""

    def serialize(self, data: Any) -> str:
        return json.dumps(data, default=_to_json)

    def deserialize(self, serialized_data: str) -> Any:
        return json.loads(serialized_data, object_hook=_from_json)

    def name(self) -> str:
        return "toolpost_json"


def _to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"$datetime": value.isoformat()}
    if isinstance(value, BaseException):
        return {"$error": type(value).__name__}
    raise TypeError(f"{type(value).__name__} is not stored in a queue")


def _from_json(value: dict[str, Any]) -> Any:
    if value.keys() == {"$datetime"}:
        return datetime.fromisoformat(value["$datetime"])
    if value.keys() == {"$error"}:
        return RuntimeError(value["$error"])
    return value


def queue_of(queue: QueueName) -> str:
    """Return the name of a queue in DBOS."""
    return f"{_PREFIX}{queue}"


def _workflow_id(job_id: str, sent: int) -> str:
    """Return the workflow ID of a job that was handed over `sent` times before."""
    return job_id if not sent else f"{job_id}#{sent}"


def forget_variables() -> None:
    """Remove the variables of DBOS from the environment: only the settings of toolpost apply."""
    for name in [name for name in os.environ if name.startswith(_VARIABLES)]:
        _log.warning("%s is ignored: toolpost does not use the services of DBOS", name)
        del os.environ[name]
    GlobalParams.dbos_cloud = False


def refuse_pickle() -> None:
    """Replace the pickle serializer of DBOS: a row of a queue can select it, and reading the row would run code."""
    for name in ("serialize", "deserialize"):
        setattr(DefaultSerializer, name, _no_pickle)


def _no_pickle(*_: object) -> NoReturn:
    raise ValueError("an entry of a queue contains pickled data, which toolpost never reads")
