"""Pause calls: store their questions as pending actions, and find the same call if it waits already."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.contracts.errors import ToolCancelledError
from toolpost.contracts.outcomes import Failed, Paused
from toolpost.contracts.questions import PendingAction, Question
from toolpost.contracts.sources import HoldingSource
from toolpost.policy.call_hashes import call_hash, same_call_hash, tool_hash
from toolpost.policy.call_summary import arguments_summary
from toolpost.policy.redaction import LONGEST_MESSAGE, Redactor
from toolpost.runtime.persistence import dump_context, dump_outcome, paused_outcome

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from toolpost.contracts.calls import RequestedCall, ValidatedCall
    from toolpost.policy.approvals import Approvals
    from toolpost.policy.call_hashes import CalledTool
    from toolpost.runtime.attempt import Attempt
    from toolpost.runtime.services import RuntimeServices
    from toolpost.runtime.tool_runtime import ToolRuntime

_LONGEST_PREVIEW = 8000
_NEVER_SAME = frozenset({"restart", "unknown"})  # no question, or one about an earlier attempt
_DECIDED = frozenset({"approval", "unknown"})  # the other kinds request data that only the caller has


class PauseWriter:
    """Write pending actions; a question without its own expiry expires after `ttl_s`."""

    def __init__(self, services: RuntimeServices, *, ttl_s: float) -> None:
        self._store = services.store
        self._background = services.background
        self._emitter = services.emitter
        self._ids = services.ids
        self._now = services.clock.wall
        self._ttl_s = ttl_s

    async def pause(
        self, attempt: Attempt, runtime: ToolRuntime, question: Question, validated: ValidatedCall
    ) -> Paused:
        """Store the call with its question and emit the pause; the intent of a tool that paused is removed."""
        redactor = runtime.redactor_for(attempt.request)
        question = describe_call(question, runtime.called, attempt.original_arguments, redactor)
        approvals = (attempt.verdict or runtime.verdict).approvals
        question = with_answerers(question, approvals, unattended=_is_unattended(attempt.request))
        action = self._action(attempt, runtime, question, validated)
        paused = await paused_outcome(self._store.pending, action)
        # A resumed call is never the same as another.
        writing = self._background.start(self._store.pending.add(action, unless_waiting=not action.answers))
        try:
            waiting = await asyncio.shield(writing)
        except asyncio.CancelledError:
            if attempt.stopped != "stopping":
                attempt.journaled = False
                self._background.start(self._retract(writing, action))
                raise
            waiting = await writing  # the call ends here, and can be answered in another process
        attempt.journaled = False
        if waiting is not None:
            return await self._join(attempt, runtime, action, waiting)
        self._emitter.emit_pause(attempt.call, action)
        return replace(paused, duration_ms=attempt.elapsed_ms)

    async def find_waiting(self, attempt: Attempt, runtime: ToolRuntime) -> Paused | None:
        """Return the pause of the same call if it waits already; None for a call that may be another one.

        A call with responses of its client starts: it may not need to wait.
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
        waiting = await self._store.pending.find_waiting(same_call, at=self._now())
        if waiting is None:
            return None
        attempt.joined = True
        return await paused_outcome(self._store.pending, waiting)

    async def _join(
        self, attempt: Attempt, runtime: ToolRuntime, action: PendingAction, waiting: PendingAction
    ) -> Paused:
        """Return the pause of the same call that waits already, and close the nested calls of this one."""
        attempt.joined = True
        source = runtime.entry.source
        if isinstance(source, HoldingSource):
            source.release(action.call_id)
        await self._close_inside(attempt, action)
        if waiting.question.kind == action.question.kind == "consent":  # a sign-in link expires
            await self._store.pending.renew(waiting.id, action.question)
            waiting = replace(waiting, question=action.question)
        paused = await paused_outcome(self._store.pending, waiting)
        return replace(paused, duration_ms=attempt.elapsed_ms)

    async def _close_inside(self, attempt: Attempt, action: PendingAction) -> None:
        """Cancel the pending actions of the nested calls of a call that does not wait for them."""
        for call_id in inner_calls(action):
            for closed in await self._store.pending.cancel(call_id, tenant=action.asked_by.tenant):
                error = ToolCancelledError("its parent call is the same as one that waits already")
                failed = Failed(closed.call_id, closed.run_id, closed.tool_name, error)
                call = replace(attempt.call, call_id=closed.call_id, tool_name=closed.tool_name)
                self._emitter.emit_end(call, failed)
                await self._store.pending.settle(closed.id, closed.status, outcome=dump_outcome(failed))
                await self._close_inside(attempt, closed)

    async def _retract(self, writing: asyncio.Task[PendingAction | None], action: PendingAction) -> None:
        """Close the question of a call that was cancelled while the question was being written.

        The same call may already wait for it, and gets the outcome.
        """
        await writing
        for closed in await self._store.pending.cancel(action.call_id, tenant=action.asked_by.tenant):
            error = ToolCancelledError(
                "the call was cancelled while its question was being written", tool_name=closed.tool_name
            )
            failed = Failed(closed.call_id, closed.run_id, closed.tool_name, error)
            await self._store.pending.settle(closed.id, closed.status, outcome=dump_outcome(failed))

    def _action(
        self, attempt: Attempt, runtime: ToolRuntime, question: Question, validated: ValidatedCall
    ) -> PendingAction:
        request, now = attempt.request, self._now()
        if question.kind == "unknown":  # an interrupted call is bound to its tool; the intent contains its arguments
            bound = tool_hash(runtime.spec)
        else:  # an invoked tool may have changed its arguments
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
            owner=attempt.owner,
        )


def _is_unattended(request: RequestedCall) -> bool:
    """Return whether no person uses the MCP client that made a call; a resumed call has no client."""
    client = None if request.context is None else request.context.client
    return request.unattended or (client is not None and not client.interactive)


def _same_call(attempt: Attempt, runtime: ToolRuntime) -> str:
    """Return the hash that identifies a repeated call as the same; empty if no call is the same."""
    request = attempt.request
    if request.session is None:
        return request.same_call
    given = request.context
    beside = () if given is None else (given.tool_context, given.llm_context)
    return same_call_hash(runtime.called, attempt.original_arguments, request.principal, request.session, beside)


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
    """Return the payload with secrets masked; that of a consent contains a sign-in URL, which must be complete."""
    payload = question.payload
    if question.kind == "consent":
        return payload
    preview = payload.get("preview")
    if isinstance(preview, str):
        payload = {**payload, "preview": redactor.excerpt(preview, _LONGEST_PREVIEW)}
        if len(preview) > _LONGEST_PREVIEW:
            payload["truncated"] = True
    shown: Mapping[str, Any] = redactor.texts(payload)
    return shown


def with_answerers(question: Question, approvals: Approvals, *, unattended: bool = False) -> Question:
    """Return the question with the answerers of the policy.

    They also answer questions of a tool or a server if no person uses the MCP client that made the call.
    """
    if question.kind == "input" and (approvals.person or unattended):
        question = replace(question, person=True)
    is_decided = question.kind in _DECIDED or question.person
    if not is_decided or question.needs_operator:
        return question
    return replace(question, answerers=approvals.answerers, four_eyes=bool(approvals.four_eyes))


def inner_calls(action: PendingAction) -> Collection[str]:
    """Return the ids of the nested calls that a call waits for; most calls wait for a person instead."""
    calls: Collection[str] = action.question.payload.get("calls", ()) if action.question.kind == "call" else ()
    return calls
