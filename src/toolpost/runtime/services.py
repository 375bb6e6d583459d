"""The parts that all routers of one Toolbox share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Self

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.ids import IdMaker
from toolpost.runtime.attempt import InFlightCalls
from toolpost.runtime.concurrency import BackgroundTasks
from toolpost.runtime.event_emitter import EventEmitter
from toolpost.runtime.results import ResultCache
from toolpost.wire.tracing import find_tracer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from opentelemetry.trace import Tracer

    from toolpost.contracts.questions import OnPending
    from toolpost.contracts.storage import EventSink, Store
    from toolpost.policy.redaction import Redactor


@dataclass(frozen=True, slots=True, kw_only=True)
class RuntimeServices:
    """Store, events, running calls, background tasks, clock, ids, result cache and tracer of one Toolbox."""

    store: Store
    redactor: Redactor
    emitter: EventEmitter
    background: BackgroundTasks
    clock: Clock
    inflight: InFlightCalls
    ids: IdMaker
    cache: ResultCache
    tracer: Tracer | None = field(default_factory=find_tracer)  # None if this program has no tracer provider

    @classmethod
    def create(
        cls,
        store: Store,
        redactor: Redactor,
        *,
        sinks: Sequence[EventSink] = (),
        on_pending: OnPending | None = None,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Create the services of a store; events go to its event log and to `sinks`."""
        background = BackgroundTasks()
        return cls(
            store=store,
            redactor=redactor,
            emitter=EventEmitter([store.events, *sinks], redactor, background, on_pending, clock=clock),
            background=background,
            clock=clock,
            inflight=InFlightCalls(clock),
            ids=IdMaker(clock),
            cache=ResultCache(clock=clock.monotonic),
        )
