"""Pending actions in memory."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.questions import Answer, PendingAction, PendingStatus, Question
from toolpost.stores.changes import Changes, Topic
from toolpost.stores.memory.paging import behind
from toolpost.stores.records import copy_action

Actions: TypeAlias = list[PendingAction]  # The store's own `list` hides the builtin one.


class MemoryPendingStore:
    """Pending actions in a dict; a lock makes claims atomic between threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.actions: dict[str, PendingAction] = {}
        self._changes = Changes(self._statuses)
        self._newest: dict[str, str] = {}  # the id of the newest action, by its `same_call`

    async def add(self, action: PendingAction, *, unless_waiting: bool = False) -> PendingAction | None:
        with self._lock:
            waiting = self._waiting(action.same_call, action.created_at) if unless_waiting else None
            if waiting is not None:
                return copy_action(waiting)
            if action.id in self.actions:
                raise StoreError(f"question {action.id!r} is there already; every question needs an id of its own")
            self.actions[action.id] = copy_action(action)
            if action.same_call:
                self._newest[action.same_call] = action.id
        return None

    @property
    def may_wait(self) -> bool:
        return bool(self._newest)

    async def find_waiting(self, same_call: str, *, at: float) -> PendingAction | None:
        with self._lock:
            waiting = self._waiting(same_call, at)
        return None if waiting is None else copy_action(waiting)

    def _waiting(self, same_call: str, at: float) -> PendingAction | None:
        action = self.actions.get(self._newest.get(same_call, ""))
        if action is not None and action.status == "open" and action.expires_at > at:
            return action
        self._newest.pop(same_call, None)  # it was answered, or is gone
        return None

    async def renew(self, pending_id: str, question: Question) -> None:
        self._change(lambda action: action.id == pending_id and action.status == "open", question=question)

    async def get(self, pending_id: str, *, tenant: str | None = None) -> PendingAction | None:
        action = self.actions.get(pending_id)
        return copy_action(action) if action and tenant in (None, action.asked_by.tenant) else None

    async def list(
        self,
        *,
        tenant: str | None = None,
        user: str | None = None,
        status: PendingStatus | None = "open",
        call_id: str | None = None,
        before: str | None = None,
        limit: int = 100,
    ) -> Actions:
        theirs = [action for action in reversed(self.actions.values()) if tenant in (None, action.asked_by.tenant)]
        newest_first = behind(sorted(theirs, key=lambda action: action.created_at, reverse=True), before)
        actions = (
            action
            for action in newest_first
            if user in (None, action.asked_by.user)
            and status in (None, action.status)
            and call_id in (None, action.call_id)
        )
        return [copy_action(action) for action in islice(actions, max(0, limit))]

    async def wait(self, pending_ids: Sequence[str], known: object = None, *, timeout_s: float = 0.0) -> object:
        return await self._changes.wait_for([(id_,) for id_ in pending_ids], known, timeout_s=timeout_s)

    async def _statuses(self, topics: Collection[Topic]) -> dict[Topic, Any]:
        found = {topic: self.actions.get(topic[0]) for topic in topics}
        return {topic: action and (action.status, action.outcome is not None) for topic, action in found.items()}

    async def count_open(self) -> int:
        call_ids = [action.call_id for action in self.actions.values() if action.status == "open"]
        outer = {outer_id for call_id in call_ids for outer_id in _outer_ids(call_id)}
        return sum(call_id not in outer for call_id in call_ids)

    async def claim(self, pending_id: str, answer: Answer, *, by: str, at: float) -> PendingAction | None:
        def is_open(action: PendingAction) -> bool:
            return action.id == pending_id and action.status == "open" and action.expires_at > at

        claimed = self._change(is_open, status="claimed", answer=answer, answered_by=by, answered_at=at)
        return claimed[0] if claimed else None

    async def settle(
        self, pending_id: str, status: PendingStatus, *, outcome: Mapping[str, Any] | None = None, reopen: bool = False
    ) -> None:
        allowed = {"claimed"} if reopen else {"claimed", status}
        changes: dict[str, Any] = {"status": status, "outcome": outcome}
        if reopen:
            changes = {"status": "open", "answer": None, "answered_by": None, "answered_at": None}
        if not self._change(lambda action: action.id == pending_id and action.status in allowed, **changes):
            raise StoreError(f"question {pending_id!r} is not claimed, so it cannot be settled as {status!r}")

    async def expire(self, at: float) -> Actions:
        return self._change(lambda action: action.status == "open" and action.expires_at <= at, status="expired")

    async def cancel(self, call_id: str, *, tenant: str | None = None) -> Actions:
        def is_meant(action: PendingAction) -> bool:
            mine = tenant in (None, action.asked_by.tenant)
            return mine and action.status == "open" and call_id in (action.call_id, action.run_id)

        return self._change(is_meant, status="cancelled")

    async def adopt_claims(self) -> Actions:
        return []

    def _change(self, condition: Callable[[PendingAction], bool], **changes: Any) -> Actions:
        with self._lock:
            changed = [copy_action(replace(action, **changes)) for action in self.actions.values() if condition(action)]
            self.actions.update({action.id: action for action in changed})
        self._changes.notify((action.id,) for action in changed)
        return [copy_action(action) for action in changed]


def _outer_ids(call_id: str) -> Iterator[str]:
    """Yield the ids of the calls that a call is inside of."""
    while call_id := call_id.rpartition(".")[0]:
        yield call_id
