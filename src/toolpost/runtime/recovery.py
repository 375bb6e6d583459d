"""Background task that expires pending actions, recovers calls of crashed processes and applies cancel requests."""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from toolpost.contracts.context import inner_call_question
from toolpost.contracts.errors import StoreError, TakenOverError
from toolpost.contracts.outcomes import Paused, outcome_to_dict
from toolpost.contracts.questions import Answer, PendingAction, Question
from toolpost.contracts.storage import JournalEntry, Store
from toolpost.runtime.nested_actions import ended_inside, has_ended
from toolpost.runtime.pauses import inner_calls
from toolpost.runtime.pending import PendingActions
from toolpost.runtime.persistence import paused_outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection

    from toolpost.contracts.events import RunSummary
    from toolpost.runtime.retention import StoredData
    from toolpost.runtime.router import ToolRouter

T = TypeVar("T")
_log = logging.getLogger("toolpost.runtime")
_RETRY_S = 0.2
_SWEEP_S = 5.0
_PRUNE_S = 3600.0
_MOST_OUTER = 1000
_MOST_EVENTS = 1_000_000  # of a run
_UNKNOWN_TTL_S = 365 * 24 * 3600.0


class Recovery:
    """Background task; `sweep`, `prune` and `cancel_waiting` can also be awaited directly.

    Answers for tools of an `absent` source are left to a process that has the source.
    """

    def __init__(
        self,
        router: ToolRouter,
        actions: PendingActions,
        *,
        data: StoredData,
        also: Callable[[PendingActions], Awaitable[None]] | None = None,
        absent: Collection[str] = (),
    ) -> None:
        self._router = router
        self._actions = actions
        self._reporter = actions.reporter
        self._store: Store = router.store
        self._clock = router.clock
        self.data = data
        self._also = also
        self._absent = absent
        self._waiting: list[PendingAction] = []  # for sources that are still connecting
        # Adopted by this process and not handled yet: if the store fails, the next sweep handles them.
        self._unanswered: list[PendingAction] = []
        self._orphans: list[RunSummary] = []
        self._running: list[RunSummary] = []  # orphans with calls of running processes
        self._intents: list[JournalEntry] = []
        self._claims: list[PendingAction] = []
        self._task: asyncio.Task[None] | None = None
        self._sweeping = asyncio.Lock()

    async def start(self) -> None:
        """Recover the calls of earlier processes, then repeat in the background."""
        await self.sweep()
        if self.data.is_pruned_first:  # otherwise there is little to delete, and no program waits for it
            await self.prune()
        self._task = asyncio.get_running_loop().create_task(self._watch())

    async def stop(self) -> None:
        """Stop the background task."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    async def _watch(self) -> None:
        swept = pruned = self._clock.monotonic()
        newest = 0
        while True:
            try:
                left_s = max(0.0, swept + _SWEEP_S - self._clock.monotonic())
                newest = await self._store.cancels.wait(newest, timeout_s=left_s)
                await self._apply_cancels()
                if self._clock.monotonic() - swept >= _SWEEP_S:
                    swept = self._clock.monotonic()
                    await self.sweep()
                if self._clock.monotonic() - pruned >= _PRUNE_S:
                    pruned = self._clock.monotonic()
                    await self.prune()
            except StoreError as error:  # the store may recover; the calls themselves report it
                _log.warning("looking after pending work: %s", error)
                await asyncio.sleep(_RETRY_S)

    async def _apply_cancels(self) -> None:
        if len(self._router.inflight):
            for target, requests in (await self._store.cancels.requested(self._router.inflight.ids())).items():
                for request in requests:
                    self._router.inflight.cancel(target, tenant=request.tenant, before=request.at)

    async def sweep(self) -> None:
        """Expire pending actions and recover the calls of terminated processes; one sweep at a time."""
        async with self._sweeping:
            await self._sweep()

    async def _sweep(self) -> None:
        self._unanswered += await self._store.pending.expire(self._clock.wall())
        await _handle(self._unanswered, self._end_unanswered)
        # First, because events of this process would make it the owner of these runs.
        self._orphans += await self._store.events.adopt_orphans()
        self._intents += await self._store.journal.adopt_orphans()
        # Nested calls first: a parent call may wait for them.
        self._intents.sort(key=lambda intent: intent.call_id.count("."), reverse=True)
        await _handle(self._intents, self._recover_intent)
        self._claims += [*self._waiting, *await self._store.pending.adopt_claims()]
        self._waiting.clear()
        await _handle(self._claims, self._resume_claimed)
        await _handle(self._orphans, self._end_calls)
        self._orphans, self._running = self._running, []
        await self._resume_waiting()
        if self._also is not None:
            await self._also(self._actions)

    async def prune(self) -> dict[str, int]:
        """Delete records beyond their retention, and return how many of each kind."""
        return await self.data.prune()

    async def cancel_waiting(self, target_id: str, *, tenant: str) -> int:
        """Close the open pending actions of a cancelled call or run, and return their number."""
        running = set(self._router.inflight.ids())  # a call that is writing its question emits its end itself
        closed = await self._store.pending.cancel(target_id, tenant=tenant)
        self._unanswered += [action for action in closed if action.call_id not in running]
        await _handle(self._unanswered, self._end_unanswered)
        for action in closed:
            if action.call_id in running:
                await self._actions.settle(action, outcome_to_dict(self._reporter.cancel(action)), action.status)
        return len(closed)

    async def _end_unanswered(self, action: PendingAction) -> None:
        """End a call with a question that was closed without an answer."""
        outcome = (self._reporter.expire if action.status == "expired" else self._reporter.cancel)(action)
        await self._actions.settle(action, outcome_to_dict(outcome), action.status)
        self._reporter.emit_unanswered(action, outcome)
        await self._actions.resume_outer(action)

    async def _resume_waiting(self) -> None:
        """Rerun calls if their definition was accepted elsewhere, or their nested call has ended.

        The process that ended a nested call may have terminated before it resumed the parent call.
        """
        waiting = await self._store.pending.list(limit=_MOST_OUTER)
        await self._actions.continue_accepted(waiting)
        for action in waiting:
            if inner_calls(action) and (ended := await ended_inside(self._store.pending, action)) is not None:
                await self._actions.resume_outer(ended)

    async def _end_calls(self, run: RunSummary) -> None:
        """End the open calls of an adopted run; look again later if a running process is about to end one."""
        calls = await self._store.events.open_calls(run.run_id, tenant=run.tenant)
        ended = [await self._end_call(call, run) for call in calls]
        if not all(ended):
            self._running.append(run)

    async def _end_call(self, call: RunSummary, run: RunSummary) -> bool:
        """Emit the end of a call that a terminated process did not emit, from the journal.

        A call with an open intent is being run, or a person will be asked about it. Return False if a running process
        has written the result, which emits the end next: several processes may run calls of one run.
        """
        entry = await self._store.journal.find(call.call_id, "")
        actions = await self._store.pending.list(tenant=call.tenant, status=None, call_id=call.call_id)
        if await self._has_continued(call, run):
            return True
        waiting = next((action for action in actions if action.status == "open"), None)
        ended = next((action.outcome for action in actions if has_ended(action)), None)
        if entry is not None:
            if entry.done and await self._store.journal.is_alive(entry.owner):
                return False
            if entry.done:
                self._reporter.emit_recorded(call, entry.result)
        elif waiting is not None:
            if call.status == "running":  # the event is missing
                self._reporter.emit_pause(waiting, waiting)
        elif any(action.outcome is None for action in actions):  # a running process carries out the answer
            return True
        elif ended is not None:
            self._reporter.emit_recorded(call, ended)
        else:
            self._reporter.emit_end(call, self._reporter.interrupt(call))
        return True

    async def _has_continued(self, call: RunSummary, run: RunSummary) -> bool:
        """Return whether a call has events since its run was adopted: a running process began or resumed it.

        Call this after its journal entry was read: a process emits an event before it writes a result.
        """
        events = await self._store.events.read(tenant=run.tenant, run_id=run.run_id, limit=_MOST_EVENTS)
        return any(event.call_id == call.call_id and event.seq > run.events for event in events)

    async def _recover_intent(self, entry: JournalEntry) -> None:
        """Recover a call that began and never ended: create a question for an unsafe one, fail the others.

        The intent of an answered call is removed instead, because no caller waits to call again: its answer is still
        claimed and is then carried out again. The same applies to a call that resumes, because its effects are those of
        its nested calls. If such a call was not answered before, it waits for the questions of its nested calls.
        """
        if await self._store.pending.list(tenant=entry.principal.tenant, call_id=entry.call_id, limit=1):
            await self._store.journal.forget(entry.call_id, "")  # it had paused, and its question is open
            return
        resumes, answered = entry.call.get("resumes"), entry.call.get("answers")
        if resumes and not answered and (waiting := await self._waiting_inside(entry)):
            await self._pause(entry, inner_call_question(waiting, reason="outcome_unknown"))
            return
        if _is_unsafe(entry) and not (resumes and answered):
            await self._ask_about_outcome(entry)
            return
        if answered:
            await self._store.journal.forget(entry.call_id, "")
            return
        outcome = self._reporter.interrupt(entry)
        await self._store.journal.finish(entry.call_id, "", outcome_to_dict(outcome))
        if entry.call.get("idempotency_key"):
            await self._store.idempotency.release(entry.principal, entry.call["idempotency_key"], call_id=entry.call_id)
        self._reporter.emit_end(entry, outcome)

    async def _waiting_inside(self, entry: JournalEntry) -> list[Paused]:
        """Return the nested calls of a call that wait for an answer."""
        actions = await self._store.pending.list(tenant=entry.principal.tenant, limit=_MOST_OUTER)
        return [
            await paused_outcome(self._store.pending, one)
            for one in actions
            if one.call_id.rpartition(".")[0] == entry.call_id
        ]

    async def _ask_about_outcome(self, entry: JournalEntry) -> None:
        end = "was open in the backup that was restored" if entry.call.get("restored") else "was interrupted"
        prompt = f"{entry.tool_name} {end}; it may or may not have happened. What is the case?"
        question = Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown")
        done = [inner for inner in await self._store.journal.inner(entry.call_id) if inner.done]
        await self._pause(entry, _with_inner_calls(question, done))

    async def _pause(self, entry: JournalEntry, asked: Question) -> None:
        """Store an interrupted call with its question, instead of its intent."""
        now = self._clock.wall()
        question, bound = await self._router.explainer.describe_interrupted(asked, entry.tool_name, entry.call)
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
            answers={key: Answer(**data) for key, data in entry.call.get("answers", {}).items()},
            started=True,
            idempotency_key=entry.call.get("idempotency_key"),
            correlation_id=entry.call.get("correlation_id", ""),
            task_id=entry.call.get("task_id", ""),
            timeout_s=entry.call.get("timeout_s"),
            context=entry.call.get("context"),
            owner=entry.owner,
        )
        await self._store.pending.add(action)
        self._reporter.emit_pause(entry, action)
        if action.idempotency_key is not None:
            paused = outcome_to_dict(await paused_outcome(self._store.pending, action))
            await self._store.idempotency.settle(action.asked_by, action.idempotency_key, paused)

    async def _resume_claimed(self, action: PendingAction) -> None:
        """Resume a claimed action after its process has terminated, from its state in the journal."""
        if action.status != "claimed":
            await self._end_unanswered(action)
            return
        entry = await self._store.journal.find(action.call_id, "")
        if entry is not None and entry.done:
            await self._actions.settle(action, entry.result, "answered")
            return
        if await self._settle_by_later(action):
            return
        if action.tool_name.partition(".")[0] in self._absent:
            return
        if self._router.sources.is_connecting(action.tool_name):
            self._waiting.append(action)
            return
        if not self._actions.can_run(action):  # it never began; a process with the tool can take the answer again
            await self._actions.return_to_person(action)
            return
        if action.question.kind == "restart" or self._router.resumes(action.tool_name):
            self._router.background.start(self._carry_out(action))  # it may take long, and the others must not wait
        else:
            await self._carry_out(action)

    async def _settle_by_later(self, action: PendingAction) -> bool:
        """Settle a claimed action if there is a later question of its call, or about it; return whether there is.

        The answer to the later question decides, also if it was given before the process that claimed this action had
        settled it: the call may have happened.
        """
        asked = await self._store.pending.list(tenant=action.asked_by.tenant, status=None, call_id=action.call_id)
        unanswered = action.answer is None  # claimed by the restore of a backup: the unknown outcome decides
        later = [one for one in asked if one.id != action.id and (unanswered or action.question.key in one.answers)]
        waiting = next((one for one in later if one.status == "open"), None)
        ended = next((one.outcome for one in later if has_ended(one)), None)
        if waiting is not None:
            paused = outcome_to_dict(await paused_outcome(self._store.pending, waiting))
            await self._actions.settle(action, paused, "answered")
        elif ended is not None:
            await self._actions.settle(action, ended, "answered")
        elif later:  # its answer is being carried out
            self._waiting.append(action)
        return bool(later)

    async def _carry_out(self, action: PendingAction) -> None:
        try:
            await self._actions.carry_out(action, recovered=True)
        except StoreError as error:  # it may have run, so it stays claimed until the journal can be read
            _log.warning("the outcome of %s could not be stored: %s", action.call_id, error)


async def _handle(adopted: list[T], handle: Callable[[T], Awaitable[None]]) -> None:
    """Handle adopted records, and remove them from the list; one that fails stays, unless others have adopted it."""
    while adopted:
        record = adopted.pop(0)
        try:
            await handle(record)
        except TakenOverError as error:
            _log.warning("%s", error)
        except BaseException:
            adopted.insert(0, record)
            raise


def _with_inner_calls(question: Question, done: Collection[JournalEntry]) -> Question:
    """Add the nested calls that are done, and will not be repeated, to the question about an unknown outcome."""
    if not done:
        return question
    counts = Counter(entry.tool_name for entry in done)
    names = ", ".join(name if count == 1 else f"{name} ({count} times)" for name, count in counts.items())
    calls = [{"call_id": entry.call_id, "tool_name": entry.tool_name} for entry in done]
    return replace(
        question,
        prompt=f"{question.prompt} Its nested calls that are done, and are not repeated if it runs again: {names}.",
        payload={**question.payload, "done": calls},
    )


def _is_unsafe(entry: JournalEntry) -> bool:
    """Return whether another call could repeat an effect.

    A keyed tool needs the same key again: a generated key is lost, unless a pending action contains the call.
    """
    call = entry.call
    return call.get("replay") == "unsafe" or (
        call.get("replay") == "keyed" and not (call.get("idempotency_key") or call.get("answers"))
    )
