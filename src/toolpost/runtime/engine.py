"""The engine of background work: queues and schedules in the store, and the consumer that runs their jobs."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Protocol

from toolpost.contracts.errors import StoreError
from toolpost.contracts.jobs import QUEUES, Job, QueueDepth, QueueLimits, QueueName, Schedule, Stop, TakeLimits
from toolpost.runtime.schedules import ScheduleTicker

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Collection, Mapping
    from contextlib import AbstractAsyncContextManager

    from toolpost.contracts.clock import Clock
    from toolpost.contracts.jobs import JobWorker
    from toolpost.contracts.storage import Store

_log = logging.getLogger("toolpost.runtime")
_SWEEP_S = 5.0
_RETRY_S = 1.0


class Consumer(Protocol):
    """Runs the jobs of a store in this process."""

    def run(
        self, worker: JobWorker, *, queues: Collection[QueueName], concurrency: int | None
    ) -> AbstractAsyncContextManager[Stop]:
        """Run jobs until the context ends, as `Engine.run` does."""
        ...


class StoredEngine:
    """An engine whose queues and schedules are in the store; the `consumer` decides where and when jobs run."""

    def __init__(self, store: Store, consumer: Consumer, clock: Clock, *, limits: QueueLimits) -> None:
        self._store = store
        self._clock = clock
        self._consumer = consumer
        self._limits = limits

    async def enqueue(self, job: Job) -> bool:
        return await self._store.jobs.add(job, limits=self._limits)

    async def cancel(self, run_id: str, *, tenant: str, outcome: Mapping[str, Any] | None = None) -> int:
        return await self._store.jobs.cancel(run_id, tenant=tenant, outcome=outcome)

    async def schedule(self, schedule: Schedule) -> bool:
        return await self._store.schedules.put(schedule)

    async def unschedule(self, name: str, *, tenant: str) -> bool:
        return await self._store.schedules.remove(name, tenant=tenant)

    async def depth(self) -> list[QueueDepth]:
        return await self._store.jobs.depth()

    @asynccontextmanager
    async def run(
        self, worker: JobWorker, *, queues: Collection[QueueName] = QUEUES, concurrency: int | None = None
    ) -> AsyncGenerator[Stop]:
        ticker = ScheduleTicker(self._store, self._clock, self.enqueue)
        ticking = asyncio.get_running_loop().create_task(ticker.run())
        ticking.add_done_callback(_log_failure)
        async with self._consumer.run(worker, queues=queues, concurrency=concurrency) as stop_consumer:

            def stop() -> None:
                ticking.cancel()
                stop_consumer()

            try:
                yield stop
            finally:
                stop()
                await asyncio.gather(ticking, return_exceptions=True)


class InProcessConsumer:
    """Runs jobs from the store: `concurrency` of them concurrently, of one tenant `of_tenant` in all processes.

    Several processes share the queues. A waiting job holds no task, connection or slot.
    """

    def __init__(self, store: Store, clock: Clock, *, concurrency: int, of_tenant: int | None = None) -> None:
        self._store = store
        self._clock = clock
        self._concurrency = concurrency
        self._of_tenant = of_tenant

    @asynccontextmanager
    async def run(
        self, worker: JobWorker, *, queues: Collection[QueueName], concurrency: int | None
    ) -> AsyncGenerator[Stop]:
        running = set[asyncio.Task[None]]()
        consuming = asyncio.get_running_loop().create_task(
            self._consume(worker, queues, concurrency or self._concurrency, running)
        )
        consuming.add_done_callback(_log_failure)

        def stop() -> None:
            consuming.cancel()

        try:
            yield stop
        finally:
            stop()
            await asyncio.gather(consuming, return_exceptions=True)
            await asyncio.gather(*running, return_exceptions=True)

    async def _consume(
        self, worker: JobWorker, queues: Collection[QueueName], concurrency: int, running: set[asyncio.Task[None]]
    ) -> None:
        loop = asyncio.get_running_loop()
        known: object = None
        swept = -_SWEEP_S
        while True:
            try:
                if self._clock.monotonic() - swept >= _SWEEP_S:
                    swept = self._clock.monotonic()
                    await self._store.jobs.release_orphans(running=worker.running)
                known = await self._store.jobs.wait(timeout_s=0.0)  # before taking: a job in between is seen next time
                limits = TakeLimits(free=concurrency - len(running), of_tenant=self._of_tenant)
                for job in await asyncio.shield(self._take(queues, limits, worker, running, loop)):
                    _log.debug("job %s has begun", job.id)
                await self._wait(known, running, is_full=len(running) >= concurrency)
            except StoreError as error:
                _log.warning("the queues cannot be read: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def _take(
        self,
        queues: Collection[QueueName],
        limits: TakeLimits,
        worker: JobWorker,
        running: set[asyncio.Task[None]],
        loop: asyncio.AbstractEventLoop,
    ) -> list[Job]:
        """Begin jobs and start a task for each; a shutdown in between does not separate the two steps."""
        taken = await self._store.jobs.take(queues, limits=limits)
        for job in taken:
            task = loop.create_task(worker.run(job))
            running.add(task)
            task.add_done_callback(running.discard)
        return taken

    async def _wait(self, known: object, running: set[asyncio.Task[None]], *, is_full: bool) -> None:
        """Wait for a new job or a free slot, and at most until the next sweep."""
        waits: set[asyncio.Task[Any]] = {*running}
        if not is_full:
            waiting = self._store.jobs.wait(known, timeout_s=_SWEEP_S)
            waits.add(asyncio.get_running_loop().create_task(waiting))
        try:
            await asyncio.wait(waits, timeout=_SWEEP_S, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in waits - running:
                task.cancel()


def _log_failure(task: asyncio.Task[None]) -> None:
    """Log the error of a task that should end only by cancellation; nothing awaits it before the shutdown."""
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.critical("background work has stopped in this process; restart it", exc_info=error)
