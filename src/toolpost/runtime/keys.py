"""Idempotency keys on calls: the same key gives the same answer, and never runs twice."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolConflictError
from toolpost.contracts.outcomes import Completed, Failed, Paused, outcome_to_dict
from toolpost.contracts.storage import KeyRecord
from toolpost.runtime.revive import current_outcome

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.calls import RequestedCall, ValidatedCall
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.storage import Store
    from toolpost.runtime.lane import Lane


def _hash(arguments: Mapping[str, Any]) -> str:
    """Arguments by value; a tool that is merely described in other words keeps its keys."""
    return hashlib.sha256(json.dumps(arguments, sort_keys=True, default=str).encode()).hexdigest()


class KeyGate:
    """Lets the first use of a key through and gives every later one what came of it."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def enter(self, validated: ValidatedCall, lane: Lane) -> Outcome | None:
        """None to go on with the call; else the outcome that the key already has."""
        request = validated.request
        if request.idempotency_key is None or request.answers:
            return None  # a resumed call holds its key already
        mine = KeyRecord(
            call_id=request.call_id,
            tool_name=lane.spec.name,
            arguments_hash=_hash(validated.arguments),
        )
        held = await self._store.keys.reserve(request.principal, request.idempotency_key, mine)
        if held is None:
            return None
        if (held.tool_name, held.arguments_hash) != (mine.tool_name, mine.arguments_hash):
            msg = f"idempotency key {request.idempotency_key!r} was used for another call; use a new key"
            raise ToolConflictError(msg, tool_name=lane.spec.name, code="key_mismatch")
        return await self._of_holder(request, held, mine)

    async def _of_holder(self, request: RequestedCall, held: KeyRecord, mine: KeyRecord) -> Outcome | None:
        key = request.idempotency_key or ""
        if held.outcome is not None:
            return await current_outcome(self._store.pending, held.outcome)
        if held.owner_alive:
            msg = f"a call with idempotency key {key!r} is still running; ask again when it has ended"
            raise ToolConflictError(msg, tool_name=mine.tool_name, code="in_progress", retry_after_s=1.0)
        entry = await self._store.journal.find(held.call_id, "")
        if entry is not None and entry.done:
            return await current_outcome(self._store.pending, entry.result)
        if entry is not None:
            msg = f"the call with key {key!r} was interrupted and may have happened; see `toolpost pending list`"
            raise ToolConflictError(msg, tool_name=mine.tool_name, code="outcome_unknown")
        asked = await self._question_of(request, held)
        if asked is not None:  # it died between asking and saying so under its key
            await self._store.keys.settle(request.principal, key, asked)
            return await current_outcome(self._store.pending, asked)
        await self._store.keys.release(request.principal, key, call_id=held.call_id)  # it died before it began
        return None if await self._store.keys.reserve(request.principal, key, mine) is None else await self._lost(key)

    async def _question_of(self, request: RequestedCall, held: KeyRecord) -> Mapping[str, Any] | None:
        """The newest question of the call that holds the key, as an outcome."""
        tenant = request.principal.tenant
        for action in await self._store.pending.list(tenant=tenant, status=None, call_id=held.call_id, limit=1):
            paused = Paused(action.call_id, action.run_id, action.tool_name, action.id, action.question)
            return outcome_to_dict(paused)
        return None

    async def _lost(self, key: str) -> Outcome:
        msg = f"a call with idempotency key {key!r} has just been started elsewhere; ask again when it has ended"
        raise ToolConflictError(msg, code="in_progress", retry_after_s=1.0)

    async def leave(self, request: RequestedCall, outcome: Outcome, kept: Mapping[str, Any], *, began: bool) -> None:
        """Keep the outcome for later uses, or free a key whose call never began."""
        key = request.idempotency_key
        if key is None or outcome.call_id != request.call_id:
            return
        match outcome:
            case Completed() | Paused():
                await self._store.keys.settle(request.principal, key, kept)
            case Failed(error=ToolConflictError()):
                return
            case Failed():
                if began:
                    await self._store.keys.settle(request.principal, key, kept)
                else:
                    await self._store.keys.release(request.principal, key, call_id=request.call_id)
