"""Pending actions: list, show and answer questions, and run the answered call once."""

from __future__ import annotations

import asyncio
import logging
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from toolpost.contracts.calls import RequestedCall
from toolpost.contracts.errors import PendingNotFoundError, StoreError, TakenOverError, ToolConflictError, ToolError
from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.contracts.jobs import ANSWER_PRIORITY, Job
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, Decision, PendingAction, PendingStatus
from toolpost.runtime.answer_checks import (
    WITHOUT_TOOL,
    AnswerChecks,
    check_changes,
    check_escalation,
    is_operator,
    operator_required,
    patched_arguments,
)
from toolpost.runtime.given_artifacts import give_artifacts
from toolpost.runtime.nested_actions import ended_inside, has_ended, outer_of
from toolpost.runtime.outcome_reporter import OutcomeReporter
from toolpost.runtime.pending_card import (
    approval_card,
    changed_action,
    has_own_preview,
    visible_action,
    visible_pause,
    with_preview,
)
from toolpost.runtime.persistence import dump_outcome, load_context, load_outcome, paused_outcome

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.storage import Store
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.attempt import InFlightCalls
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.explanation import Explainer
    from toolpost.schema.json_patch import JsonChange

_log = logging.getLogger("toolpost.runtime")
_OUTER_WAIT_S = 60.0
_MOST_WAITING = 1000  # open pending actions that are searched for those that wait for a definition
_FIRST_LOOK_S, _LAST_LOOK_S = 0.1, 10.0
_ASKED = (EventCode.APPROVAL_REQUESTED, EventCode.CALL_PAUSED, EventCode.APPROVAL_ESCALATED)


class PendingActions:
    """List and answer pending actions. `by` is the identity of a person, which an agent never has."""

    def __init__(
        self,
        router: CallResumer,
        registry: ToolRegistry,
        *,
        store: Store,
        emitter: EventEmitter,
        redactor: Redactor,
        background: BackgroundTasks,
        clock: Clock,
    ) -> None:
        self._router = router
        self._registry = registry
        self._store = store
        self._redactor = redactor
        self._background = background
        self._clock = clock
        self.run_job: Callable[[str], Awaitable[None]] | None = None  # if this process runs continuations itself
        self._checks = AnswerChecks(registry, store, redactor, clock)
        self.reporter = OutcomeReporter(emitter, redactor, registry)

    async def list(
        self,
        *,
        by: str,
        status: PendingStatus | None = "open",
        user: str | None = None,
        before: str | None = None,
        limit: int = 100,
        all_tenants: bool = False,
    ) -> list[PendingAction]:
        """Return the pending actions of this person's tenant, newest first, without calls that wait for nested calls.

        With `user`, return those of that user's calls. `before` is the id of the last action of the previous page; a
        page with fewer than `limit` is the last one. `all_tenants` is for the operator.
        """
        tenant, actions = None if all_tenants else Principal.parse(by).tenant, list[PendingAction]()
        while (missing := limit - len(actions)) > 0:
            page = await self._store.pending.list(tenant=tenant, user=user, status=status, before=before, limit=missing)
            actions += [visible_action(by, action) for action in page if action.question.kind != "call"]
            if len(page) < missing:
                break
            before = page[-1].id
        return actions

    async def get(self, pending_id: str, *, by: str) -> PendingAction:
        """Return one pending action; PendingNotFoundError if there is none for this person.

        The outcome of a nested call is that of the outermost call that waited for it.
        """
        action = await self._store.pending.get(pending_id, tenant=Principal.parse(by).tenant)
        if action is None:
            raise PendingNotFoundError(pending_id)
        seen = action
        while has_ended(seen) and (outer := await outer_of(self._store.pending, seen)) is not None:
            seen = outer
        return visible_action(by, replace(action, outcome=seen.outcome))

    async def outermost(self, action: PendingAction) -> PendingAction:
        """Return the action of the outermost call that waits, or waited, for the call of this one, or this action.

        That is the call that the caller requested.
        """
        while (outer := await outer_of(self._store.pending, action)) is not None:
            action = outer
        return action

    def card(self, action: PendingAction, *, operator: bool | None = None) -> dict[str, Any]:
        """Return a pending action as JSON data for all surfaces, with secrets masked and the possible answers.

        With `operator`, the answers include the approval of a changed definition; by default for users of the local
        tenant.
        """
        return approval_card(action, self._registry, self._redactor, operator=operator)

    async def preview(self, pending_id: str, changes: Sequence[Mapping[str, Any]], *, by: str) -> dict[str, Any]:
        """Return the masked arguments and the preview of a call as they would be with changes, without running it.

        If the tool computed the preview of the call, it also computes that of the changed call.
        """
        action = await self.get(pending_id, by=by)
        self._checks.refuse_missing(action)
        changed = changed_action(action, self._registry, changes)
        if has_own_preview(action):
            explained = await self._router.explainer.explain(
                action.tool_name, changed.arguments, principal=action.asked_by
            )
            if explained.question is not None:
                changed = with_preview(changed, explained.question.payload)
        card = approval_card(changed, self._registry, self._redactor)
        return {name: card[name] for name in ("arguments", "masked", "preview")}

    async def describe_event(
        self, event: StoredEvent, *, by: str, show: Callable[[PendingAction], dict[str, Any]] | None = None
    ) -> dict[str, Any]:
        """Return an event as JSON data; the event of a question contains its pending action, as `by` may see it.

        `show` returns the action as JSON data, by default like `card`.
        """
        data = {**event.to_dict(), "user": event.user}
        pending_id = event.payload.get("pending_id")
        if event.code in _ASKED and isinstance(pending_id, str):
            with suppress(PendingNotFoundError):  # deleted since
                data["card"] = (show or self.card)(await self.get(pending_id, by=by))
        return data

    async def outcome(self, pending_id: str, *, by: str, wait_s: float) -> Outcome:
        """Return the outcome of a pending call, or its open question.

        Wait at most `wait_s` for the answer and the call. If the call has another question, return it immediately.
        """
        deadline, is_another, look_s, state = self._clock.monotonic() + wait_s, False, _FIRST_LOOK_S, None
        while True:
            action = await self.get(pending_id, by=by)
            outermost = await self.outermost(action)
            # The parent call may have failed, or have another question, without waiting for this one.
            data = action.outcome or outermost.outcome
            if data is not None:
                outcome = load_outcome(data)
                if not isinstance(outcome, Paused):
                    return outcome
                pending_id, is_another = outcome.pending_id, True
                continue
            is_late = self._clock.monotonic() >= deadline
            # Another question that is already answered is not open: the call resumes.
            if is_late or (is_another and action.status == "open"):
                paused = await self._pause_of(action, by=by)
                if is_late or paused.pending_id == action.id:  # else the caller would not wait at all
                    return paused
            # Checked periodically in any case: another parent call may pause concurrently.
            left_s = min(look_s, deadline - self._clock.monotonic())
            before = state
            state = await self._store.pending.wait([action.id, outermost.id], before, timeout_s=max(0.0, left_s))
            look_s = min(look_s * 2, _LAST_LOOK_S) if state is before else _FIRST_LOOK_S

    async def _pause_of(self, action: PendingAction, *, by: str) -> Paused:
        """Return the pause of the outermost call that waits for this action, with its question first."""
        paused = await paused_outcome(self._store.pending, await self.outermost(action))
        paused = visible_pause(by, paused, asked_by=action.asked_by)
        if not paused.inside:
            return paused
        inside = tuple(sorted(paused.inside, key=lambda asked: asked.pending_id != action.id))
        return replace(paused, pending_id=inside[0].pending_id, question=inside[0].question, inside=inside)

    async def approve(self, pending_id: str, *, by: str, changes: Sequence[Mapping[str, Any]] | None = None) -> Outcome:
        """Approve a call, with changes of its exact arguments (JSON Patch) if given, and return its outcome."""
        return await self.answer(pending_id, by=by, decision="approve", changes=changes)

    def accept_definition(
        self, tool_name: str, *, by: str, expected: str | None = None, operator: bool | None = None
    ) -> None:
        """Pin the changed definition of a tool, and continue the calls of all tenants that wait for it.

        `expected` is the hash of the definition that the operator has seen. Without `operator`, users of the local
        tenant are the operator. Raise ToolPermissionError for others, and ToolConflictError for another definition.
        """
        if not is_operator(by, operator=operator):
            raise operator_required(by, tool_name)
        hold = self._registry.find(tool_name).unaccepted
        if hold is None or hold.is_settled():
            return
        if expected is not None and hold.after.hash != expected:
            msg = f"{tool_name!r} has changed again since you viewed it; review its definition again"
            raise ToolConflictError(msg, tool_name=tool_name, code="tool_changed")
        hold.accept()
        _log.info("%s accepted the changed definition of %s", by, tool_name)
        self._background.start(self.continue_accepted(by=by))

    async def continue_accepted(self, actions: Iterable[PendingAction] | None = None, *, by: str = "operator") -> None:
        """Run the calls again that wait for a definition which the operator has accepted.

        Approvals of their tenants are still required. A process without the tool leaves its calls to another process.
        """
        found = await self._store.pending.list(limit=_MOST_WAITING) if actions is None else actions
        for action in found:
            if not self._is_accepted(action):
                continue
            answer = Answer(decision="approve", state=action.question.state)
            claimed = await self._store.pending.claim(action.id, answer, by=by, at=self._clock.wall())
            if claimed is not None:
                self._background.start(self.carry_out(claimed))

    def _is_accepted(self, action: PendingAction) -> bool:
        """Return whether an open action waits for a definition that is accepted now."""
        if not action.question.needs_operator or action.status != "open" or action.expires_at <= self._clock.wall():
            return False
        if not self._registry.has(action.tool_name):
            return False
        hold = self._registry.find(action.tool_name).unaccepted
        return hold is None or hold.is_settled()

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Deny a call permanently."""
        return await self.answer(pending_id, by=by, decision="deny", reason=reason)

    async def escalate(self, pending_id: str, *, by: str, to: str, note: str = "") -> PendingAction:
        """Pass an open action on to a person, or to a pattern of `tenant:user`, who may answer it; return the action.

        The action stays open, and the rules about who may answer it do not change.
        """
        action = await self.get(pending_id, by=by)
        if action.status != "open" or action.expires_at <= self._clock.wall():
            raise await self._checks.too_late(pending_id)
        check_escalation(action, to)
        passed = {"by": by, "to": to, "note": note, "at": self._clock.wall()}
        kept = await self._store.pending.get(pending_id, tenant=action.asked_by.tenant)
        question = action.question if kept is None else kept.question
        question = replace(question, passed_on=(*question.passed_on, passed))
        await self._store.pending.renew(pending_id, question)
        self.reporter.emit_escalated(action, by=by, to=to, note=note)
        return replace(action, question=replace(action.question, passed_on=question.passed_on))

    async def answer(
        self,
        pending_id: str,
        value: Any = None,
        *,
        by: str,
        decision: Decision = "answer",
        reason: str = "",
        changes: Sequence[Mapping[str, Any]] | None = None,
        responses: Mapping[str, Any] | None = None,
        context: ToolContext | None = None,
        operator: bool | None = None,
        on_claimed: Callable[[], None] | None = None,
    ) -> Outcome:
        """Answer a question, run the waiting call, in `context` if given, and return its outcome.

        `changes` of an approval are operations of JSON Patch on the exact arguments. `responses` are those of an MCP
        client to the question's `requests`, instead of a value. Only the `operator` can approve a changed definition;
        by default a user of the local tenant is the operator. `on_claimed` is called once the answer is accepted and
        stored, before the call runs.
        """
        self._router.inflight.check_loop()  # before the action is claimed
        action = await self.get(pending_id, by=by)
        if decision not in WITHOUT_TOOL:
            await self._router.await_tool(action.tool_name)
        self._checks.check(action, by, decision)
        if decision not in WITHOUT_TOOL:
            await self._checks.refuse_after_failure(action)
        if responses is None:
            self._checks.check_value(action, value, decision)
        if decision == "approve":
            if action.status != "open" or action.expires_at <= self._clock.wall():
                raise await self._checks.too_late(pending_id)  # before a definition is accepted
            if changes is not None:
                check_changes(action, changes)
            self._checks.accept_definition(action, by, operator=operator)
            value = self._checks.grant(action, changes)
            if changes is not None and (given := await self._give_artifacts(action, changes, by)):
                changes = [*changes, *given]
                value = self._checks.grant(action, changes)
        elif decision == "rerun":
            self._checks.refuse_changed(action)
        answer = Answer(
            decision=decision,
            value=value,
            reason=reason,
            changes=changes,
            state=action.question.state,
            responses=responses,
        )
        then = None if context is not None or decision in WITHOUT_TOOL else await self._continuation(action)
        claiming = self._claim(pending_id, answer, by, context, then, on_claimed)
        outcome = await asyncio.shield(self._background.start(claiming))
        if not isinstance(outcome, Paused):
            return outcome
        paused = await self._pause_of(await self.get(outcome.pending_id, by=by), by=by)
        return replace(paused, duration_ms=outcome.duration_ms)

    async def _give_artifacts(
        self, action: PendingAction, changes: Sequence[JsonChange], by: str
    ) -> Sequence[JsonChange]:
        """Let the call of another user read the artifacts of the answerer; events record the original owner."""
        arguments = patched_arguments(action, changes)
        given, copies = await give_artifacts(
            arguments, action, self._store.artifacts, by=Principal.parse(by), at=self._clock.wall()
        )
        for copy in copies:
            self.reporter.emit_given(action, copy, by=by)
        return given

    async def _claim(
        self,
        pending_id: str,
        answer: Answer,
        by: str,
        context: ToolContext | None,
        then: Job | None,
        on_claimed: Callable[[], None] | None,
    ) -> Outcome:
        """Claim the action and carry out the answer, even if the answerer does not wait for the outcome."""
        claimed = await self._store.pending.claim(pending_id, answer, by=by, at=self._clock.wall(), then=then)
        if claimed is None:
            raise await self._checks.too_late(pending_id)
        if on_claimed is not None:
            on_claimed()
        if claimed.question.needs_operator:
            self._background.start(self.continue_accepted(by=by))  # other calls may wait for the same definition
        return await (self.carry_out(claimed, context) if then is None else self._await_continuation(claimed, by))

    async def _continuation(self, action: PendingAction) -> Job | None:
        """Return the job that continues a background run with an answer; None for other runs."""
        begun = await self._store.jobs.of_run(action.run_id, tenant=action.asked_by.tenant)
        if begun is None:
            return None
        changes: dict[str, Any] = {"kind": "answer", "body": {"pending_id": action.id}, "priority": ANSWER_PRIORITY}
        return replace(begun, **changes, created_at=self._clock.wall(), outcome=None)

    async def _await_continuation(self, action: PendingAction, by: str) -> Outcome:
        """Wait for the job that continues a run, or run it, if this process does."""
        tenant = action.asked_by.tenant
        job = await self._store.jobs.of_run(action.run_id, tenant=tenant)
        if self.run_job is not None and job is not None:
            await self.run_job(job.id)
        return await self.outcome(action.id, by=by, wait_s=action.timeout_s or _OUTER_WAIT_S)

    async def return_to_person(self, action: PendingAction) -> None:
        """Reopen a claimed action whose call cannot begin here."""
        # The event comes first, to show the reason in the log.
        self.reporter.emit_pause(action, action)
        await self._write(partial(self._store.pending.settle, action.id, "open", reopen=True))

    async def carry_out(
        self, action: PendingAction, context: ToolContext | None = None, *, recovered: bool = False
    ) -> Outcome:
        """Carry out the answer of a claimed action and store the outcome; the stored context is the default.

        With `recovered`, the process that claimed the action has terminated. If the call could not begin, because the
        store could not be written, the question is reopened.
        """
        answer = action.answer
        assert answer is not None  # noqa: S101 - a claimed action has its answer
        self.reporter.emit_answer(action, answer, recovered=recovered)
        status: PendingStatus = "denied" if answer.decision == "deny" else "answered"
        reported = self._reported(action, answer)
        outcome: Outcome
        if reported is not None:
            outcome = reported
            await self._write(partial(self.end, action, reported, status))
        else:
            try:
                outcome = await self._resume(action, answer, context or load_context(action.context))
            except TakenOverError as error:
                return Failed(action.call_id, action.run_id, action.tool_name, error)
            except StoreError as error:
                return await self._reopen(action, error)
            await self._write(partial(self.settle, action, dump_outcome(outcome), status))
        ended = await ended_inside(self._store.pending, action) if isinstance(outcome, Paused) else action
        return outcome if ended is None else await self.resume_outer(ended, context) or outcome

    async def resume_outer(self, action: PendingAction, context: ToolContext | None = None) -> Outcome | None:
        """Run the parent call that waits for the ended call of this action, and return its outcome; None without one.

        It runs in the context of the answer, if there is one: the same caller made both calls. If this process does not
        have its tool, it resumes in one that does.
        """
        outer = await outer_of(self._store.pending, action, status="open")
        if outer is None:
            return None
        with suppress(ToolError):
            await self._router.await_tool(outer.tool_name)
        if not self._registry.has(outer.tool_name):
            return None
        by, answer = action.answered_by or str(action.asked_by), Answer(decision="answer", state=outer.question.state)
        claimed = await self._store.pending.claim(outer.id, answer, by=by, at=self._clock.wall())
        if claimed is None:  # another process was faster
            return await self.outcome(outer.id, by=str(outer.asked_by), wait_s=outer.timeout_s or _OUTER_WAIT_S)
        try:
            self._checks.refuse_changed(claimed)
        except ToolConflictError as changed:  # the steps so far belong to another definition
            outcome = self.reporter.refuse(claimed, changed)
            await self._write(partial(self.end, claimed, outcome, "answered"))
            return await self.resume_outer(claimed, context) or outcome
        return await self.carry_out(claimed, context)

    async def _reopen(self, action: PendingAction, error: StoreError) -> Failed:
        """Reopen an action after an answer that ran nothing; the event comes first, to show the reason in the log."""
        self.reporter.emit_pause(action, action)
        await self._write(partial(self._store.pending.settle, action.id, "open", reopen=True))
        message = f"{error.message}; nothing was run, and the question is open again: answer it again"
        failed = StoreError(message, tool_name=action.tool_name, cause=error)
        return Failed(action.call_id, action.run_id, action.tool_name, failed)

    async def end(self, action: PendingAction, outcome: Completed | Failed, status: PendingStatus) -> None:
        """Store the outcome of a call that ended without running, and then emit its end."""
        await self.settle(action, dump_outcome(outcome), status)
        self.reporter.emit_end(action, outcome)

    async def settle(self, action: PendingAction, data: Mapping[str, Any], status: PendingStatus) -> None:
        """Store the outcome of an action, also under its idempotency key."""
        await self._store.pending.settle(action.id, status, outcome=data)
        if action.idempotency_key is not None:
            await self._store.idempotency.settle(action.asked_by, action.idempotency_key, data)

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write immediately, or in the background when the store can be written again."""
        try:
            await write()
        except TakenOverError as error:
            _log.warning("the outcome of an answer is not recorded: %s", error)
        except StoreError as error:
            _log.warning("the outcome of an answer is not recorded yet: %s", error)
            self._background.retry_write(write)

    def _reported(self, action: PendingAction, answer: Answer) -> Completed | Failed | None:
        """Return the outcome of an answer that runs nothing; None for others."""
        whole_call = action.question.key == "unknown"  # a step of `ctx.once` can also be unknown
        match answer.decision:
            case "deny" if not (action.question.deliver_denial and self._registry.has(action.tool_name)):
                return self.reporter.deny(action, answer)
            case "happened" if whole_call:
                return self.reporter.confirm(action, answer.value)
            case "not_happened" if whole_call:
                return self.reporter.refute(action)
            case _:
                return None

    async def _resume(self, action: PendingAction, answer: Answer, context: ToolContext | None) -> Outcome:
        """Run the call again from its start with one more answer."""
        return await self._router.resume(
            RequestedCall(
                action.call_id,
                action.run_id,
                action.tool_name,
                patched_arguments(action, answer.changes),
                action.asked_by,
                action.timeout_s,
                action.idempotency_key,
                action.correlation_id,
                action.task_id,
                context,
                {**action.answers, action.question.key: answer},
                action.id,
                action.started,
                same_call=action.same_call,
                unattended=action.unattended,
                owner=action.owner,
            )
        )

    def can_run(self, action: PendingAction) -> bool:
        """Return whether this process has the tool of an answered action, or the answer runs nothing."""
        decision = action.answer.decision if action.answer else None
        return decision in WITHOUT_TOOL or self._registry.has(action.tool_name)


class CallResumer(Protocol):
    """The parts of the router that run an answered call."""

    inflight: InFlightCalls
    explainer: Explainer

    async def await_tool(self, tool_name: str) -> None:
        """Wait for a tool whose source is still connecting."""
        ...

    async def resume(self, request: RequestedCall) -> Outcome:
        """Run a paused call again with one more answer."""
        ...
