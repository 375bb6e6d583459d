"""The desk where people answer: an answer runs the very call that waited for it, exactly once."""

from __future__ import annotations

import asyncio
import logging
import time
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

from toolpost.catalog.lock import DEFINITION
from toolpost.contracts.calls import RequestedCall
from toolpost.contracts.errors import (
    PendingNotFoundError,
    StoreError,
    ToolConflictError,
    ToolPermissionError,
    ToolValidationError,
)
from toolpost.contracts.outcomes import Failed
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import DECISIONS, Answer
from toolpost.contracts.sources import HoldingSource
from toolpost.policy.approvals import answer_refusal, call_hash, target_summary, tool_hash
from toolpost.runtime.contexts import restore_context
from toolpost.runtime.endings import Endings
from toolpost.runtime.recorder import PATIENCE_S
from toolpost.runtime.revive import to_keep
from toolpost.schema.validator import compile_validator

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.questions import Decision, PendingAction, PendingStatus
    from toolpost.contracts.storage import Store
    from toolpost.runtime.router import ToolRouter

_log = logging.getLogger("toolpost.runtime")
_OWN = frozenset({"auth_url", "state"})
_RUNS_AGAIN = frozenset({"approve", "rerun"})
_WITHOUT_TOOL = frozenset({"deny", "happened", "not_happened"})  # answers that run nothing


class PendingDesk:
    """Open questions, and the way to answer them. `by` is a person's identity, which no agent holds."""

    def __init__(self, router: ToolRouter, registry: ToolRegistry) -> None:
        self._router = router
        self._registry = registry
        self._store: Store = router.store
        self.endings = Endings(router.teller, partial(_release, registry))

    async def list(self, *, by: str, status: PendingStatus | None = "open", limit: int = 100) -> list[PendingAction]:
        """The questions of this person's tenant, newest first."""
        found = await self._store.pending.list(tenant=Principal.parse(by).tenant, status=status, limit=limit)
        return [_as_seen(action, by) for action in found]

    async def get(self, pending_id: str, *, by: str) -> PendingAction:
        """One question; PendingNotFoundError when there is none for this person."""
        action = await self._store.pending.get(pending_id, tenant=Principal.parse(by).tenant)
        if action is None:
            raise PendingNotFoundError(pending_id)
        return _as_seen(action, by)

    async def approve(self, pending_id: str, *, by: str, arguments: Mapping[str, Any] | None = None) -> Outcome:
        """Let a call run, with changed arguments if given."""
        return await self.answer(pending_id, by=by, decision="approve", arguments=arguments)

    async def deny(self, pending_id: str, *, by: str, reason: str = "") -> Outcome:
        """Refuse a call for good."""
        return await self.answer(pending_id, by=by, decision="deny", reason=reason)

    async def answer(
        self,
        pending_id: str,
        value: Any = None,
        *,
        by: str,
        decision: Decision = "answer",
        reason: str = "",
        arguments: Mapping[str, Any] | None = None,
        context: ToolContext | None = None,
    ) -> Outcome:
        """Answer a question; the waiting call goes on, in `context` if given, and its outcome is returned."""
        self._router.inflight.check_home()  # before the question is taken
        action = await self.get(pending_id, by=by)
        if decision not in _WITHOUT_TOOL:
            await self._router.await_tool(action.tool_name)
        self._check(action, by, decision)
        self._check_value(action, value, decision)
        answer = Answer(decision=decision, value=value, reason=reason, arguments=arguments, state=action.question.state)
        if decision == "approve" and action.question.key == DEFINITION:
            self._agree(action)
        elif decision in _RUNS_AGAIN:
            self._refuse_changed(action)
        if decision == "approve":
            answer = replace(answer, value=self._grant(action, arguments))
        return await asyncio.shield(self._router.background.start(self._claim(pending_id, answer, by, context)))

    async def _claim(self, pending_id: str, answer: Answer, by: str, context: ToolContext | None) -> Outcome:
        """Take the question and carry the answer out, whether or not the one who answered stays to see it."""
        claimed = await self._store.pending.claim(pending_id, answer, by=by, at=time.time())
        if claimed is None:
            raise await self._too_late(pending_id)
        return await self.carry_out(claimed, context)

    async def carry_out(
        self, action: PendingAction, context: ToolContext | None = None, *, recovered: bool = False
    ) -> Outcome:
        """Do what the answer of a claimed question says, and keep what came of it; the kept context is the default.

        `recovered` says that the process that took the answer died over it. Where the call could not begin, because
        the store could not be written, the question is asked again.
        """
        answer = action.answer
        assert answer is not None  # noqa: S101 - a claimed question has its answer
        self.endings.answered(action, answer, recovered=recovered)
        try:
            outcome = await self._follow(action, answer, context or restore_context(action.context))
        except StoreError as error:
            return await self._ask_again(action, error)
        status: PendingStatus = "denied" if answer.decision == "deny" else "answered"
        await self._until_written(self._settle, action, status, to_keep(outcome))
        return outcome

    async def _ask_again(self, action: PendingAction, error: StoreError) -> Failed:
        """Open a question again whose answer led to nothing; the event first, so that the log shows why it is open."""
        self.endings.paused(action, action)
        await self._until_written(self._store.pending.settle, action.id, "open", reopen=True)
        told = f"{error.message}; nothing was run, and the question is open again: answer it once more"
        failed = StoreError(told, tool_name=action.tool_name, cause=error)
        return Failed(action.call_id, action.run_id, action.tool_name, failed)

    async def _settle(self, action: PendingAction, status: PendingStatus, kept: Mapping[str, Any]) -> None:
        await self._store.pending.settle(action.id, status, outcome=kept)
        if action.idempotency_key is not None:
            await self._store.keys.settle(action.asked_by, action.idempotency_key, kept)

    async def _until_written(self, write: Callable[..., Awaitable[None]], *facts: Any, **more: Any) -> None:
        """Write now, or in the background as soon as the store can be written again."""

        async def later() -> None:
            while True:
                await asyncio.sleep(PATIENCE_S)
                with suppress(StoreError):
                    return await write(*facts, **more)

        try:
            await write(*facts, **more)
        except StoreError as error:
            _log.warning("what came of an answer waits to be recorded: %s", error)
            self._router.background.start(later())

    async def _follow(self, action: PendingAction, answer: Answer, context: ToolContext | None) -> Outcome:
        whole_call = action.question.key == "unknown"  # a step of `ctx.once` can be unknown too
        match answer.decision:
            case "deny" if not (action.question.deliver_denial and self._registry.has(action.tool_name)):
                return self.endings.denied(action, answer)
            case "happened" if whole_call:
                return self.endings.happened(action, answer.value)
            case "not_happened" if whole_call:
                return self.endings.not_happened(action)
            case _:
                return await self._resume(action, answer, context)

    async def _resume(self, action: PendingAction, answer: Answer, context: ToolContext | None) -> Outcome:
        """Run the call again from the top with one more answer known."""
        return await self._router.resume(
            RequestedCall(
                action.call_id,
                action.run_id,
                action.tool_name,
                dict(action.arguments if answer.arguments is None else answer.arguments),
                action.asked_by,
                action.timeout_s,
                action.idempotency_key,
                action.correlation_id,
                action.task_id,
                context,
                {**action.answers, action.question.key: answer},
                action.id,
                action.started,
            )
        )

    def can_run(self, action: PendingAction) -> bool:
        """Whether this process has the tool that the question is about, or needs none."""
        decision = action.answer.decision if action.answer else None
        return decision in _WITHOUT_TOOL or self._registry.has(action.tool_name)

    def _check(self, action: PendingAction, by: str, decision: Decision) -> None:
        if why := answer_refusal(action, by, decision):
            msg = f"{by!r} may not answer {action.id!r}: {why}"
            raise ToolPermissionError(msg, tool_name=action.tool_name, code="not_an_answerer")
        allowed = DECISIONS[action.question.kind]
        if decision not in allowed:
            msg = f"a question of kind {action.question.kind} takes {', '.join(sorted(allowed))}, not {decision!r}"
            raise ToolValidationError(msg, tool_name=action.tool_name)
        if decision not in _WITHOUT_TOOL and not self._registry.has(action.tool_name):
            msg = f"{action.tool_name!r} is not in this process's catalog; answer where it is, or name its source here"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_missing")

    def _check_value(self, action: PendingAction, value: Any, decision: Decision) -> None:
        """Refuse an answer that does not fit before the question is closed, so that it can be given again."""
        schema = action.question.answer_schema
        if decision == "answer" and schema is not None:
            compile_validator(dict(schema)).check(value, action.tool_name)

    def _grant(self, action: PendingAction, arguments: Mapping[str, Any] | None) -> str:
        """The hash of what is approved; changed arguments are validated before the question is closed."""
        entry = self._registry.find(action.tool_name)
        return call_hash(entry.spec, entry.fit(dict(action.arguments if arguments is None else arguments)))

    def _agree(self, action: PendingAction) -> None:
        """Pin a tool as the question showed it, unless somebody has agreed to it meanwhile."""
        hold = self._registry.find(action.tool_name).hold
        if hold is None or hold.is_settled():
            return
        if hold.after.hash != action.question.payload.get("hash"):
            msg = f"{action.tool_name!r} has changed again since this was asked; deny it and call the tool again"
            raise ToolConflictError(msg, tool_name=action.tool_name, code="tool_changed")
        hold.accept()

    def _refuse_changed(self, action: PendingAction) -> None:
        """Refuse to run a tool that is no longer what the question was about, or whose calls go elsewhere now."""
        entry = self._registry.find(action.tool_name)
        try:
            arguments = entry.fit(dict(action.arguments))
            # Of an interrupted call the intent was kept, which has the arguments as they were given.
            now = tool_hash(entry.spec) if action.question.kind == "unknown" else call_hash(entry.spec, arguments)
        except ToolValidationError:
            now = ""
        if now != action.arguments_hash:
            anew = "deny it" if action.question.kind == "approval" else "say whether it happened"
            moved = _moved(action.question.target, target_summary(entry.spec, self._router.teller.redactor.redact))
            msg = f"{action.tool_name!r} has changed since this was asked{moved}; {anew} and call the tool again"
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


def _moved(then: Mapping[str, str], now: Mapping[str, str]) -> str:
    """Where the call went when it was asked about and where it would go now, if that differs."""
    if not then or then == now:
        return ""
    return f": it was {then.get('summary')}, and is now {now.get('summary')}"


def _as_seen(action: PendingAction, by: str) -> PendingAction:
    """A question as somebody may see it: where to sign in, and the state of that, are for the one person alone."""
    question = action.question
    if question.kind != "consent" or Principal.parse(by) == action.asked_by:
        return action
    told = {name: value for name, value in question.payload.items() if name not in _OWN}
    return replace(action, question=replace(question, payload=told))


def _release(registry: ToolRegistry, action: PendingAction) -> None:
    """Tell a source that holds the call open that nobody will answer."""
    if registry.has(action.tool_name):
        source = registry.find(action.tool_name).source
        if isinstance(source, HoldingSource):
            source.release(action.call_id)
