"""Idempotency keys of calls, and the records of their outcomes."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError, TakenOverError, ToolConflictError
from toolpost.contracts.outcomes import Failed, Outcome, outcome_to_dict
from toolpost.contracts.storage import IdempotencyRecord, Store
from toolpost.policy.call_hashes import digest
from toolpost.runtime.persistence import current_outcome, dump_outcome, paused_outcome

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.calls import RequestedCall, ValidatedCall
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.tool_runtime import ToolRuntime

_log = logging.getLogger("toolpost.runtime")


class IdempotencyKeys:
    """Reserve keys for calls; a key that was used before returns its outcome instead."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve(self, validated: ValidatedCall, runtime: ToolRuntime) -> Outcome | None:
        """Reserve the key of a call and return None; if the key was used, return its outcome or raise a conflict."""
        request = validated.request
        if request.idempotency_key is None or request.answers:
            return None  # a resumed call has reserved its key already
        record = IdempotencyRecord(
            call_id=request.call_id,
            tool_name=runtime.spec.name,
            # Not the tool's hash: a tool whose description changes keeps its keys.
            arguments_hash=digest(validated.arguments),
        )
        holder = await self._store.idempotency.reserve(request.principal, request.idempotency_key, record)
        if holder is None:
            return None
        if (holder.tool_name, holder.arguments_hash) != (record.tool_name, record.arguments_hash):
            msg = f"idempotency key {request.idempotency_key!r} was used for another call; use a new key"
            raise ToolConflictError(msg, tool_name=runtime.spec.name, code="key_mismatch")
        return await self._outcome_of(request, holder, record)

    async def _outcome_of(
        self, request: RequestedCall, holder: IdempotencyRecord, record: IdempotencyRecord
    ) -> Outcome | None:
        """Return the outcome of the call with the key; None if its process terminated before it began."""
        key, store = request.idempotency_key or "", self._store
        if holder.outcome is not None:
            return await current_outcome(store.pending, holder.outcome)
        if holder.owner_alive:
            msg = f"a call with idempotency key {key!r} is still running; retry when it has ended"
            raise ToolConflictError(msg, tool_name=record.tool_name, code="in_progress", retry_after_s=1.0)
        entry = await store.journal.find(holder.call_id, "")
        if entry is not None and entry.done:
            return await current_outcome(store.pending, entry.result)
        if entry is not None:
            msg = (
                f"the call with key {key!r} was interrupted and may have happened; a pending action asks whether it did"
            )
            raise ToolConflictError(msg, tool_name=record.tool_name, code="outcome_unknown")
        tenant = request.principal.tenant
        for action in await store.pending.list(tenant=tenant, status=None, call_id=holder.call_id, limit=1):
            # The process terminated after it wrote the question and before it settled the key.
            paused = outcome_to_dict(await paused_outcome(store.pending, action))
            await store.idempotency.settle(request.principal, key, paused)
            return await current_outcome(store.pending, paused)
        await store.idempotency.release(request.principal, key, call_id=holder.call_id)
        if await store.idempotency.reserve(request.principal, key, record) is None:
            return None
        msg = f"a call with idempotency key {key!r} has just been started elsewhere; retry when it has ended"
        raise ToolConflictError(msg, code="in_progress", retry_after_s=1.0)

    async def settle(self, attempt: Attempt, outcome: Outcome, data: Mapping[str, Any]) -> None:
        """Store the outcome under the call's key, or release the key of a failed call that never began."""
        request, began = attempt.request, attempt.invoked
        key = request.idempotency_key
        if key is None or (outcome.call_id != request.call_id and not attempt.joined):
            return
        if isinstance(outcome, Failed) and isinstance(outcome.error, ToolConflictError):
            return
        if isinstance(outcome, Failed) and not began:
            await self._store.idempotency.release(request.principal, key, call_id=request.call_id)
        else:
            await self._store.idempotency.settle(request.principal, key, data)


class OutcomeRecorder:
    """Write outcomes of calls with effects or keys, even if the caller is gone or the store is unavailable."""

    def __init__(self, store: Store, keys: IdempotencyKeys, background: BackgroundTasks) -> None:
        self._journal = store.journal
        self._keys = keys
        self._background = background

    async def record(self, attempt: Attempt, outcome: Outcome, emit_end: Callable[[], None]) -> None:
        """Write an outcome, and then emit the end; a cancellation of the caller does not stop the write.

        Return when the outcome is written, or when the write turns out to take longer.
        """
        await asyncio.shield(self._background.start(self._record(attempt, outcome, emit_end)))

    async def _record(self, attempt: Attempt, outcome: Outcome, emit_end: Callable[[], None]) -> None:
        request, data = attempt.request, dump_outcome(outcome)
        try:
            await self._write(attempt, outcome, data)
        except StoreError as error:
            may_retry = not isinstance(error, TakenOverError) or self._may_lack_intent(attempt)
            if not may_retry:  # the process that took the call over ends it, too
                _log.warning("the result of %s (%s) is not recorded: %s", request.call_id, request.tool_name, error)
                return
            _log.error("the result of %s (%s) is not recorded yet: %s", request.call_id, request.tool_name, error)
            self._background.retry_write(partial(self._write_later, attempt, outcome, data, emit_end))
        else:
            emit_end()

    def _may_lack_intent(self, attempt: Attempt) -> bool:
        """Return whether the intent may never have been written, because the call ended before that was known."""
        return not attempt.intent_written and attempt.owner == self._journal.owner_id

    async def _write_later(
        self, attempt: Attempt, outcome: Outcome, data: Mapping[str, Any], emit_end: Callable[[], None]
    ) -> None:
        """Write an outcome when the store is available again; a known result must not become a question."""
        if attempt.journaled and attempt.owner != self._journal.owner_id:
            call_id = attempt.request.call_id
            raise TakenOverError(f"this process lost its lease, so another process may have taken over {call_id}")
        if attempt.journaled and await self._journal.find(attempt.request.call_id, "") is None:
            attempt.journaled = False  # the intent was never written
        await self._write(attempt, outcome, data)
        emit_end()

    async def _write(self, attempt: Attempt, outcome: Outcome, data: Mapping[str, Any]) -> None:
        if attempt.journaled:
            await self._journal.finish(attempt.request.call_id, "", data)
        await self._keys.settle(attempt, outcome, data)
