"""The topics of a store that tasks wait for."""

from __future__ import annotations

from collections.abc import Sequence

from toolpost.contracts.events import RunEvent
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.writer import Item

EVENTS: Topic = ("events",)  # the position of the newest event
CANCELS: Topic = ("cancels",)  # the number of the newest cancel request
JOBS: Topic = ("jobs",)  # the number of the newest job


def run_topic(tenant: str, run_id: str) -> Topic:
    """Return the topic whose state is the position of the newest event of a run, 0 without events."""
    return ("run", tenant, run_id)


def is_of_events(topic: Topic) -> bool:
    """Return whether new events change the state of a topic."""
    return topic == EVENTS or topic[0] == "run"


def pending_topic(pending_id: str) -> Topic:
    """Return the topic whose state is the status of a pending action and whether it has an outcome; None without it."""
    return ("pending", pending_id)


def notify_events(changes: Changes, batch: Sequence[Item]) -> None:
    """Wake the tasks that wait for the events of a committed batch."""
    waited = [topic for topic in changes.waited_for() if is_of_events(topic)]
    if not waited:  # the usual case: tasks wait for cancel requests only
        return
    calls = [item.call for item in batch if isinstance(item, RunEvent)]
    if calls:
        changed = {EVENTS, *(run_topic(call.tenant, call.run_id) for call in calls)}
        changes.notify(topic for topic in waited if topic in changed)
