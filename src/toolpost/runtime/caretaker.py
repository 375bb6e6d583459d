"""Looks after what nobody waits for: crashed calls, late questions, wishes to cancel from other processes."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import StoreError
from toolpost.contracts.outcomes import Paused, outcome_to_dict
from toolpost.contracts.questions import Answer, PendingAction
from toolpost.contracts.storage import Retention

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Mapping

    from toolpost.contracts.events import RunSummary
    from toolpost.contracts.questions import PendingStatus, Question
    from toolpost.contracts.storage import JournalEntry, Store
    from toolpost.runtime.desk import PendingDesk
    from toolpost.runtime.router import ToolRouter

_log = logging.getLogger("toolpost.runtime")
_WATCH_S = 0.2
_SWEEP_S = 5.0
_PRUNE_S = 3600.0
_UNKNOWN_TTL_S = 365 * 24 * 3600.0


class Caretaker:
    """One quiet task beside the calls; `sweep` can also be asked for at once.

    What was answered for a tool of an `absent` source waits for a process that has it.
    """

    def __init__(
        self,
        router: ToolRouter,
        desk: PendingDesk,
        *,
        retention: Retention,
        also: Callable[[PendingDesk], Awaitable[None]] | None = None,
        absent: Collection[str] = (),
    ) -> None:
        self._router = router
        self._desk = desk
        self._store: Store = router.store
        self._retention = retention
        self._also = also
        self._absent = absent
        self._late: list[PendingAction] = []  # their sources are still connecting
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Look after what an earlier process left, then keep watching."""
        await self.sweep()
        await self.prune()
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop watching."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        swept = pruned = time.monotonic()
        while True:
            await asyncio.sleep(_WATCH_S)
            try:
                await self._heed_cancels()
                if time.monotonic() - swept >= _SWEEP_S:
                    swept = time.monotonic()
                    await self.sweep()
                if time.monotonic() - pruned >= _PRUNE_S:
                    pruned = time.monotonic()
                    await self.prune()
            except StoreError as error:  # the disk may come back; the calls themselves report it
                _log.warning("looking after pending work: %s", error)

    async def _heed_cancels(self) -> None:
        if len(self._router.inflight):
            for target, wishes in (await self._store.cancels.requested(self._router.inflight.ids())).items():
                for wish in wishes:
                    self._router.inflight.cancel(target, tenant=wish.tenant, before=wish.at)

    async def sweep(self) -> None:
        """Close late questions and take over what dead processes left unfinished."""
        for action in await self._store.pending.expire(time.time()):
            await self._conclude(action)
        orphans = await self._store.events.adopt_orphans()  # before anything is told of them, which makes them ours
        for entry in await self._store.journal.adopt_orphans():
            await self._ask_about(entry)
        late, self._late = self._late, []
        for action in [*late, *await self._store.pending.adopt_claims()]:
            await self._continue(action)
        for run in orphans:
            await self._end(run)
        if self._also is not None:
            await self._also(self._desk)

    async def prune(self) -> dict[str, int]:
        """Remove what is no longer kept; says how many of each."""
        if self._retention == Retention():
            return {}
        return await self._store.prune(self._retention, now=time.time())

    async def cancel_waiting(self, target_id: str, *, tenant: str) -> int:
        """Close the open questions of a call or run that is cancelled."""
        closed = await self._store.pending.cancel(target_id, tenant=tenant)
        for action in closed:
            await self._conclude(action)
        return len(closed)

    async def _conclude(self, action: PendingAction) -> None:
        """End a call whose question was closed without an answer."""
        end = self._desk.endings.expired if action.status == "expired" else self._desk.endings.cancelled
        await self._close(action, outcome_to_dict(end(action)), action.status)

    async def _close(self, action: PendingAction, kept: Mapping[str, Any], status: PendingStatus) -> None:
        await self._store.pending.settle(action.id, status, outcome=kept)
        if action.idempotency_key is not None:
            await self._store.keys.settle(action.asked_by, action.idempotency_key, kept)

    async def _end(self, run: RunSummary) -> None:
        """Tell the ends that a dead process did not come to tell, of a call and of those inside it."""
        for call in await self._store.events.open_calls(run.run_id, tenant=run.tenant):
            await self._end_call(call)

    async def _end_call(self, call: RunSummary) -> None:
        """What the journal has is what happened; where it has an intent, somebody is at it or will be asked."""
        entry = await self._store.journal.find(call.call_id, "")
        asked = await self._store.pending.list(tenant=call.tenant, status=None, call_id=call.call_id, limit=1)
        if entry is not None:
            if entry.done:
                self._desk.endings.recorded(call, entry.result)
        elif asked and asked[0].status == "open":
            if call.status == "running":  # nobody was told
                self._desk.endings.paused(asked[0], asked[0])
        elif not asked or asked[0].status != "claimed":  # else a living process is at it
            self._desk.endings.interrupted(call)

    async def _ask_about(self, entry: JournalEntry) -> None:
        """A call that began and never ended: an unsafe one goes to a person, the others are closed as failed.

        One that a person let go on is taken back instead, for nobody waits to call again: its answer, which is still
        claimed, is then carried out once more.
        """
        if await self._store.pending.list(tenant=entry.principal.tenant, call_id=entry.call_id, limit=1):
            await self._store.journal.forget(entry.call_id, "")  # it had paused; the question stands
            return
        if _is_doubtful(entry):
            await self._make_unknown(entry)
            return
        if entry.call.get("answers"):
            await self._store.journal.forget(entry.call_id, "")
            return
        outcome = self._desk.endings.interrupted(entry)
        await self._store.journal.finish(entry.call_id, "", outcome_to_dict(outcome))
        if entry.call.get("idempotency_key"):
            await self._store.keys.release(entry.principal, entry.call["idempotency_key"], call_id=entry.call_id)

    async def _make_unknown(self, entry: JournalEntry) -> None:
        now = time.time()
        question, bound = await self._router.unknown_question(entry.tool_name, entry.call)
        question = _naming(question, [inner for inner in await self._store.journal.inner(entry.call_id) if inner.done])
        action = PendingAction(
            id=self._router.new_id("ask"),
            question=question,
            call_id=entry.call_id,
            run_id=entry.run_id,
            tool_name=entry.tool_name,
            arguments=entry.call["arguments"],
            arguments_hash=bound,
            asked_by=entry.principal,
            created_at=now,
            expires_at=now + _UNKNOWN_TTL_S,
            answerers=question.answerers,
            answers={key: Answer(**kept) for key, kept in entry.call.get("answers", {}).items()},
            started=True,
            idempotency_key=entry.call.get("idempotency_key"),
            correlation_id=entry.call.get("correlation_id", ""),
            task_id=entry.call.get("task_id", ""),
            timeout_s=entry.call.get("timeout_s"),
            context=entry.call.get("context"),
        )
        await self._store.pending.add(action)
        await self._store.journal.forget(entry.call_id, "")
        self._desk.endings.paused(entry, action)
        if action.idempotency_key is not None:
            await self._store.keys.settle(action.asked_by, action.idempotency_key, _paused(entry, action))

    async def _continue(self, action: PendingAction) -> None:
        """A question was taken but its process died: go on where the journal says it stopped."""
        if action.status != "claimed":
            await self._conclude(action)
            return
        entry = await self._store.journal.find(action.call_id, "")
        if entry is not None and entry.done:
            await self._close(action, entry.result, "answered")
            return
        waiting = await self._store.pending.list(tenant=action.asked_by.tenant, call_id=action.call_id, limit=1)
        if waiting:  # it went on to another question, an unknown outcome among them
            await self._close(action, _paused(action, waiting[0]), "answered")
            return
        if action.tool_name.partition(".")[0] in self._absent:
            return
        if self._router.arrivals.is_connecting(action.tool_name):
            self._late.append(action)
            return
        if not self._desk.can_run(action):  # it never began; where the tool is, the answer can be given again
            self._desk.endings.paused(action, action)  # first, so that the log shows why it is open
            await self._store.pending.settle(action.id, "open", reopen=True)
            return
        try:
            await self._desk.carry_out(action, recovered=True)
        except StoreError as error:  # it may have run, so it stays claimed until the journal can be asked again
            _log.warning("what came of %s could not be kept: %s", action.call_id, error)


def _naming(question: Question, done: Collection[JournalEntry]) -> Question:
    """The question what became of a call, with the calls inside it that are done and will not be repeated."""
    if not done:
        return question
    counts = Counter(entry.tool_name for entry in done)
    names = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())
    told = [{"call_id": entry.call_id, "tool_name": entry.tool_name} for entry in done]
    return replace(
        question,
        prompt=f"{question.prompt} Done inside it, and not repeated if it runs again: {names}.",
        payload={**question.payload, "done": told},
    )


def _is_doubtful(entry: JournalEntry) -> bool:
    """Whether calling again could repeat an effect.

    The key of a call that nobody gave one died with it, unless a question keeps the call.
    """
    call = entry.call
    return call.get("replay") == "unsafe" or (
        call.get("replay") == "keyed" and not (call.get("idempotency_key") or call.get("answers"))
    )


def _paused(of: JournalEntry | PendingAction, action: PendingAction) -> dict[str, Any]:
    return outcome_to_dict(Paused(of.call_id, of.run_id, of.tool_name, action.id, action.question))
