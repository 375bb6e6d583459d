"""The store in memory, which ends with the process, and its backend."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Self, TypeVar

from msgspec.structs import replace

from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.ids import IdMaker
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import PendingAction
from toolpost.contracts.storage import IdKind, JournalEntry, Retention, Store
from toolpost.contracts.store_status import (
    FLOW_S,
    MOST_SILENT,
    SILENT_S,
    OwnerStatus,
    QueueStatus,
    SilentRun,
    StoreInspection,
    StoreStatus,
)
from toolpost.contracts.users import UserSummary
from toolpost.stores.chain import KEY_BYTES, LogKey
from toolpost.stores.encryption import NoCipher, RowCipher
from toolpost.stores.key_uses import EncryptedKeyUses
from toolpost.stores.memory.event_log import MemoryEventLog
from toolpost.stores.memory.jobs import MemoryJobStore, MemoryScheduleStore
from toolpost.stores.memory.limits import MemoryLimits
from toolpost.stores.memory.metrics import MemoryMetricStore
from toolpost.stores.memory.parts import (
    MemoryArtifactStore,
    MemoryCallerKeys,
    MemoryCancelStore,
    MemoryIdempotencyStore,
    MemoryJournal,
    MemoryPendingStore,
    MemoryStateTable,
    MemoryTokenRows,
    MemoryWebhookStore,
)
from toolpost.stores.registry import StoreCheck, StoreOptions
from toolpost.stores.retention_rules import FORGOTTEN_USER, PRUNED, ArtifactSize, over_quota
from toolpost.stores.run_heads import FINISHED
from toolpost.stores.sessions import EncryptedSessionStore
from toolpost.stores.state import EncryptedStateStore

K = TypeVar("K")
V = TypeVar("V")


class MemoryStore:
    """The store of one Toolbox until its process ends.

    With `max_events`, the oldest finished runs are removed to make room for new events.
    """

    def __init__(self, *, max_events: int | None = None, clock: Clock = SYSTEM_CLOCK) -> None:
        self._now = clock.wall
        self.owner_id = f"own_{clock.secret_bytes(12).hex()}"
        self._key = LogKey(clock.secret_bytes(KEY_BYTES))
        self.events = MemoryEventLog(max_events=max_events, clock=clock)
        self.journal = MemoryJournal(self.owner_id)
        self.jobs = MemoryJobStore(self.owner_id, clock.wall)
        self.schedules = MemoryScheduleStore()
        self.pending = MemoryPendingStore(self.journal, self.jobs)
        self.idempotency = MemoryIdempotencyStore(clock.wall)
        self.caller_keys = MemoryCallerKeys()
        self.webhooks = MemoryWebhookStore()
        self.metrics = MemoryMetricStore(self.events, self._asked_at)
        self.cancels = MemoryCancelStore(self._tenants_of, clock.wall)
        self.artifacts = MemoryArtifactStore(IdMaker(clock, secure=True))
        self.tokens = MemoryTokenRows(clock.wall)
        self.limits = MemoryLimits(self.owner_id, clock.monotonic)
        self._state_table = MemoryStateTable()
        self.key_uses = EncryptedKeyUses(self._state_table, RowCipher(NoCipher()))
        self.sessions = EncryptedSessionStore(self._state_table, RowCipher(NoCipher()))
        self.state = EncryptedStateStore(
            self._state_table, RowCipher(NoCipher()), owner_id=lambda: self.owner_id, is_alive=self._is_alive
        )

    async def _is_alive(self, owner_id: str) -> bool:
        return owner_id == self.owner_id

    def _asked_at(self, pending_id: str) -> float | None:
        action = self.pending.actions.get(pending_id)
        return None if action is None else action.created_at

    async def find_ids(self, kind: IdKind, prefix: str, *, tenant: str | None = None, limit: int = 50) -> list[str]:
        found = {id_: at for id_, of, at in self._ids(kind) if id_.startswith(prefix) and tenant in (None, of)}
        return sorted(found, key=found.__getitem__, reverse=True)[: max(0, limit)]

    def _ids(self, kind: IdKind) -> Iterator[tuple[str, str, float]]:
        """Yield the ids of a kind, with their tenants and times."""
        match kind:
            case "pending" | "open_pending":
                for each in self.pending.actions.values():
                    if kind == "pending" or each.status == "open":
                        yield each.id, each.asked_by.tenant, each.created_at
            case "run" | "call":
                for head in [run.head for run in self.events.collect_runs().by_name.values()]:
                    yield head.run_id, head.tenant, head.started_at
                    if kind == "call":
                        yield head.root_call, head.tenant, head.started_at
            case "artifact":
                yield from ((ref.id, ref.tenant, ref.created_at) for ref in self.artifacts.refs.values())
            case "caller_key":
                yield from ((key.id, key.principal.tenant, key.created_at) for key in self.caller_keys.keys.values())

    def mac(self, kind: str, message: bytes) -> bytes:
        return self._key.mac(kind, message)

    async def status(self) -> StoreStatus:
        at, heads = self._now(), [run.head for run in self.events.collect_runs().by_name.values()]
        open_heads = [head for head in heads if head.open_calls]
        running = [head for head in open_heads if head.status == "running"]
        asked = self.pending.asked()
        silent = sorted((head for head in running if head.updated_at < at - SILENT_S), key=lambda one: one.updated_at)
        depths = await self.jobs.depth()
        return StoreStatus(
            at=at,
            owners=[OwnerStatus(id=self.owner_id, is_alive=True, unfinished=len(running))],
            pending=len(asked),
            oldest_pending_at=min((action.created_at for action in asked), default=None),
            running=len(running),
            paused=sum(head.status == "paused" for head in open_heads),
            silent=[
                SilentRun(
                    run_id=head.run_id,
                    tenant=head.tenant,
                    tool_name=head.tool_name,
                    owner=self.owner_id,
                    updated_at=head.updated_at,
                )
                for head in silent[:MOST_SILENT]
            ],
            uncounted_since=await self.metrics.uncounted_since(),
            queues=[QueueStatus(*one, *self.jobs.flow(one.queue, after=at - FLOW_S)) for one in depths],
        )

    async def users(self, *, tenant: str | None = None) -> list[UserSummary]:
        last: dict[Principal, float] = {}
        for head in (run.head for run in self.events.collect_runs().by_name.values()):
            if head.user and head.root_call:
                last[Principal(head.tenant, head.user)] = head.started_at
        keys = Counter(key.principal for key in self.caller_keys.keys.values())
        accounts = Counter(Principal(*key[:2]) for key, row in self.tokens.rows.items() if row.status != "revoked")
        pending = Counter(one.asked_by for one in self.pending.actions.values() if one.status == "open")
        return [
            UserSummary(
                principal=one, last_run_at=last.get(one), keys=keys[one], accounts=accounts[one], pending=pending[one]
            )
            for one in sorted({*last, *keys, *accounts, *pending})
            if tenant in (None, one.tenant)
        ]

    async def prune(self, retention: Retention, *, now: float) -> dict[str, int]:
        removed = dict.fromkeys(PRUNED, 0)
        if retention.max_age_s is not None:
            removed.update(self._prune_by_age(now - retention.max_age_s))
        if retention.max_artifact_bytes is not None:
            removed["artifacts"] += self._prune_over_quota(retention.max_artifact_bytes)
        oldest = 0.0 if retention.max_age_s is None else now - retention.max_age_s
        removed["metrics"] = self.metrics.prune(cutoff=oldest, now=now)
        removed["files"] = self._drop_unnamed_contents()
        return removed

    def _prune_by_age(self, cutoff: float) -> dict[str, int]:
        unsettled = self._unsettled_runs()
        entries = self.journal.entries.values()
        unfinished = {_run_of(entry) for entry in entries if not entry.done and not entry.step}
        runs = self.events.collect_runs()
        old = {
            name: run
            for name, run in runs.by_name.items()
            if run.head.status in FINISHED and run.head.updated_at < cutoff and name not in unsettled | unfinished
        }
        calls = {row.call_id for run in old.values() for row in run.render()}
        run_states = runs.by_name
        runs.remove(old)
        alone = {run_id for _, run_id in old} - {run_id for _, run_id in run_states}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or bool(entry.step)  # an interrupted step is over when its run is

        def is_old(name: tuple[str, str], at: float) -> bool:
            return name in old or (at < cutoff and name not in run_states)

        return {
            "runs": len(old),
            "events": sum(len(run.ids) for run in old.values()),
            "journal": _drop(
                self.journal.entries, lambda _, entry: is_over(entry) and is_old(_run_of(entry), entry.at)
            ),
            "pending": _drop(
                self.pending.actions,
                lambda _, action: _asked_in(action) not in unsettled and is_old(_asked_in(action), action.created_at),
            ),
            "keys": _drop(
                self.idempotency.records,
                lambda _, held: held[0].call_id in calls or (held[0].outcome is not None and held[1] < cutoff),
            ),
            "state": self._state_table.remove(runs=alone, before=cutoff),
            "jobs": _drop(self.jobs.jobs, lambda id_, _: self.jobs.ended_at.get(id_, cutoff) < cutoff),
            "cancels": _drop(self.cancels.requests, lambda _, request: request.at < cutoff),
            "artifacts": _drop(
                self.artifacts.refs,
                lambda _, ref: ref.created_at < cutoff and (ref.tenant, ref.run_id) not in unsettled,
            ),
        }

    def _prune_over_quota(self, max_bytes: int) -> int:
        unsettled = self._unsettled_runs()
        refs = sorted(self.artifacts.refs.values(), key=lambda ref: ref.created_at)
        spared = {ref.id for ref in refs if (ref.tenant, ref.run_id) in unsettled}
        sizes = (ArtifactSize(ref.id, ref.sha256, ref.size) for ref in refs)
        gone = set(over_quota(sizes, spared=spared, max_bytes=max_bytes))
        return _drop(self.artifacts.refs, lambda id_, _: id_ in gone)

    def _unsettled_runs(self) -> set[tuple[str, str]]:
        actions = self.pending.actions.values()
        return {_asked_in(action) for action in actions if action.status in ("open", "claimed")}

    def _drop_unnamed_contents(self) -> int:
        named = {ref.sha256 for ref in self.artifacts.refs.values()}
        return _drop(self.artifacts.contents, lambda sha256, _: sha256 not in named)

    async def forget(self, principal: Principal) -> dict[str, int]:
        all_runs = list(self.events.collect_runs().by_name.values())
        runs = {run.head.run_id for run in all_runs if (run.head.tenant, run.head.user) == principal}
        calls = {row.call_id for run in all_runs for row in run.render() if (row.tenant, row.user) == principal}
        entries, actions = self.journal.entries, self.pending.actions
        running = {(run.head.tenant, run.head.run_id) for run in all_runs if run.head.status == "running"}

        def is_over(entry: JournalEntry) -> bool:
            return entry.done or (bool(entry.step) and _run_of(entry) not in running)

        removed = {
            "tokens": _drop(self.tokens.rows, lambda key, _: key[:2] == principal),
            "pending": _drop(actions, lambda _, each: each.asked_by == principal and each.status != "claimed"),
            "journal": _drop(entries, lambda _, entry: entry.principal == principal and is_over(entry)),
            "keys": _drop(
                self.idempotency.records, lambda key, held: key[0] == principal and held[0].outcome is not None
            ),
            "caller_keys": _drop(self.caller_keys.keys, lambda _, key: key.principal == principal),
            "state": self._state_table.remove(runs=runs, owner=str(principal)),
            "jobs": _drop(self.jobs.jobs, lambda _, job: job.principal == principal and job.status != "running"),
            "schedules": _drop(self.schedules.rows, lambda _, schedule: schedule.principal == principal),
            "artifacts": _drop(
                self.artifacts.refs,
                lambda _, ref: (
                    ref.tenant == principal.tenant
                    and (ref.user == principal.user or ref.run_id in runs or ref.call_id in calls)
                ),
            ),
        }
        under_way = sum(entry.principal == principal for entry in entries.values())
        under_way += sum(action.asked_by == principal for action in actions.values())
        for action in list(actions.values()):
            if action.answered_by == str(principal):
                actions[action.id] = replace(action, answered_by=FORGOTTEN_USER)
        files = self._drop_unnamed_contents()
        self.metrics.forget(*principal)
        return {**removed, "under_way": under_way, "files": files, **self.events.forget(principal)}

    async def rotate_key(self, *, retire: bool = False) -> dict[str, int]:
        """Do nothing: nothing is encrypted in memory."""
        return {}

    async def close(self) -> None:
        """Do nothing: there is nothing to close."""

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.close()

    def _tenants_of(self, target_id: str) -> set[str]:
        """Return the tenants that have a run or a call with this ID."""
        runs = {run.head.tenant for run in self.events.collect_runs().find_runs(target_id)}
        entries = {entry.principal.tenant for (id_, _), entry in self.journal.entries.items() if id_ == target_id}
        actions = {each.asked_by.tenant for each in self.pending.actions.values() if each.call_id == target_id}
        return runs | entries | actions


class MemoryBackend:
    """Opens stores in memory, with `event_queue` as the maximum number of events."""

    async def open(self, options: StoreOptions) -> Store:
        return MemoryStore(max_events=options.event_queue, clock=options.clock)

    def find_ids(self, options: StoreOptions, kind: IdKind, prefix: str, *, tenant: str, limit: int) -> list[str]:
        return []

    def check(self, options: StoreOptions) -> Iterator[StoreCheck]:
        yield StoreCheck("note", "in memory: everything is lost at the end")

    def inspect(self, options: StoreOptions) -> StoreInspection | None:
        return None


def _run_of(entry: JournalEntry) -> tuple[str, str]:
    return entry.principal.tenant, entry.run_id


def _asked_in(action: PendingAction) -> tuple[str, str]:
    return action.asked_by.tenant, action.run_id


def _drop(items: dict[K, V], condition: Callable[[K, V], bool]) -> int:
    """Delete the items that meet a condition; return their number."""
    doomed = [key for key, value in items.items() if condition(key, value)]
    for key in doomed:
        del items[key]
    return len(doomed)
