"""What is told of calls: events, who receives them, and what is kept of them."""

from toolpost.contracts.events import EventCode, RemoteBinding, RunEvent, RunSummary, StoredEvent
from toolpost.contracts.storage import ArtifactStore, EventSink, StateStore, Store
from toolpost.runtime.event_emitter import EventBus

__all__ = [
    "ArtifactStore",
    "EventBus",
    "EventCode",
    "EventSink",
    "RemoteBinding",
    "RunEvent",
    "RunSummary",
    "StateStore",
    "Store",
    "StoredEvent",
]
