"""The status of a store for operators: its processes, unfinished work and unread events."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

from msgspec import Struct
from msgspec.structs import asdict

from toolpost.contracts.jobs import QueueName

SILENT_S = 3600.0
"""A running call without an event for this long is reported as silent."""
MOST_SILENT = 20
FLOW_S = 600.0
SLOW_QUEUE_S = 300.0
"""A queue whose oldest job waits for longer is reported as slow."""


class OwnerStatus(Struct, frozen=True, kw_only=True):
    """A process that has the store open, or one that has ended and left `unfinished` calls and answers.

    Values that the store does not have are None.
    """

    id: str
    is_alive: bool
    unfinished: int = 0
    host: str | None = None
    pid: int | None = None
    version: str | None = None
    started_at: float | None = None


class SilentRun(Struct, frozen=True, kw_only=True):
    """A running call whose last event is older than `SILENT_S`."""

    run_id: str
    tenant: str
    tool_name: str
    owner: str
    updated_at: float


class QueueStatus(NamedTuple):
    """The jobs of a queue: those that wait and run, and those that were stored and that ended within `FLOW_S`."""

    queue: QueueName
    waiting: int
    running: int
    oldest_at: float | None
    stored: int
    ended: int


class StoreStatus(Struct, frozen=True, kw_only=True):
    """The status of a store at the time `at`.

    `pending` counts open actions, except calls that wait for a nested call. `running` and `paused` count runs.
    `uncounted_since` is the time of the oldest event that no metric contains yet: a gateway counts events as soon as
    readers of the log can see them.
    """

    at: float
    owners: Sequence[OwnerStatus] = ()
    pending: int = 0
    oldest_pending_at: float | None = None
    running: int = 0
    paused: int = 0
    silent: Sequence[SilentRun] = ()
    uncounted_since: float | None = None
    queues: Sequence[QueueStatus] = ()

    @property
    def event_lag_s(self) -> float:
        """The age of the oldest event that readers of the log have not processed, in seconds."""
        return 0.0 if self.uncounted_since is None else max(0.0, self.at - self.uncounted_since)

    @property
    def oldest_pending_s(self) -> float:
        """The age of the oldest open pending action, in seconds."""
        return 0.0 if self.oldest_pending_at is None else max(0.0, self.at - self.oldest_pending_at)

    def to_dict(self) -> dict[str, Any]:
        """Return the counts as JSON data, with ages in seconds."""
        return {
            "queues": [
                {
                    "name": queue.queue,
                    "waiting": queue.waiting,
                    "running": queue.running,
                    "oldest_s": None if queue.oldest_at is None else round(max(0.0, self.at - queue.oldest_at), 3),
                }
                for queue in self.queues
            ],
            "owners": [{"id": one.id, "alive": one.is_alive, **_fields(one, "id", "is_alive")} for one in self.owners],
            "runs": {"running": self.running, "paused": self.paused},
            "silent": [_fields(run) for run in self.silent],
            "pending": {"open": self.pending, "oldest_s": round(self.oldest_pending_s, 3)},
        }


class StoreInspection(NamedTuple):
    """The status of a store that was read without opening it, and the function `mac` of the store."""

    status: StoreStatus
    mac: Callable[[str, bytes], bytes]


def _fields(value: OwnerStatus | SilentRun, *without: str) -> dict[str, Any]:
    return {name: field for name, field in asdict(value).items() if name not in without}


def status_problems(status: StoreStatus) -> Iterator[str]:
    """Yield the problems of a store, one sentence each: ended owners with work, slow queues, silent calls."""
    for owner in status.owners:
        if not owner.is_alive:
            count = owner.unfinished
            calls = "1 unfinished call or answer" if count == 1 else f"{count} unfinished calls or answers"
            where = f" on {owner.host}, process {owner.pid}" if owner.host else ""
            yield f"process {owner.id}{where} has ended and left {calls}: a running gateway recovers them"
    for queue in status.queues:
        if queue.oldest_at is not None and status.at - queue.oldest_at > SLOW_QUEUE_S:
            minutes = (status.at - queue.oldest_at) / 60
            yield (
                f"queue {queue.queue!r} {'grows' if queue.stored > queue.ended else 'is slow'}: {queue.waiting} jobs "
                f"wait, the oldest for {minutes:.0f} min, and {queue.running} are running; in the last "
                f"{FLOW_S / 60:.0f} min {queue.stored} were stored and {queue.ended} ended: start another worker, or "
                "raise its concurrency"
            )
    for run in status.silent:
        hours = (status.at - run.updated_at) / 3600
        yield (
            f"run {run.run_id} ({run.tool_name}) is running and has no event for {hours:.0f} h: "
            f"`toolpost runs show {run.run_id} --user {run.tenant}:NAME` shows it, `runs cancel` ends it"
        )
