"""Choose the engine of background work from the settings."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError
from toolpost.contracts.jobs import QueueLimits
from toolpost.runtime.engine import InProcessConsumer, StoredEngine
from toolpost.runtime.jobs import JobRunner

if TYPE_CHECKING:
    from toolpost.configuration.settings import Settings
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.jobs import Engine
    from toolpost.contracts.storage import Store
    from toolpost.runtime.pending import PendingActions
    from toolpost.runtime.recovery import Recovery
    from toolpost.runtime.router import ToolRouter

_POSTGRES = ("postgresql:", "postgres:")


def make_engine(settings: Settings, store: Store, clock: Clock) -> Engine:
    """Return the engine of a store: jobs run in `toolpost worker`, or in every process that serves the store."""
    background = settings.background
    limits = QueueLimits(waiting=background.max_waiting, waiting_of_tenant=background.max_waiting_per_tenant)
    consumer = InProcessConsumer(
        store, clock, concurrency=background.concurrency, of_tenant=background.max_running_per_tenant
    )
    return StoredEngine(store, consumer, limits=limits)


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
