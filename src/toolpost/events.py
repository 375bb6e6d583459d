"""Public names for those who receive events, read stored ones, or write a store: see docs/reference.md."""

from toolpost.contracts.events import EventCode, EventFilter, RemoteBinding, RunEvent, RunSummary, StoredEvent
from toolpost.contracts.storage import ArtifactStore, EventSink, StateStore, Store
from toolpost.runtime.event_bus import EventBus
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.state_events import StateEvents

__all__ = [
    "ArtifactStore",
    "EventBus",
    "EventCode",
    "EventFilter",
    "EventSink",
    "PlannerPauses",
    "RemoteBinding",
    "RunEvent",
    "RunSummary",
    "StateEvents",
    "StateStore",
    "Store",
    "StoredEvent",
]
