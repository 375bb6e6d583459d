"""Pending actions: pause a call for a person, list, draw and answer questions, and run the answered call once."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from toolpost.catalog.lock import DEFINITION
from toolpost.contracts.calls import RequestedCall, ValidatedCall
from toolpost.contracts.errors import (
    PendingNotFoundError,
    StoreError,
    ToolApprovalDenied,
    ToolCancelledError,
    ToolConflictError,
    ToolError,
    ToolPermissionError,
    ToolValidationError,
)
from toolpost.contracts.events import CallRef, EventCode, RunSummary, StoredEvent
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.contracts.principal import LOCAL_TENANT, Principal
from toolpost.contracts.questions import DECISIONS, Answer, Decision, PendingAction, PendingStatus, Question
from toolpost.contracts.sources import HoldingSource
from toolpost.contracts.storage import ArtifactRef, JournalEntry, Store
from toolpost.policy.approvals import (
    answer_refusal,
    arguments_summary,
    call_hash,
    masked_paths,
    refuse_masks,
    same_call_hash,
    target_summary,
    tool_hash,
)
from toolpost.policy.redaction import LONGEST_MESSAGE, Redactor
from toolpost.runtime.given_artifacts import give_artifacts
from toolpost.runtime.persistence import (
    dump_context,
    dump_outcome,
    interrupted_error,
    load_context,
    load_outcome,
    paused_outcome,
    recorded_outcome,
)
from toolpost.runtime.results import summary_of
from toolpost.schema.json_patch import PATCH_SCHEMA, JsonChange, apply_patch
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.context import ToolContext
    from toolpost.policy.approvals import Approvals, CalledTool
    from toolpost.runtime.attempt import Attempt, IdMaker, InFlightCalls
    from toolpost.runtime.concurrency import BackgroundTasks
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.tool_runtime import ToolRuntime

_log = logging.getLogger("toolpost.runtime")
_PRIVATE = frozenset({"auth_url", "state"})  # of a consent's payload
_WITHOUT_TOOL = frozenset({"deny", "happened", "not_happened"})  # answers that run nothing
_LONGEST_PREVIEW = 8000
_UNKNOWN_RESULT = "It happened, as a person reported; what it returned is not known."
_BEFORE_ANEW = {"approval": "deny it and ", "unknown": "say whether it happened and "}
_OUTER_WAIT_S = 60.0
_MOST_WAITING = 1000  # pending actions that are looked through for those that wait for a definition
_POLL_S = 0.1  # another process may answer
_NEVER_SAME = frozenset({"restart", "unknown"})  # no question, or one about an earlier attempt
_DECIDED = frozenset({"approval", "unknown"})  # the other kinds ask for what only the caller can give
_ASKED = (EventCode.APPROVAL_REQUESTED, EventCode.CALL_PAUSED)
_ANSWER_CODES = {"approve": EventCode.APPROVAL_GRANTED, "deny": EventCode.APPROVAL_DENIED}
_REASON: dict[str, Any] = {"type": "string", "description": "Why not; the caller is told"}
_RESULT: dict[str, Any] = {"description": "What the call returned, as far as it is known"}
_DIFF = ("--- ", "diff ")
# Kinds of targets whose one line shows what the call sends or runs.
_TARGET_PREVIEWS = {"http": "http_request", "webhook": "http_request", "command": "command"}


class CallResumer(Protocol):
    """The parts of the router that an answer needs."""

    inflight: InFlightCalls

    async def await_tool(self, tool_name: str) -> None:
        """Wait for a tool whose source is still connecting."""
        ...

    async def resume(self, request: RequestedCall) -> Outcome:
        """Run a paused call again with one more answer."""
        ...


class PendingActions:
    """List and answer pending actions. `by` is a person's identity, which no agent holds."""

    def __init__(
        self,
        router: CallResumer,
        registry: ToolRegistry,
        *,
        store: Store,
        emitter: EventEmitter,
        redactor: Redactor,
        background: BackgroundTasks,
    ) -> None:
        self._router = router
        self._registry = registry
        self._store = store
        self._redactor = redactor
        self._background = background
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
        """Return the pending actions of this person's tenant, newest first; not calls that wait for one inside them.

        With `user` they are those of that user's calls. `before` is the id of the last one of the page before; a page
        with less than `limit` is the last one. `all_tenants` is for the operator.
        """
        tenant, actions = None if all_tenants else Principal.parse(by).tenant, list[PendingAction]()
        while (missing := limit - len(actions)) > 0:
            page = await self._store.pending.list(tenant=tenant, user=user, status=status, before=before, limit=missing)
            actions += [_visible_to(by, action) for action in page if action.question.kind != "call"]
            if len(page) < missing:
                break
            before = page[-1].id
        return actions

    async def get(self, pending_id: str, *, by: str) -> PendingAction:
        """Return one pending action; PendingNotFoundError when there is none for this person.

        The outcome of a call inside another is that of the outermost one that waited for it.
        """
        action = await self._store.pending.get(pending_id, tenant=Principal.parse(by).tenant)
        if action is None:
            raise PendingNotFoundError(pending_id)
        seen = action
        while _has_ended(seen) and (outer := await self._outer_of(seen)) is not None:
            seen = outer
        return _visible_to(by, replace(action, outcome=seen.outcome))

    async def outermost(self, action: PendingAction) -> PendingAction:
        """Return the action of the outermost call that waits, or waited, for the call of this one; itself without one.

        That call is the one that was asked for.
        """
        while (outer := await self._outer_of(action)) is not None:
            action = outer
        return action

    async def _outer_of(self, action: PendingAction, *, status: PendingStatus | None = None) -> PendingAction | None:
        """Return the newest action of the call that waits, or waited, for the call of this action."""
        outer_id = action.call_id.rpartition(".")[0]
        if not outer_id:
            return None
        actions = await self._store.pending.list(tenant=action.asked_by.tenant, status=status, call_id=outer_id)
        return next((one for one in actions if action.call_id in inner_calls(one)), None)

    def card(self, action: PendingAction, *, operator: bool | None = None) -> dict[str, Any]:
        """Return a pending action as every surface shows it, with secrets masked and the possible answers.

        `operator` says whether it is shown to the operator, who alone is offered to approve a changed definition; by
        default a user of the local tenant is.
        """
        return approval_card(action, self._registry, self._redactor, operator=operator)

    async def describe_event(self, event: StoredEvent, *, by: str) -> dict[str, Any]:
        """Return an event as JSON data; that a person is asked comes with the card, as `by` may see it."""
        data = {**event.to_dict(), "user": event.user}
        pending_id = event.payload.get("pending_id")
        if event.code in _ASKED and isinstance(pending_id, str):
            with suppress(PendingNotFoundError):  # pruned meanwhile
                data["card"] = self.card(await self.get(pending_id, by=by))
        return data

    async def outcome(self, pending_id: str, *, by: str, wait_s: float) -> Outcome:
        """Return what came of a pending call, or its open question.

        This waits at most `wait_s` for a person and the call; where the call asks something else, that is returned at
        once.
        """
        deadline, is_another = time.monotonic() + wait_s, False
        while True:
            action = await self.get(pending_id, by=by)
            # The call around it may have failed, or gone on to another question, without waiting for this one.
            data = action.outcome or (await self.outermost(action)).outcome
            if data is not None:
                outcome = load_outcome(data)
                if not isinstance(outcome, Paused):
                    return outcome
                pending_id, is_another = outcome.pending_id, True
                continue
            is_late = time.monotonic() >= deadline
            # Another question that was answered already is none any more: the call goes on.
            if is_late or (is_another and action.status == "open"):
                paused = await self._pause_of(action, by=by)
                if is_late or paused.pending_id == action.id:  # else whoever waits for it would not wait at all
                    return paused
            await asyncio.sleep(_POLL_S)

    async def _pause_of(self, action: PendingAction, *, by: str) -> Paused:
        """Return the pause of the outermost call that waits for the call of this action, whose question comes first."""
        paused = await paused_outcome(self._store.pending, await self.outermost(action))
        paused = _pause_visible_to(by, paused, asked_by=action.asked_by)
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

        `expected` is the hash of the definition that the operator has seen. Without `operator`, a user of the local
        tenant counts as the operator. ToolPermissionError for others; ToolConflictError when the definition is another.
        """
        if not _is_operator(by, operator=operator):
            raise _operator_required(by, tool_name)
        hold = self._registry.find(tool_name).unaccepted
        if hold is None or hold.is_settled():
            return
        if expected is not None and hold.after.hash != expected:
            msg = f"{tool_name!r} has changed again since you looked at it; look at its definition again"
            raise ToolConflictError(msg, tool_name=tool_name, code="tool_changed")
        hold.accept()
        _log.info("%s accepted the changed definition of %s", by, tool_name)
        self._background.start(self.continue_accepted(by=by))

    async def continue_accepted(self, actions: Iterable[PendingAction] | None = None, *, by: str = "operator") -> None:
        """Run the calls again that wait for a definition which the operator has accepted meanwhile.

        Their tenants' own approvals are still asked for. A process that lacks a tool leaves its calls to another.
        """
        found = await self._store.pending.list(limit=_MOST_WAITING) if actions is None else actions
        for action in found:
            if not self._is_accepted(action):
                continue
            answer = Answer(decision="approve", state=action.question.state)
            claimed = await self._store.pending.claim(action.id, answer, by=by, at=time.time())
            if claimed is not None:
                self._background.start(self.carry_out(claimed))

    def _is_accepted(self, action: PendingAction) -> bool:
        """Return whether an open action waits for a definition that is accepted by now."""
        if not action.question.needs_operator or action.status != "open" or action.expires_at <= time.time():
            return False
        if not self._registry.has(action.tool_name):
            return False
        hold = self._registry.find(action.tool_name).unaccepted
        return hold is None or hold.is_settled()

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Deny a call for good."""
        return await self.answer(pending_id, by=by, decision="deny", reason=reason)

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
    ) -> Outcome:
        """Answer a question, run the waiting call, in `context` if given, and return its outcome.

        `changes` of an approval are operations of JSON Patch on the exact arguments. `responses` are those of an MCP
        client to the question's `requests`, in place of a value. `operator` says whether this is the operator, who
        alone can approve a changed definition; by default a user of the local tenant is.
        """
        self._router.inflight.check_loop()  # before the action is claimed
        action = await self.get(pending_id, by=by)
        if decision not in _WITHOUT_TOOL:
            await self._router.await_tool(action.tool_name)
        self._check(action, by, decision)
        if decision not in _WITHOUT_TOOL:
            await self._refuse_after_failure(action)
        if responses is None:
            self._check_value(action, value, decision)
        if decision == "approve":
            if action.status != "open" or action.expires_at <= time.time():
                raise await self._too_late(pending_id)  # before a definition is accepted
            if changes is not None:
                _check_changes(action, changes)
            self._accept_definition(action, by, operator=operator)
            value = self._grant(action, changes)
            if changes is not None and (given := await self._give_artifacts(action, changes, by)):
                changes = [*changes, *given]
                value = self._grant(action, changes)
        elif decision == "rerun":
            self._refuse_changed(action)
        answer = Answer(
            decision=decision,
            value=value,
            reason=reason,
            changes=changes,
            state=action.question.state,
            responses=responses,
        )
        outcome = await asyncio.shield(self._background.start(self._claim(pending_id, answer, by, context)))
        if not isinstance(outcome, Paused):
            return outcome
        paused = await self._pause_of(await self.get(outcome.pending_id, by=by), by=by)
        return replace(paused, duration_ms=outcome.duration_ms)

    async def _give_artifacts(
        self, action: PendingAction, changes: Sequence[JsonChange], by: str
    ) -> Sequence[JsonChange]:
        """Let the call of somebody else read the artifacts that an answerer names; the log says whose they were."""
        arguments = _patched(action, changes)
        given, copies = await give_artifacts(arguments, action, self._store.artifacts, by=Principal.parse(by))
        for copy in copies:
            self.reporter.emit_given(action, copy, by=by)
        return given

    async def _claim(self, pending_id: str, answer: Answer, by: str, context: ToolContext | None) -> Outcome:
        """Claim the action and carry out the answer, whether or not the person who answered waits for the outcome."""
        claimed = await self._store.pending.claim(pending_id, answer, by=by, at=time.time())
        if claimed is None:
            raise await self._too_late(pending_id)
        if claimed.question.needs_operator:
            self._background.start(self.continue_accepted(by=by))  # other calls may wait for the same definition
        return await self.carry_out(claimed, context)

    async def carry_out(
        self, action: PendingAction, context: ToolContext | None = None, *, recovered: bool = False
    ) -> Outcome:
        """Carry out the answer of a claimed action and store the outcome; the stored context is the default.

        `recovered` says that the process that claimed the action died. Where the call could not begin, because the
        store could not be written, the question is opened again.
        """
        answer = action.answer
        assert answer is not None  # noqa: S101 - a claimed action has its answer
        self.reporter.emit_answer(action, answer, recovered=recovered)
        try:
            outcome = await self._follow(action, answer, context or load_context(action.context))
        except StoreError as error:
            return await self._reopen(action, error)
        status: PendingStatus = "denied" if answer.decision == "deny" else "answered"
        await self._write(partial(self.settle, action, dump_outcome(outcome), status))
        ended = await self.ended_inside(action) if isinstance(outcome, Paused) else action
        return outcome if ended is None else await self.resume_outer(ended, context) or outcome

    async def ended_inside(self, action: PendingAction) -> PendingAction | None:
        """Return the action of a call inside that has ended although the call of this action waits for it.

        Two calls inside may be answered at once: whoever answered the second found nobody who waited for it yet.
        """
        tenant, pending = action.asked_by.tenant, self._store.pending
        for waiting in await pending.list(tenant=tenant, call_id=action.call_id, limit=1):
            for call_id in inner_calls(waiting):
                for inner in await pending.list(tenant=tenant, status=None, call_id=call_id, limit=1):
                    if _has_ended(inner):
                        return inner
        return None

    async def resume_outer(self, action: PendingAction, context: ToolContext | None = None) -> Outcome | None:
        """Run the call again that waits for the ended call of this action, and return its outcome; None without one.

        It runs in the context of whoever answered, if there is one: that is who made both calls.
        Where this process does not have its tool, it goes on in one that does.
        """
        outer = await self._outer_of(action, status="open")
        if outer is None:
            return None
        with suppress(ToolError):
            await self._router.await_tool(outer.tool_name)
        if not self._registry.has(outer.tool_name):
            return None
        by, answer = action.answered_by or str(action.asked_by), Answer(decision="answer", state=outer.question.state)
        claimed = await self._store.pending.claim(outer.id, answer, by=by, at=time.time())
        if claimed is None:  # another process was faster
            return await self.outcome(outer.id, by=str(outer.asked_by), wait_s=outer.timeout_s or _OUTER_WAIT_S)
        try:
            self._refuse_changed(claimed)
        except ToolConflictError as changed:  # the steps so far were those of another definition
            outcome = self.reporter.refuse(claimed, changed)
            await self._write(partial(self.settle, claimed, dump_outcome(outcome), "answered"))
            return await self.resume_outer(claimed, context) or outcome
        return await self.carry_out(claimed, context)

    async def _reopen(self, action: PendingAction, error: StoreError) -> Failed:
        """Open an action again whose answer ran nothing; the event comes first, so that the log shows the reason."""
        self.reporter.emit_pause(action, action)
        await self._write(partial(self._store.pending.settle, action.id, "open", reopen=True))
        message = f"{error.message}; nothing was run, and the question is open again: answer it once more"
        failed = StoreError(message, tool_name=action.tool_name, cause=error)
        return Failed(action.call_id, action.run_id, action.tool_name, failed)

    async def settle(self, action: PendingAction, data: Mapping[str, Any], status: PendingStatus) -> None:
        """Store the outcome of an action, also under its idempotency key."""
        await self._store.pending.settle(action.id, status, outcome=data)
        if action.idempotency_key is not None:
            await self._store.keys.settle(action.asked_by, action.idempotency_key, data)

    async def _write(self, write: Callable[[], Awaitable[None]]) -> None:
        """Write now, or in the background as soon as the store can be written again."""
        try:
            await write()
        except StoreError as error:
            _log.warning("what came of an answer waits to be recorded: %s", error)
            self._background.retry_write(write)

    async def _follow(self, action: PendingAction, answer: Answer, context: ToolContext | None) -> Outcome:
        whole_call = action.question.key == "unknown"  # a step of `ctx.once` can be unknown too
        match answer.decision:
            case "deny" if not (action.question.deliver_denial and self._registry.has(action.tool_name)):
                return self.reporter.deny(action, answer)
            case "happened" if whole_call:
                return self.reporter.confirm(action, answer.value)
            case "not_happened" if whole_call:
                return self.reporter.refute(action)
            case _:
                return await self._resume(action, answer, context)

    async def _resume(self, action: PendingAction, answer: Answer, context: ToolContext | None) -> Outcome:
        """Run the call again from the top with one more answer."""
        return await self._router.resume(
            RequestedCall(
                action.call_id,
                action.run_id,
                action.tool_name,
                _patched(action, answer.changes),
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
            )
        )

    def can_run(self, action: PendingAction) -> bool:
        """Return whether this process has the tool of an answered action, or the answer needs none."""
        decision = action.answer.decision if action.answer else None
        return decision in _WITHOUT_TOOL or self._registry.has(action.tool_name)

    def _check(self, action: PendingAction, by: str, decision: Decision) -> None:
        if why := answer_refusal(action, by, decision):
            msg = f"{by!r} may not answer {action.id!r}: {why}"
            raise ToolPermissionError(msg, tool_name=action.tool_name, code="not_an_answerer")
        if action.question.kind == "call":
            waits_for = action.question.payload["waits_for"]
            inner_ids = " and ".join(repr(one["id"]) for one in (waits_for, *waits_for.get("others", ())))
            msg = f"{action.id!r} goes on by itself once the calls inside it have ended; answer {inner_ids}"
            raise ToolValidationError(msg, tool_name=action.tool_name)
        allowed = DECISIONS[action.question.kind]
        if decision not in allowed:
            msg = f"a question of kind {action.question.kind} takes {', '.join(sorted(allowed))}, not {decision!r}"
            raise ToolValidationError(msg, tool_name=action.tool_name)
        if decision not in _WITHOUT_TOOL and not self._registry.has(action.tool_name):
            msg = f"{action.tool_name!r} is not in this process's catalog; answer where it is, or name its source here"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_missing")

    async def _refuse_after_failure(self, action: PendingAction) -> None:
        """Raise ToolConflictError when a call around that of this action has failed: nothing new begins in it."""
        outer_id = action.call_id
        while outer_id := outer_id.rpartition(".")[0]:
            outer = await recorded_outcome(self._store, outer_id, tenant=action.asked_by.tenant)
            if isinstance(outer, Failed):
                left = "say whether it happened" if action.question.kind == "unknown" else "deny it"
                msg = f"{action.id!r} is of a call inside {outer.tool_name!r}, which has failed; {left}"
                raise ToolConflictError(msg, tool_name=action.tool_name, code="outer_failed")

    def _check_value(self, action: PendingAction, value: Any, decision: Decision) -> None:
        """Refuse a value that breaks the schema before the action is claimed, so that it can be answered again."""
        schema = action.question.answer_schema
        if decision == "answer" and schema is not None:
            from toolpost.schema.validator import compile_validator  # noqa: PLC0415 - most programs see no answer

            compile_validator(dict(schema)).check(value, action.tool_name)

    def _grant(self, action: PendingAction, changes: Sequence[JsonChange] | None) -> str:
        """Return the hash of the approved call; changed arguments are validated before the action is claimed."""
        if action.question.key != DEFINITION:
            self._refuse_changed(action)
            if changes is None:
                return action.arguments_hash
        entry = self._registry.find(action.tool_name)
        return call_hash(entry.spec, entry.fit(_patched(action, changes)))

    def _accept_definition(self, action: PendingAction, by: str, *, operator: bool | None) -> None:
        """Pin a tool's definition as the question showed it, unless it was accepted meanwhile."""
        hold = self._registry.find(action.tool_name).unaccepted
        if action.question.key != DEFINITION or hold is None or hold.is_settled():
            return
        if not _is_operator(by, operator=operator):
            raise _operator_required(by, action.tool_name)
        if hold.after.hash != action.question.payload.get("hash"):
            msg = f"{action.tool_name!r} has changed again since this was asked; deny it and call the tool again"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_changed")
        hold.accept()

    def _refuse_changed(self, action: PendingAction) -> None:
        """Raise ToolConflictError when the tool, or the target of its calls, has changed since the question."""
        entry = self._registry.find(action.tool_name)
        try:
            arguments = entry.fit(dict(action.arguments))
            # The question about an interrupted call is made of its intent, which has the arguments as requested.
            interrupted = action.question.reason == "outcome_unknown" and action.question.kind in ("unknown", "call")
            now = tool_hash(entry.spec) if interrupted else call_hash(entry.spec, arguments)
        except ToolValidationError:
            now = ""
        if now != action.arguments_hash:
            anew = _BEFORE_ANEW.get(action.question.kind, "")
            moved = _target_change(action.question.target, target_summary(entry.spec, self._redactor.redact))
            msg = f"{action.tool_name!r} has changed since this was asked{moved}; {anew}call the tool again"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_changed")

    async def _too_late(self, pending_id: str) -> ToolConflictError:
        action = await self._store.pending.get(pending_id)
        if action is None:
            return ToolConflictError(f"{pending_id!r} is gone", code="already_answered")
        if action.status == "expired" or (action.status == "open" and action.expires_at <= time.time()):
            return ToolConflictError(f"{pending_id!r} has expired; call the tool again", code="question_expired")
        if action.status == "cancelled":
            return ToolConflictError(f"{pending_id!r} was cancelled", code="question_cancelled")
        return ToolConflictError(
            f"{pending_id!r} was already answered by {action.answered_by}", code="already_answered"
        )


def _is_operator(by: str, *, operator: bool | None) -> bool:
    """Return whether an answer is the operator's; a program that does not say so speaks for the local tenant."""
    return Principal.parse(by).tenant == LOCAL_TENANT if operator is None else operator


def _operator_required(by: str, tool_name: str) -> ToolPermissionError:
    msg = (
        f"{by!r} may not accept the changed definition of {tool_name!r}: all tenants share it, so only the operator may"
        f"; `toolpost lock approve {tool_name}` does, and the call then continues automatically"
    )
    return ToolPermissionError(msg, tool_name=tool_name, code="operator_required")


def _check_changes(action: PendingAction, changes: Sequence[JsonChange]) -> None:
    """Refuse changes that do not fit the arguments, or that would send a mask, before anything is accepted."""
    _patched(action, changes)
    refuse_masks(changes, action.tool_name)


def _patched(action: PendingAction, changes: Sequence[JsonChange] | None) -> dict[str, Any]:
    """Return the exact arguments of a call with the changes of an answer; ToolValidationError where they do not fit."""
    arguments = dict(action.arguments)
    if changes is None:
        return arguments
    patched = apply_patch(arguments, changes)
    if not is_object(patched):
        raise ToolValidationError("the changed arguments must be an object, such as {}", tool_name=action.tool_name)
    return patched


def inner_calls(action: PendingAction) -> Collection[str]:
    """Return the ids of the calls inside it that a call waits for; most wait for a person instead."""
    calls: Collection[str] = action.question.payload.get("calls", ()) if action.question.kind == "call" else ()
    return calls


def _has_ended(action: PendingAction) -> bool:
    return action.outcome is not None and action.outcome["status"] != "paused"


def _target_change(before: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Describe how the target of a call has changed since the question; empty where it has not."""
    if not before or before == now:
        return ""
    return f": it was {before.get('summary')}, and is now {now.get('summary')}"


def _visible_to(by: str, action: PendingAction) -> PendingAction:
    """Return an action as a person may see it: the sign-in URL and state of a consent are for the asker alone."""
    if Principal.parse(by) == action.asked_by:
        return action
    return replace(action, question=_without_sign_in(action.question))


def _pause_visible_to(by: str, paused: Paused, *, asked_by: Principal) -> Paused:
    """Return a pause as a person may see it, as `_visible_to` does an action."""
    if Principal.parse(by) == asked_by:
        return paused
    inside = tuple(replace(one, question=_without_sign_in(one.question)) for one in paused.inside)
    return replace(paused, question=_without_sign_in(paused.question), inside=inside)


def _without_sign_in(question: Question) -> Question:
    """Return a question without the URL and state of its sign-in, if it is a consent."""
    if question.kind != "consent":
        return question
    payload = {name: value for name, value in question.payload.items() if name not in _PRIVATE}
    return replace(question, payload=payload)


def describe_call(question: Question, tool: CalledTool, arguments: Mapping[str, Any], redactor: Redactor) -> Question:
    """Return the question with the redacted arguments and target of its call."""
    return replace(
        question,
        prompt=redactor.excerpt(question.prompt, LONGEST_MESSAGE),
        payload=_shown_payload(question, redactor),
        arguments=arguments_summary(arguments, redactor, tool.secret_paths),
        target={name: redactor.redact(text) for name, text in tool.target.items()},
    )


def _shown_payload(question: Question, redactor: Redactor) -> Mapping[str, Any]:
    """Return the payload with secrets masked; that of a consent is a sign-in URL, which is needed whole."""
    payload = question.payload
    if question.kind == "consent":
        return payload
    preview = payload.get("preview")
    if isinstance(preview, str):
        payload = {**payload, "preview": redactor.excerpt(preview, _LONGEST_PREVIEW)}
    shown: Mapping[str, Any] = redactor.texts(payload)
    return shown


def with_answerers(question: Question, approvals: Approvals, *, unattended: bool = False) -> Question:
    """Return the question with the people who may answer it by policy.

    What a tool or a server asks is for those people, too, if no person uses the MCP client that made the call.
    """
    if question.kind == "input" and (approvals.person or unattended):
        question = replace(question, person=True)
    is_decided = question.kind in _DECIDED or question.person
    if not is_decided or question.needs_operator:
        return question
    return replace(question, answerers=approvals.answerers, four_eyes=bool(approvals.four_eyes))


class PauseWriter:
    """Write pending actions; questions without an expiry of their own live for `ttl_s`."""

    def __init__(
        self, store: Store, emitter: EventEmitter, ids: IdMaker, background: BackgroundTasks, *, ttl_s: float
    ) -> None:
        self._store = store
        self._background = background
        self._emitter = emitter
        self._ids = ids
        self._ttl_s = ttl_s

    async def pause(
        self, attempt: Attempt, runtime: ToolRuntime, question: Question, validated: ValidatedCall
    ) -> Paused:
        """Store the call with its question and emit that it waits; the intent of a tool that asked is removed."""
        redactor = runtime.redactor_for(attempt.request)
        question = describe_call(question, runtime.called, attempt.original_arguments, redactor)
        approvals = (attempt.verdict or runtime.verdict).approvals
        question = with_answerers(question, approvals, unattended=_is_unattended(attempt.request))
        action = self._action(attempt, runtime, question, validated)
        paused = await paused_outcome(self._store.pending, action)
        writing = self._background.start(self._write(action, journaled=attempt.journaled))
        try:
            waiting = await asyncio.shield(writing)
        except asyncio.CancelledError:
            if attempt.stopped != "stopping":
                attempt.journaled = False
                self._background.start(self._retract(writing, action))
                raise
            waiting = await writing  # it stops here anyway, and can be answered in another process
        attempt.journaled = False
        if waiting is not None:
            return await self._join(attempt, runtime, action, waiting)
        self._emitter.emit_pause(attempt.call, action)
        return replace(paused, duration_ms=attempt.elapsed_ms)

    async def find_waiting(self, attempt: Attempt, runtime: ToolRuntime) -> Paused | None:
        """Return the pause of the same call if it waits already; None for a call that may be another one.

        A call that brings its client's responses with it is begun: it may not have to wait.
        """
        request = attempt.request
        if request.answers or not self._store.pending.may_wait:
            return None
        client = None if request.context is None else request.context.client
        if client is not None and client.input_responses:
            return None
        same_call = _same_call(attempt, runtime)
        if not same_call:
            return None
        waiting = await self._store.pending.find_waiting(same_call, at=time.time())
        if waiting is None:
            return None
        attempt.joined = True
        return await paused_outcome(self._store.pending, waiting)

    async def _write(self, action: PendingAction, *, journaled: bool) -> PendingAction | None:
        """Write an action, unless the same call waits already; a call that goes on after an answer is its own."""
        waiting = await self._store.pending.add(action, unless_waiting=not action.answers)
        if journaled:
            await self._store.journal.forget(action.call_id, "")
        return waiting

    async def _join(
        self, attempt: Attempt, runtime: ToolRuntime, action: PendingAction, waiting: PendingAction
    ) -> Paused:
        """Return the pause of the same call that waits already, and close what this call had begun."""
        attempt.joined = True
        source = runtime.entry.source
        if isinstance(source, HoldingSource):
            source.release(action.call_id)
        await self._close_inside(attempt, action)
        if waiting.question.kind == action.question.kind == "consent":  # a link to sign in does not last
            await self._store.pending.renew(waiting.id, action.question)
            waiting = replace(waiting, question=action.question)
        paused = await paused_outcome(self._store.pending, waiting)
        return replace(paused, duration_ms=attempt.elapsed_ms)

    async def _close_inside(self, attempt: Attempt, action: PendingAction) -> None:
        """Cancel the pending actions of calls inside a call that does not wait for them."""
        for call_id in inner_calls(action):
            for closed in await self._store.pending.cancel(call_id, tenant=action.asked_by.tenant):
                error = ToolCancelledError("the call around it was the same as one that waits already")
                failed = Failed(closed.call_id, closed.run_id, closed.tool_name, error)
                call = replace(attempt.call, call_id=closed.call_id, tool_name=closed.tool_name)
                self._emitter.emit_end(call, failed)
                await self._store.pending.settle(closed.id, closed.status, outcome=dump_outcome(failed))
                await self._close_inside(attempt, closed)

    async def _retract(self, writing: asyncio.Task[PendingAction | None], action: PendingAction) -> None:
        """Close the question of a call that was cancelled while the question was being written.

        The same call may wait for it already, and gets the outcome.
        """
        await writing
        for closed in await self._store.pending.cancel(action.call_id, tenant=action.asked_by.tenant):
            error = ToolCancelledError(
                "the call was cancelled while a person was being asked", tool_name=closed.tool_name
            )
            failed = Failed(closed.call_id, closed.run_id, closed.tool_name, error)
            await self._store.pending.settle(closed.id, closed.status, outcome=dump_outcome(failed))

    def _action(
        self, attempt: Attempt, runtime: ToolRuntime, question: Question, validated: ValidatedCall
    ) -> PendingAction:
        request, now = attempt.request, time.time()
        if question.kind == "unknown":  # an interrupted call is bound to its tool; the intent has its arguments
            bound = tool_hash(runtime.spec)
        else:  # a tool that was invoked may have changed the arguments it was given
            call = runtime.validate(request) if attempt.invoked else validated
            bound = call_hash(runtime.spec, call.arguments)
        return PendingAction(
            id=self._ids.make("ask"),
            question=question,
            call_id=request.call_id,
            run_id=request.run_id,
            tool_name=runtime.spec.name,
            arguments=attempt.original_arguments,
            arguments_hash=bound,
            asked_by=request.principal,
            created_at=now,
            expires_at=now + (question.expires_in_s or self._ttl_s),
            answerers=(str(request.principal),) if question.kind == "consent" else question.answerers,
            answers=request.answers,
            started=attempt.started,
            idempotency_key=request.idempotency_key,
            correlation_id=request.correlation_id,
            task_id=request.task_id,
            timeout_s=request.timeout_s,
            context=dump_context(request.context),
            same_call="" if question.kind in _NEVER_SAME else _same_call(attempt, runtime),
            unattended=_is_unattended(request),
        )


def _is_unattended(request: RequestedCall) -> bool:
    """Return whether no person uses the MCP client that made a call; a resumed call has no client."""
    client = None if request.context is None else request.context.client
    return request.unattended or (client is not None and not client.interactive)


def _same_call(attempt: Attempt, runtime: ToolRuntime) -> str:
    """Return the hash by which a repeated call is the same as this one; empty where none is."""
    request = attempt.request
    if request.session is None:
        return request.same_call
    given = request.context
    beside = () if given is None else (given.tool_context, given.llm_context)
    return same_call_hash(runtime.called, attempt.original_arguments, request.principal, request.session, beside)


class OutcomeReporter:
    """Build and emit the outcomes of calls that end without running: denied, expired, cancelled or as reported."""

    def __init__(self, emitter: EventEmitter, redactor: Redactor, registry: ToolRegistry) -> None:
        self._emitter = emitter
        self._redactor = redactor
        self._registry = registry

    def emit_answer(self, action: PendingAction, answer: Answer, *, recovered: bool = False) -> None:
        """Emit that a person answered; `recovered` marks the repeated event after a crash."""
        facts: dict[str, Any] = {"pending_id": action.id, "by": action.answered_by, "decision": answer.decision}
        if recovered:
            facts["recovered"] = True
        code = _ANSWER_CODES.get(answer.decision, EventCode.CALL_RESUMED)
        self._emitter.emit(self._ref(action), code, {**facts, "reason": answer.reason})

    def emit_given(self, action: PendingAction, copy: ArtifactRef, *, by: str) -> None:
        """Emit that a person gave the call an artifact of their own."""
        facts = {"artifact_id": copy.id, "media_type": copy.media_type, "size": copy.size, "by": by}
        self._emitter.emit(self._ref(action), EventCode.ARTIFACT_STORED, facts)

    def emit_pause(self, of: JournalEntry | PendingAction, action: PendingAction) -> None:
        """Emit that a person is asked about a call, or asked again after a crash."""
        self._emitter.emit_pause(self._ref(of), action)

    def emit_recorded(self, of: RunSummary, data: Mapping[str, Any]) -> None:
        """Emit the end of a call whose process died after it recorded the result."""
        outcome = load_outcome(data)
        if not isinstance(outcome, Paused):
            content = outcome.content if isinstance(outcome, Completed) else None
            self._emitter.emit_end(self._ref(of), outcome, summary=summary_of(content))

    def deny(self, action: PendingAction, answer: Answer) -> Failed:
        """End a call that a person denied."""
        because = f": {answer.reason}" if answer.reason else ""
        return self._fail(action, ToolApprovalDenied(f"{action.answered_by} refused {action.tool_name}{because}"))

    def expire(self, action: PendingAction) -> Failed:
        """End a call whose question nobody answered in time, which counts as a denial."""
        self._emitter.emit(self._ref(action), EventCode.QUESTION_EXPIRED, {"pending_id": action.id})
        return self._fail(action, ToolApprovalDenied(f"nobody answered {action.id} in time", code="question_expired"))

    def cancel(self, action: PendingAction) -> Failed:
        """End a call that was cancelled while it waited."""
        return self._fail(action, ToolCancelledError("the call was cancelled while it waited for a person"))

    def confirm(self, action: PendingAction, content: Any) -> Completed:
        """Complete an interrupted call that happened, as a person reports, with the result if they know it."""
        text = _UNKNOWN_RESULT if content is None else None
        outcome = Completed(action.call_id, action.run_id, action.tool_name, content, text=text)
        self._emitter.emit_end(self._ref(action), outcome, summary="as a person reported")
        return outcome

    def refuse(self, action: PendingAction, error: ToolConflictError) -> Failed:
        """Fail a call that can no longer go on."""
        return self._fail(action, error)

    def refute(self, action: PendingAction) -> Failed:
        """Fail an interrupted call that did not happen, as a person reports."""
        return self._fail(action, ToolError("the call was interrupted and did not happen", code="not_executed"))

    def interrupt(self, of: JournalEntry | RunSummary) -> Failed:
        """Fail a call that is safe to repeat and whose process died."""
        return self._fail(of, interrupted_error(of.tool_name))

    def _fail(self, of: PendingAction | JournalEntry | RunSummary, error: ToolError) -> Failed:
        if isinstance(of, PendingAction) and self._registry.has(of.tool_name):
            source = self._registry.find(of.tool_name).source
            if isinstance(source, HoldingSource):
                source.release(of.call_id)  # it holds the call open, and nobody will answer
        error.tool_name = of.tool_name
        error.conceal(self._redactor.message)
        outcome = Failed(of.call_id, of.run_id, of.tool_name, error)
        self._emitter.emit_end(self._ref(of), outcome)
        return outcome

    def _ref(self, of: PendingAction | JournalEntry | RunSummary) -> CallRef:
        """Return the reference to a call that its events carry."""
        redact = self._redactor.plain
        if isinstance(of, PendingAction):
            who, correlation = of.asked_by, of.correlation_id
        elif isinstance(of, JournalEntry):
            who, correlation = of.principal, of.call.get("correlation_id", "")
        else:
            who, correlation = Principal(of.tenant, of.user), ""
        return CallRef(of.run_id, of.call_id, of.tool_name, who.tenant, who.user, correlation or of.call_id, redact)


def approval_card(
    action: PendingAction, registry: ToolRegistry, redactor: Redactor, *, operator: bool | None = None
) -> dict[str, Any]:
    """Return the card of a pending action, with its secrets masked.

    `answers` lists the possible decisions while it is open, each with the schema of what comes with it; what only the
    operator can approve is offered to no other caller.
    """
    name, question = action.tool_name, action.question
    entry = registry.find(name) if registry.has(name) else None
    marks = None if entry is None else entry.secret_paths
    arguments, answer = dict(action.arguments), action.answer
    redact = redactor.plain if marks is None else redactor.for_tool(arguments=marks[0], results=marks[1])
    open_text = redact(
        {
            "prompt": question.prompt,
            "payload": dict(_without_sign_in(question).payload),  # masked, the URL would lead nowhere
            "arguments": arguments,
            "outcome": action.outcome,
        }
    )
    masked = masked_paths(arguments, open_text["arguments"])
    return {
        "id": action.id,
        "status": action.status,
        "kind": question.kind,
        "reason": question.reason,
        "tool_name": name,
        **open_text,
        "masked": masked,
        "target": dict(question.target),
        "preview": _preview(question, open_text["payload"]),
        "waits_for": "operator" if question.needs_operator else "person",
        "answers": _answers(
            question,
            None if entry is None else entry.spec.input_schema,
            operator=_is_operator(str(action.asked_by), operator=operator),
        )
        if action.status == "open"
        else [],
        "answerers": None if action.answerers is None else list(action.answerers),
        "four_eyes": question.four_eyes,
        "call_id": action.call_id,
        "run_id": action.run_id,
        "asked_by": str(action.asked_by),
        "created_at": action.created_at,
        "expires_at": action.expires_at,
        "answer": None if answer is None else _given(action, answer, redact),
        "answered_by": action.answered_by,
        "answered_at": action.answered_at,
    }


def _given(action: PendingAction, answer: Answer, redact: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return what was decided, without the value that a tool was given: it may be anything, a password too."""
    if answer.changes is None:
        return redact({"decision": answer.decision, **({"reason": answer.reason} if answer.reason else {})})
    paths = [{"op": change["op"], "path": change["path"]} for change in answer.changes]
    return redact({"decision": "modify", "changes": paths, "arguments": _patched(action, answer.changes)})


def _preview(question: Question, payload: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what the call would do: a diff or a text of the tool's own, else the request or command of its target."""
    text = payload.get("preview")
    if isinstance(text, str) and text:
        return {"kind": "diff" if text.startswith(_DIFF) else "text", "text": text}
    kind = _TARGET_PREVIEWS.get(question.target.get("kind", ""))
    return None if kind is None else {"kind": kind, "text": question.target.get("summary", "")}


def _answers(question: Question, input_schema: Mapping[str, Any] | None, *, operator: bool) -> list[dict[str, Any]]:
    """Return the decisions that a question takes; changing the arguments is a decision of its own, `modify`."""
    allowed = DECISIONS[question.kind]
    answers: list[dict[str, Any]] = []
    if "approve" in allowed and (operator or not question.needs_operator):
        answers.append(_decision("approve"))
        if input_schema is not None and not question.needs_operator:
            modify = _decision("modify", changes=PATCH_SCHEMA, required=("changes",))
            answers.append({**modify, "input_schema": input_schema})
    if "answer" in allowed and question.kind != "consent":  # whoever signs in answers a consent
        answers.append(_decision("answer", value=question.answer_schema or {}, required=("value",)))
    if "happened" in allowed:
        answers += [_decision("happened", value=_RESULT), _decision("not_happened"), _decision("rerun")]
    if "deny" in allowed:
        answers.append(_decision("deny", reason=_REASON))
    return answers


def _decision(name: str, *, required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"const": name}, **properties},
        "required": ["decision", *required],
    }
    return {"decision": name, "schema": schema}
