"""Choose the engine of background work from the settings."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.jobs import QueueLimits
from toolpost.runtime.engine import InProcessConsumer, StoredEngine
from toolpost.runtime.jobs import JobRunner

if TYPE_CHECKING:
    from collections.abc import Collection
    from contextlib import AbstractAsyncContextManager

    from toolpost.configuration.settings import Settings
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.jobs import Engine, JobWorker, QueueName, Stop
    from toolpost.contracts.storage import Store
    from toolpost.runtime.engine import Consumer
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.recovery import Recovery
    from toolpost.runtime.router import ToolRouter

_POSTGRES = ("postgresql:", "postgres:")


def make_engine(settings: Settings, store: Store, clock: Clock) -> Engine:
    """Return the engine of a store: jobs run in `toolpost worker`, or in every process that serves the store."""
    background = settings.background
    limits = QueueLimits(waiting=background.max_waiting, waiting_of_tenant=background.max_waiting_per_tenant)
    consumer: Consumer
    if uses_workers(settings):
        consumer = WorkerConsumer(settings, store, clock)
    else:
        consumer = InProcessConsumer(
            store, clock, concurrency=background.concurrency, of_tenant=background.max_running_per_tenant
        )
    return StoredEngine(store, consumer, clock, limits=limits)


class WorkerConsumer:
    """Runs jobs with DBOS, which is imported by workers only: a gateway stores jobs."""

    def __init__(self, settings: Settings, store: Store, clock: Clock) -> None:
        self._settings = settings
        self._store = store
        self._clock = clock

    def run(
        self, worker: JobWorker, *, queues: Collection[QueueName], concurrency: int | None
    ) -> AbstractAsyncContextManager[Stop]:
        try:
            from toolpost.runtime.dbos_consumer import DBOSConsumer  # noqa: PLC0415 - only workers need the extra
        except ModuleNotFoundError as error:
            message = f"workers need the package {error.name}; run: pip install 'toolpost[scale]'"
            raise ConfigError(message) from error
        background = self._settings.background
        consumer = DBOSConsumer(
            self._store,
            self._settings.database or "",
            self._clock,
            concurrency=background.concurrency,
            of_tenant=background.max_running_per_tenant,
        )
        return consumer.run(worker, queues=queues, concurrency=concurrency)


def make_runner(settings: Settings, router: ToolRouter, actions: PendingActions, recovery: Recovery) -> JobRunner:
    """Return what runs jobs; without workers, a process that answers a question continues the run itself."""
    runner = JobRunner(router, actions, recovery)
    if not uses_workers(settings):
        actions.run_job = runner.begin
    return runner


def uses_workers(settings: Settings) -> bool:
    """Return whether workers run the jobs: with PostgreSQL and the extra `scale`, unless the settings differ."""
    on_postgres = (settings.database or "").startswith(_POSTGRES)
    match settings.background.engine:
        case "auto":
            return on_postgres and find_spec("dbos") is not None
        case "dbos" if not on_postgres:
            raise ConfigError("background.engine: dbos needs a database on PostgreSQL; set database: postgresql://...")
        case engine:
            return engine == "dbos"
