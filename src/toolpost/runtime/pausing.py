"""Keeps a call that needs a person, exactly as it is, until it is answered."""

from __future__ import annotations

import asyncio
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from toolpost.contracts.outcomes import Paused
from toolpost.contracts.questions import PendingAction
from toolpost.policy.approvals import arguments_summary, call_hash, tool_hash
from toolpost.policy.redaction import LONGEST_MESSAGE
from toolpost.runtime.contexts import keep_context

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.questions import Question
    from toolpost.contracts.storage import Store
    from toolpost.policy.approvals import Approvals, CalledTool
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.background import Background
    from toolpost.runtime.ids import IdMaker
    from toolpost.runtime.lane import Lane
    from toolpost.runtime.teller import Teller


_LONGEST_PREVIEW = 8000
_DECIDED = frozenset({"approval", "unknown"})  # the others ask for what only the caller has to give


def about_call(question: Question, tool: CalledTool, arguments: Mapping[str, Any], redactor: Redactor) -> Question:
    """The question with what is shown of its call."""
    return replace(
        question,
        prompt=redactor.excerpt(question.prompt, LONGEST_MESSAGE),
        payload=_shown_payload(question, redactor),
        arguments=arguments_summary(arguments, redactor, tool.secret_paths),
        target={name: redactor.redact(text) for name, text in tool.target.items()},
    )


def _shown_payload(question: Question, redactor: Redactor) -> Mapping[str, Any]:
    """The payload without secrets; what a consent shows is where to sign in, and that is a secret by itself."""
    payload = question.payload
    if question.kind == "consent":
        return payload
    preview = payload.get("preview")
    if isinstance(preview, str):
        payload = {**payload, "preview": redactor.excerpt(preview, _LONGEST_PREVIEW)}
    shown: Mapping[str, Any] = redactor.texts(payload)
    return shown


def with_answerers(question: Question, approvals: Approvals) -> Question:
    """The question with who may answer it by the policy."""
    if question.kind not in _DECIDED:
        return question
    return replace(question, answerers=approvals.answerers, four_eyes=bool(approvals.four_eyes))


class Pausing:
    """Writes pending actions; questions that do not say when they expire live for `ttl_s`."""

    def __init__(self, store: Store, teller: Teller, ids: IdMaker, background: Background, *, ttl_s: float) -> None:
        self._store = store
        self._background = background
        self._teller = teller
        self._ids = ids
        self._ttl_s = ttl_s

    async def pause(self, attempt: Attempt, lane: Lane, question: Question) -> Paused:
        """Keep the call and tell that it waits; the intent of a tool that asked by itself is taken back."""
        question = about_call(question, lane.called, attempt.asked, self._teller.redactor_for(attempt.request, lane))
        question = with_answerers(question, (attempt.verdict or lane.verdict).approvals)
        request, action = attempt.request, self._action(attempt, lane, question)
        keeping = self._background.start(self._keep(action, journaled=attempt.journaled))
        try:
            await asyncio.shield(keeping)
        except asyncio.CancelledError:
            attempt.journaled = False
            self._background.start(self._retract(keeping, action))
            raise
        attempt.journaled = False
        self._teller.paused(attempt.call, action)
        shown = replace(question, state=None)
        return Paused(request.call_id, request.run_id, lane.spec.name, action.id, shown, attempt.elapsed_ms)

    async def _keep(self, action: PendingAction, *, journaled: bool) -> None:
        await self._store.pending.add(action)
        if journaled:
            await self._store.journal.forget(action.call_id, "")

    async def _retract(self, keeping: asyncio.Task[None], action: PendingAction) -> None:
        """The call was stopped while its question was being written: close that again, the call has ended."""
        await keeping
        for closed in await self._store.pending.cancel(action.call_id, tenant=action.asked_by.tenant):
            await self._store.pending.settle(closed.id, closed.status)

    def _action(self, attempt: Attempt, lane: Lane, question: Question) -> PendingAction:
        request, now = attempt.request, time.time()
        return PendingAction(
            id=self._ids.make("ask"),
            question=question,
            call_id=request.call_id,
            run_id=request.run_id,
            tool_name=lane.spec.name,
            arguments=attempt.asked,
            # What became of an interrupted call is asked of the tool; its arguments are those of the intent.
            arguments_hash=tool_hash(lane.spec)
            if question.kind == "unknown"
            else call_hash(lane.spec, lane.validate(request).arguments),
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
            context=keep_context(request.context),
        )
