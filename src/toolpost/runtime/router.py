"""The router: take every call through validation, policy, credential, invocation and result, in one straight line."""

from __future__ import annotations

import asyncio
import copy
import errno
import json
import logging
import time
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from msgspec.structs import replace

from toolpost.catalog.threads import is_interrupt, loop_error
from toolpost.contracts.calls import AuthorizedCall, OutcomeKey, RequestedCall, writable
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    PauseSignal,
    StoreError,
    ToolCancelledError,
    ToolConflictError,
    ToolConnectionError,
    ToolError,
    ToolExecutionError,
    ToolNotFoundError,
    ToolSchemaError,
    ToolSourceDownError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.contracts.events import CALLER, CallRef, EventCode, JsonText
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused, outcome_to_dict
from toolpost.contracts.questions import Answer, OnPending, Question
from toolpost.contracts.storage import EventSink, Journal, KeyRecord, Store
from toolpost.policy.approvals import CalledTool, digest
from toolpost.policy.redaction import Redactor, secret_values
from toolpost.policy.secret_shapes import MASK
from toolpost.runtime.attempt import PARKED, Attempt, ContextDefaults, IdMaker, InFlightCalls
from toolpost.runtime.concurrency import STORE_RETRY_S, BackgroundTasks
from toolpost.runtime.event_emitter import EventEmitter, NotJson, error_facts, snapshot_arguments
from toolpost.runtime.pending import PauseWriter, describe_call, with_answerers
from toolpost.runtime.persistence import current_outcome, dump_outcome, paused_outcome
from toolpost.runtime.raised import format_traceback
from toolpost.runtime.resilience import backoff, may_repeat
from toolpost.runtime.results import CredentialScrubber, LargeResult, Result, ResultCache, ResultProcessor
from toolpost.runtime.tool_runtime import ToolRuntime, ToolRuntimes, Upstream, context_secrets, read_arguments
from toolpost.runtime.tracing import find_call_tracer
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping, Sequence

    from toolpost.auth.credentials import Authorizer
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.calls import Credential, PermittedCall, ToolOutput, ValidatedCall
    from toolpost.contracts.principal import Principal
    from toolpost.policy.rules import Policy

_DEADLINE_SHARE = 0.98  # a call ends with its own error, not with the deadline's, where its source does not come
_REQUESTED, _STARTED = EventCode.TOOL_CALL_REQUESTED, EventCode.TOOL_CALL_STARTED  # an enum lookup runs Python code
_REFUSALS = frozenset({401, 403})  # a refused request has no effect, so that it may be sent again
_MOST_RENEWALS = 2
_WORTH_TRYING = 0.5  # of the time of a try that timed out; the next is not begun with less
# Network errors of the operating system without an exception class of their own.
_NETWORK_ERRNOS = frozenset(
    {errno.ENETDOWN, errno.ENETUNREACH, errno.ENETRESET, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.EADDRNOTAVAIL}
)
_now = time.monotonic


class ConnectingSources(Protocol):
    """The sources of a Toolbox, asked for tools that are not in the catalog yet."""

    @property
    def connecting(self) -> Collection[str]:
        """Names of the sources that are connecting; while there are none, no tool is stale."""
        ...

    def may_have(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog belongs to a source that is connecting or down."""
        ...

    def is_connecting(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog belongs to a source that is connecting."""
        ...

    def is_stale(self, tool_name: str) -> bool:
        """Return whether a tool is in the catalog from an earlier listing, while its server is connecting."""
        ...

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        """Wait for the source of a tool; ToolSourceDownError when the source is down or takes longer."""
        ...


class _NoSources:
    """Default of a router whose catalog has no connecting sources."""

    connecting: Collection[str] = ()

    def may_have(self, tool_name: str) -> bool:
        return False

    is_connecting = is_stale = may_have

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        pass


class ToolRouter:
    """Run calls from request to outcome: validated, permitted, authorized, limited, journaled, with events.

    `sources` answers for tools that are not in the catalog yet. With `joins_repeated`, a call that is repeated while it
    waits is the same call.
    """

    def __init__(
        self,
        registry: ToolRegistry,
        *,
        store: Store,
        policy: Policy,
        authorizer: Authorizer,
        redactor: Redactor,
        sinks: Sequence[EventSink] = (),
        on_pending: OnPending | None = None,
        context_defaults: ContextDefaults | None = None,
        timeout_s: float = 30.0,
        inline_bytes: int = 32_768,
        pending_ttl_s: float = 7 * 24 * 3600.0,
        retry_ratio: float = 0.1,
    ) -> None:
        self.store = store
        self._log = store.events
        self.sources: ConnectingSources = _NoSources()
        self.inflight = InFlightCalls()
        self.background = BackgroundTasks()
        self.emitter = EventEmitter([store.events, *sinks], redactor, self.background, on_pending)
        self.context_defaults = context_defaults or ContextDefaults()
        self._registry = registry
        self.redactor = redactor
        self._auto_emit = True
        self.joins_repeated = True  # of a host that answers by calling again: False
        self._inner = self  # runs the calls that tools make
        self._timeout_s = timeout_s
        self._pending_ttl_s = pending_ttl_s
        self._runtimes = ToolRuntimes(
            registry,
            policy,
            authorizer,
            emitter=self.emitter,
            redactor=redactor,
            timeout_s=timeout_s,
            retry_ratio=retry_ratio,
        )
        self.tracer = find_call_tracer(self._runtimes.find)
        self._invoker = Invoker(store.journal, self.emitter, self.inflight)
        self._results = ResultProcessor(store.artifacts, inline_bytes=inline_bytes)
        self._cache = ResultCache()
        self._keys = IdempotencyKeys(store)
        self._recorder = OutcomeRecorder(store, self._keys, self.background)
        self._ids = IdMaker()
        self._pauses = PauseWriter(store, self.emitter, self._ids, self.background, ttl_s=pending_ttl_s)

    def for_host(self, *sinks: EventSink, registry: ToolRegistry | None = None) -> ToolRouter:
        """Return a router for a host that emits the end of its calls itself, with sinks of its own.

        Calls that tools make end by themselves. `registry` has the host's tools, if not those of this router; all
        else is shared.
        """
        inner = copy.copy(self)
        inner.emitter = self.emitter.with_sinks([self.store.events, *sinks])
        inner._invoker = Invoker(self.store.journal, inner.emitter, self.inflight)  # noqa: SLF001 - a copy of itself, here and below
        inner._pauses = PauseWriter(self.store, inner.emitter, self._ids, self.background, ttl_s=self._pending_ttl_s)  # noqa: SLF001
        if registry is not None:
            inner._registry, inner._runtimes = registry, self._runtimes.over(registry)  # noqa: SLF001
        inner._inner = inner  # noqa: SLF001
        other = copy.copy(inner)
        other._auto_emit = False  # noqa: SLF001
        return other

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str | None,
        principal: Principal,
        run_id: str | None = None,
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        context: ToolContext | None = None,
        task_id: str = "",
        correlation_id: str = "",
        held: tuple[object, ...] = (),
        call_id: str | None = None,
        session: str | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool by name; the arguments may be JSON text, as models write it."""
        # No parameter is for keywords alone, because the interpreter is quicker to call functions without such.
        if isinstance(arguments, str):
            arguments = read_arguments(arguments)
        if timeout_s is not None and not timeout_s > 0:  # NaN too
            raise ValueError(f"timeout_s must be more than 0 seconds, not {timeout_s!r}")
        tick = self._ids.tick()
        has_key = idempotency_key is not None and idempotency_key.__class__ is not OutcomeKey
        if has_key or call_id is not None or not self.joins_repeated:
            session = None  # a call inside another is known by its place, one with a key by its key
        elif session is None:
            session = "" if run_id is None else f"run:{run_id}"
        run_id = f"run_{tick}" if run_id is None else writable(run_id)
        key = None if idempotency_key is None else writable(idempotency_key)
        snapshot = snapshot_arguments({} if arguments is None else arguments)
        request = RequestedCall(
            f"call_{tick}" if call_id is None else call_id,
            run_id,
            tool_name,
            snapshot if snapshot.__class__ is dict else _private(arguments, snapshot),
            principal,
            timeout_s,
            key,
            correlation_id,
            task_id,
            context,
            held=held,
            session=session,
        )
        running = self._run(request, snapshot)
        return running if self.tracer is None else self.tracer.trace(request, running)

    async def resume(self, request: RequestedCall) -> Outcome:
        """Run a paused call again from the top, with one more answer.

        StoreError when the store failed before the call began: nothing ran and no end was emitted, so that the
        question can be answered again.
        """
        running = self._run(request, snapshot_arguments(request.arguments))
        return await (running if self.tracer is None else self.tracer.trace(request, running))

    async def _run(self, request: RequestedCall, snapshot: Any) -> Outcome:
        """Run a requested or resumed call to its outcome; each ends in exactly one event."""
        attempt = self._begin(request, snapshot)
        try:
            if self._log.congested:
                await self._log.drain()
            outcome = await self._advance(attempt)
        except asyncio.CancelledError:
            outcome = (
                await self._park(attempt) if attempt.may_be_parked else self._failed(attempt, self._stopped(attempt))
            )
        except BaseException as raised:  # the caller gets an outcome, and the log an end
            if is_interrupt(raised):
                raise
            outcome = self._failed(attempt, failure_of(raised, attempt.call.tool_name))
        finally:
            self.inflight.leave(attempt)
        if type(outcome) is Failed and _is_unbegun(attempt, outcome.error):
            raise outcome.error
        task = attempt.task
        if task is not None and task.cancelling() != attempt.cancelling:
            return await self._stop(attempt, outcome)
        try:
            if attempt.journaled or request.idempotency_key is not None:
                await self._recorder.record(attempt, outcome)
        finally:
            self._end(attempt, outcome)
        return outcome

    async def _park(self, attempt: Attempt) -> Outcome:
        """Store a stopped call so that the next process on the store runs it from the top."""
        assert attempt.runtime is not None  # noqa: S101 - such a call has begun
        request, prompt = attempt.request, "The process that ran this call has stopped; the next one goes on with it."
        question = Question(kind="restart", prompt=prompt, reason="stopping", key=PARKED)
        try:
            validated = attempt.runtime.validate(request)
            paused = await self._pauses.pause(attempt, attempt.runtime, question, validated)
            # Claimed by this process: whoever looks after calls of dead processes finds it once this one has ended.
            answer, by = Answer(decision="answer"), str(request.principal)
            await self.store.pending.claim(paused.pending_id, answer, by=by, at=time.time())
        except ToolError as error:
            return self._failed(attempt, error)
        return paused

    async def _stop(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """End a call whose task was cancelled: return the outcome, or raise CancelledError if others cancelled it."""
        foreign = attempt.uncancel() and isinstance(outcome, Failed)
        self._end(attempt, outcome)
        if attempt.journaled or attempt.request.idempotency_key is not None:
            await self._recorder.record(attempt, outcome)
        if foreign:
            raise asyncio.CancelledError
        return outcome

    async def _advance(self, attempt: Attempt) -> Outcome:
        """Run all stages in order; each builds the input of the next, and any may return a question."""
        request = attempt.request
        runtime = attempt.runtime or await self._wait_for_runtime(attempt)
        validated = runtime.validate(request)
        if type(attempt.snapshot) is NotJson:
            raise ToolValidationError("$: the arguments are nested too deeply or not JSON", tool_name=runtime.name)

        if request.idempotency_key is not None or runtime.asks_midway:
            earlier = await self._find_earlier(attempt, runtime, validated)
            if earlier is not None:
                return earlier

        permitted = (
            runtime.verdict.review(validated)
            if runtime.previewer is None
            else await self._review(attempt, runtime, validated)
        )
        if type(permitted) is Question:
            return await self._pauses.pause(attempt, runtime, permitted, validated)

        access = runtime.access
        credential = access.shared if access.provider is None else await access.authorize(permitted)
        if type(credential) is Question:
            return await self._pauses.pause(attempt, runtime, credential, validated)

        if runtime.cache_ttl_s is not None and (cached := self._cached(attempt, permitted)):
            return cached

        if not attempt.started:  # emitted once, however often the call is resumed
            self._emit_started(attempt, validated)
        authorized = AuthorizedCall(permitted, credential, attempt.context, runtime.own_try_s)
        output = await self._invoker.invoke(attempt, runtime, authorized)
        if type(output) is Question:
            return await self._pauses.pause(attempt, runtime, output, validated)

        result = self._results.process(output, runtime, attempt.result_json)
        if type(result) is LargeResult:
            readable = self._runtimes.find("artifact_read") is not None
            result = await self._results.store(result, attempt.call, readable=readable)
        return self._complete(attempt, runtime, permitted, result)

    async def _find_earlier(self, attempt: Attempt, runtime: ToolRuntime, call: ValidatedCall) -> Outcome | None:
        """Return the outcome of an earlier call with the same key, or the pause of the same call that waits."""
        if attempt.request.idempotency_key is not None:
            earlier = await self._keys.reserve(call, runtime)
            if earlier is not None:
                return earlier
        return await self._pauses.find_waiting(attempt, runtime) if runtime.asks_midway else None

    async def _wait_for_runtime(self, attempt: Attempt) -> ToolRuntime:
        """Wait for a tool whose source is connecting, or whose schemas take a while to compile.

        The request event waits too, because the tool's schema says which arguments are secret.
        """
        request = attempt.request
        name = request.tool_name
        if not attempt.announced and (self.sources.is_stale(name) or not self._registry.has(name)):
            await self.sources.wait_for_tool(name, within_s=max(0.0, attempt.remaining_s) * _DEADLINE_SHARE)
        runtime = await self._runtimes.prepare(name)
        if not attempt.announced:
            attempt.runtime, attempt.call = runtime, runtime.call_ref(request)
            self._emit_requested(attempt, attempt.snapshot)
            if request.timeout_s is None:
                self.inflight.move_deadline(attempt, runtime.deadline_s)
        return runtime

    async def authorize(
        self, tool_name: str, arguments: Mapping[str, Any], *, principal: Principal
    ) -> AuthorizedCall | Question:
        """Take a call as far as its credential without running it, for what a source does beside calls.

        A ToolError is raised where a call would fail by it.
        """
        await self.await_tool(tool_name)
        runtime = await self._runtimes.prepare(tool_name)
        tick = self._ids.tick()
        request = RequestedCall(f"call_{tick}", f"run_{tick}", tool_name, dict(arguments), principal)
        permitted = runtime.verdict.review(runtime.validate(request))
        if isinstance(permitted, Question):
            return permitted
        credential = await runtime.access.authorize(permitted)
        return credential if isinstance(credential, Question) else AuthorizedCall(permitted, credential, ToolContext)

    async def await_tool(self, tool_name: str) -> None:
        """Wait for a tool whose source is still connecting; ToolSourceDownError when the source is down."""
        if not self._registry.has(tool_name) or self.sources.is_connecting(tool_name):
            await self.sources.wait_for_tool(tool_name, within_s=self._timeout_s)
        if self._registry.has(tool_name):
            with suppress(ToolSchemaError):
                await self._runtimes.prepare(tool_name)

    async def _review(self, attempt: Attempt, runtime: ToolRuntime, call: ValidatedCall) -> PermittedCall | Question:
        """Get the tool's preview of this call, and review the call by it."""
        assert runtime.previewer is not None  # noqa: S101 - checked by the caller
        attempt.preview = preview = await runtime.previewer(call.arguments, attempt.context())
        if preview is None or preview.destructive is None or runtime.verdicts is None:
            return runtime.verdict.review(call, preview)
        attempt.verdict = verdict = runtime.verdicts[preview.destructive]
        return verdict.review(call, preview)

    def _complete(self, attempt: Attempt, runtime: ToolRuntime, permitted: PermittedCall, result: Result) -> Completed:
        """Build the outcome, and cache it where the tool allows."""
        request = attempt.request
        content, attempt.summary, text, artifact_id, meta = result
        artifacts = attempt.artifact_ids if artifact_id is None else (artifact_id, *attempt.artifact_ids)
        took_ms = (_now() - attempt.began) * 1000
        done = Completed(
            request.call_id, request.run_id, runtime.name, content, took_ms, artifacts, text, cached=False, meta=meta
        )
        if runtime.cache_ttl_s is not None and not artifacts:  # an artifact is one tenant's
            self._cache.put(_cache_key(permitted), done, ttl_s=runtime.cache_ttl_s)
        return done

    def _cached(self, attempt: Attempt, permitted: PermittedCall) -> Completed | None:
        cached = self._cache.get(_cache_key(permitted))
        if cached is None:
            return None
        attempt.summary = "from the cache"
        self._emit_started(attempt, permitted.validated)
        request = attempt.request
        return replace(
            cached, call_id=request.call_id, run_id=request.run_id, cached=True, duration_ms=attempt.elapsed_ms
        )

    def _begin(self, request: RequestedCall, snapshot: Any) -> Attempt:
        """Register the call with its deadline for cancellation, and emit its request."""
        name, sources = request.tool_name, self.sources
        runtime = self._runtimes.find(name)
        if runtime is not None and sources.connecting and sources.is_stale(name):
            runtime = None  # wait for the new listing, which may change the schema and the verdict
        call = self._unknown_ref(request) if runtime is None else runtime.call_ref(request)
        timeout_s = request.timeout_s or (self._timeout_s if runtime is None else runtime.deadline_s)
        attempt = self.inflight.begin(self._inner, request, runtime, call, snapshot, timeout_s)
        if runtime is not None or not (self._registry.has(name) or sources.may_have(name)):
            self._emit_requested(attempt, snapshot)
        return attempt

    def _unknown_ref(self, request: RequestedCall) -> CallRef:
        """Return the reference to a call of a tool that is not known, or not yet."""
        call_id, (tenant, user) = request.call_id, request.principal
        correlation = request.correlation_id or call_id
        return CallRef(request.run_id, call_id, request.tool_name, tenant, user, correlation, self.redactor.plain)

    def _emit_requested(self, attempt: Attempt, params: Any) -> None:
        """Emit that a call is requested; a resumed call was announced before its pause."""
        attempt.announced = True
        request = attempt.request
        if not request.answers:
            facts = {"params": params}
            if request.context is not None and request.context.caller:
                facts[CALLER] = request.context.caller
            self.emitter.emit(attempt.call, _REQUESTED, facts)

    def _emit_started(self, attempt: Attempt, call: ValidatedCall) -> None:
        """Emit that a call starts, with a new snapshot of the arguments only where validation changed them."""
        attempt.started = True
        is_known = call.arguments is attempt.request.arguments
        facts = {"input": attempt.snapshot if is_known else snapshot_arguments(call.arguments)}
        self.emitter.emit(attempt.call, _STARTED, facts)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Count the call and emit its end; a pause is no end."""
        if type(outcome) is Paused:
            if outcome.call_id != attempt.request.call_id:
                self.emitter.emit_end(attempt.call, _repeated(attempt, outcome))
            return
        if not attempt.announced:  # its source never connected, so that no schema says which arguments are secret
            arguments: object = attempt.original_arguments
            self._emit_requested(attempt, dict.fromkeys(arguments, MASK) if is_object(arguments) else {})
        if attempt.runtime is not None:
            attempt.runtime.counts.record(outcome.duration_ms, isinstance(outcome, Completed))
        if self._auto_emit:
            journaled = attempt.journaled and attempt.intent_written
            self.emitter.emit_end(attempt.call, outcome, attempt.summary, journaled)

    def _stopped(self, attempt: Attempt) -> ToolError:
        """Return the error of a cancelled call; one that timed out while its source was connecting never began."""
        name = attempt.request.tool_name
        if attempt.stopped == "timeout" and attempt.runtime is None and self.sources.is_connecting(name):
            waited = f"the source of {name!r} is still connecting after {attempt.timeout_s:.1f} s"
            return ToolSourceDownError(f"{waited}; call again, or give it longer", tool_name=name)
        return _stopped(attempt)

    def _failed(self, attempt: Attempt, error: ToolError) -> Failed:
        request, name = attempt.request, attempt.call.tool_name
        error.tool_name = error.tool_name or name
        if attempt.runtime is not None:
            entry = attempt.runtime.entry
            if origin := entry.content_origin:  # the error of a nested call keeps its own
                error.origin, error.is_trusted = origin, entry.is_trusted
            error.is_repeatable = error.is_repeatable and not _is_in_doubt(attempt, attempt.runtime, error)
        redactor = self.redactor if attempt.runtime is None else attempt.runtime.redactor_for(request)
        error.conceal(redactor.message)
        if error.is_uncaught:
            error.traceback = format_traceback(error, redactor.redact)
            _tool_log.error("%s raised %s (run %s)", name, error.message, request.run_id, exc_info=error.__cause__)
        return Failed(request.call_id, request.run_id, name, error, attempt.elapsed_ms)

    async def describe_interrupted(
        self, asked: Question, tool_name: str, call: Mapping[str, Any]
    ) -> tuple[Question, str]:
        """Return a question with the details of an interrupted call in the journal, and the tool's hash.

        The hash is of the tool in the catalog; where it is missing, of the tool that was called.
        """
        arguments = call["arguments"]
        try:
            tool = (await self._runtimes.prepare(tool_name)).called
        except (ToolNotFoundError, ToolSchemaError):
            tool = CalledTool(*call.get("tool", ()))
        redactor = self.redactor.with_secrets(secret_values(arguments, tool.secret_paths))
        shown = describe_call(asked, tool, arguments, redactor)
        return with_answerers(shown, self._runtimes.approvals(tool_name)), tool.digest

    def resumes(self, tool_name: str) -> bool:
        """Return whether a tool of the catalog runs again from its top after a crash."""
        return self._registry.has(tool_name) and self._registry.find(tool_name).spec.resumes

    def denies(self, tool_name: str) -> bool:
        """Return whether the policy refuses every call of a tool of the catalog."""
        return self._runtimes.denies(tool_name)

    @property
    def blocks_changes(self) -> bool:
        """Whether a changed definition that no lock file pins blocks the calls of its tool."""
        return self._runtimes.blocks_changes

    def set_policy(self, policy: Policy) -> None:
        """Judge calls that begin from now on by another policy; those in flight keep their verdicts."""
        self._runtimes.set_policy(policy)

    def new_id(self, prefix: str) -> str:
        """Return a new unique id."""
        return self._ids.make(prefix)

    async def park(self, *, within_s: float) -> None:
        """Let running calls finish within a time; park those that may be repeated then, and cancel the others."""
        await self.inflight.finish(within_s=within_s)
        await self.inflight.park_all()

    async def close(self) -> None:
        """Cancel running calls and wait for pending writes."""
        await self.inflight.stop_all()
        await self.background.finish(patience_s=STORE_RETRY_S * 2)
        self.inflight.close()
        await self.inflight.stop_all()  # calls that background tasks began


class Invoker:
    """Run authorized calls to an output, a question or an error."""

    def __init__(self, journal: Journal, emitter: EventEmitter, inflight: InFlightCalls) -> None:
        self._journal = journal
        self._emitter = emitter
        self._bound_try = inflight.bound_try
        self._scrubber = CredentialScrubber()

    async def invoke(self, attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call until it succeeds or must not be repeated; whatever the tool raises becomes a ToolError.

        A credential that the server refuses is renewed, and the user is asked where that fails.
        """
        request, limiters, start, read_output = attempt.request, runtime.limiters, runtime.start, runtime.output
        upstream = runtime.upstream if runtime.hosts is None else runtime.hosts.of(call)
        tries, try_s = 0, runtime.try_s
        while True:
            tries += 1
            if upstream.breaker.failures:
                upstream.breaker.admit(runtime.name)
            if limiters and not runtime.try_acquire(request.held):
                await runtime.acquire(request.held)
            began, error = _now(), None
            try:
                if runtime.journaled and not attempt.journaled:
                    await self._journal_intent(attempt)
                attempt.invoked = True
                self._bound_try(attempt, began + try_s)
                value = await start(call)
                output = value if read_output is None else read_output(value)
            except BaseException as raised:  # noqa: BLE001 - foreign code is called here
                output, error = _read_exception(raised, attempt, runtime, upstream)
            finally:
                if limiters:
                    runtime.release(request.held)
                attempt.end_try()
            if error is None:
                if upstream.breaker.failures or upstream.budget.spent:
                    upstream.succeeded()
                holds_secrets = runtime.access.secrets or call.credential.headers or request.context is not None
                return await self._scrub(output, attempt, runtime, call.credential) if holds_secrets else output
            credential = await self._wait_for_retry(attempt, runtime, upstream, call, error, tries, _now() - began)
            if isinstance(credential, Question):
                return credential
            tries = tries if credential is call.credential else 0
            call = replace(call, credential=credential)

    async def _scrub(
        self, output: ToolOutput | Question, attempt: Attempt, runtime: ToolRuntime, credential: Credential
    ) -> ToolOutput | Question:
        """Mask the credential of the call, and the secrets of its source and its context, in the output."""
        secrets = runtime.access.secrets | context_secrets(attempt.request)
        if isinstance(output, Question) or not (secrets or credential.headers):
            return output
        output, attempt.result_json = await self._scrubber.scrub(output, credential, secrets)
        return output

    async def _journal_intent(self, attempt: Attempt) -> None:
        """Write the intent to the journal; from here on the call may have had its effect."""
        attempt.journaled = True  # first: the deadline may pass while the intent is being written
        try:
            await self._journal.begin(attempt.journal_entry(""))
            attempt.intent_written = True
        except Exception:
            attempt.journaled = False  # without an intent nothing ran, and there is no result to record
            raise

    async def _wait_for_retry(
        self,
        attempt: Attempt,
        runtime: ToolRuntime,
        upstream: Upstream,
        call: AuthorizedCall,
        error: ToolError,
        tries: int,
        took_s: float,
    ) -> Credential | Question:
        """Wait until the next try without holding a slot, and return its credential, or the question that gets one.

        Raise the error when there must not be a next try.
        """
        upstream.breaker.failed(error)
        wait = backoff(tries, error, runtime.retry_policy)
        if (
            tries >= runtime.retry_policy.max_attempts
            or not may_repeat(error, runtime.spec.replay, runtime.retry_policy)
            # After a timeout, a try with much less time than the last would only time out again.
            or wait + (took_s * _WORTH_TRYING if isinstance(error, ToolTimeoutError) else 0.0) >= attempt.remaining_s
            or not upstream.budget.withdraw()
        ):
            return await _renewed(attempt, runtime, call, error)
        self._emitter.emit(attempt.call, EventCode.CALL_RETRIED, {"tries": tries, "wait_s": wait, **error_facts(error)})
        await asyncio.sleep(wait)
        return call.credential


async def _renewed(
    attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall, refused: ToolError
) -> Credential | Question:
    """Return another credential for a refused call, or the question that gets one; raise where neither helps."""
    attempt.renewals += 1
    may_renew = refused.status_code in _REFUSALS and attempt.renewals <= _MOST_RENEWALS
    better = await runtime.access.renewed(call, refused) if may_renew else None
    if better is None:
        raise refused
    return better


def _read_exception(
    raised: BaseException, attempt: Attempt, runtime: ToolRuntime, upstream: Upstream
) -> tuple[Any, ToolError | None]:
    """Return the question or the error that a tool raised; a cancellation from outside is raised again."""
    if isinstance(raised, PauseSignal):
        return raised.question, None
    has_expired = attempt.end_try()
    stopped = isinstance(raised, asyncio.CancelledError) and attempt.is_cancelled
    if stopped or is_interrupt(raised):
        upstream.breaker.abandoned()
        raise raised
    error = _expired(attempt, runtime, raised) if has_expired else failure_of(raised, runtime.name)
    if isinstance(error, ToolTimeoutError):
        error.bound = "attempt"
    error.conceal(runtime.redactor_for(attempt.request).message)
    return None, error


def _expired(attempt: Attempt, runtime: ToolRuntime, raised: BaseException) -> ToolTimeoutError:
    """Return the error of a try that took longer than `timeout_s` of its source or tool."""
    timeout_ms = round(runtime.try_s * 1000, 3)
    message = f"Tool execution timed out after {timeout_ms:g}ms, the limit of one attempt (timeout_s){_doubt(attempt)}"
    return ToolTimeoutError(message, timeout_ms=timeout_ms, tool_name=runtime.name, cause=raised)


def _doubt(attempt: Attempt) -> str:
    return "; it may have taken effect all the same" if attempt.journaled else ""


def failure_of(raised: BaseException, tool_name: str) -> ToolError:
    """Return the ToolError for an exception; the message names its type, because its own message often says little."""
    raised = loop_error(raised)
    if isinstance(raised, ToolError):
        raised.tool_name = raised.tool_name or tool_name
        return raised
    message = f"{type(raised).__name__}: {str(raised) or 'no message'}"
    error: ToolError
    if isinstance(raised, TimeoutError):
        error = ToolTimeoutError(message, tool_name=tool_name, cause=raised)
    elif isinstance(raised, ConnectionError) or (isinstance(raised, OSError) and raised.errno in _NETWORK_ERRNOS):
        error = ToolConnectionError(message, tool_name=tool_name, cause=raised)
    else:
        error = ToolExecutionError(message, tool_name=tool_name, cause=raised)
    error.is_uncaught = True
    return error


def _repeated(attempt: Attempt, waiting: Paused) -> Failed:
    """Return the end of a call for which an earlier one waits: in the log, each call has its own."""
    request, name = attempt.request, attempt.call.tool_name
    message = f"nothing was run: the same call waits as {waiting.pending_id}"
    error = ToolConflictError(message, tool_name=name, code="already_waiting")
    return Failed(request.call_id, request.run_id, name, error, attempt.elapsed_ms)


def _is_unbegun(attempt: Attempt, error: ToolError) -> bool:
    """Return whether a resumed call could not begin, because its intent could not be written."""
    return isinstance(error, StoreError) and not attempt.invoked and attempt.request.pending_id is not None


def _private(arguments: Any, snapshot: Any) -> Any:
    """Return arguments that the caller cannot change, so that the validated arguments are those that run."""
    return json.loads(snapshot) if snapshot.__class__ is JsonText else arguments


def _is_in_doubt(attempt: Attempt, runtime: ToolRuntime, error: ToolError) -> bool:
    """Return whether a call may have taken effect, and would take it twice if it were made again."""
    if not attempt.invoked or runtime.spec.replay != "unsafe":
        return False
    return isinstance(error, ToolTimeoutError) or (isinstance(error, ToolConnectionError) and error.sent)


def _stopped(attempt: Attempt) -> ToolError:
    """Return the error of a call that timed out, was cancelled, or whose caller was cancelled."""
    name = attempt.call.tool_name
    doubt = _doubt(attempt)
    if attempt.stopped == "timeout":
        timeout_ms = round(attempt.timeout_s * 1000, 3)
        message = f"Tool execution timed out after {timeout_ms:g}ms{doubt}"
        return ToolTimeoutError(message, timeout_ms=timeout_ms, bound="call", tool_name=name)
    if attempt.stopped == "stopping":
        message = f"the process that ran the call has stopped before it ended{doubt}"
        return ToolCancelledError(message, tool_name=name, code="stopped")
    who = "the call was cancelled" if attempt.stopped else "the caller was cancelled"
    return ToolCancelledError(f"{who}{doubt}", tool_name=name)


def _cache_key(permitted: PermittedCall) -> tuple[str, ...]:
    """Return the cache key of a call; only pure tools share results between principals."""
    call = permitted.validated
    spec = call.tool.spec
    who = "" if spec.side_effects == "pure" else str(call.request.principal)
    return (spec.name, spec.version, who, json.dumps(call.arguments, sort_keys=True, default=str))


# ---------------------------------------------------------------- idempotency keys and recorded outcomes

_log = logging.getLogger("toolpost.runtime")
_tool_log = logging.getLogger("toolpost.tools")


class IdempotencyKeys:
    """Reserve keys for calls; a key that was used before returns its outcome instead."""

    def __init__(self, store: Store) -> None:
        self._store = store

    async def reserve(self, validated: ValidatedCall, runtime: ToolRuntime) -> Outcome | None:
        """Reserve the key of a call and return None; if the key was used, return its outcome or raise a conflict."""
        request = validated.request
        if request.idempotency_key is None or request.answers:
            return None  # a resumed call holds its key already
        record = KeyRecord(
            call_id=request.call_id,
            tool_name=runtime.spec.name,
            # Not the tool's hash: a tool whose description changes keeps its keys.
            arguments_hash=digest(validated.arguments),
        )
        holder = await self._store.keys.reserve(request.principal, request.idempotency_key, record)
        if holder is None:
            return None
        if (holder.tool_name, holder.arguments_hash) != (record.tool_name, record.arguments_hash):
            msg = f"idempotency key {request.idempotency_key!r} was used for another call; use a new key"
            raise ToolConflictError(msg, tool_name=runtime.spec.name, code="key_mismatch")
        return await self._outcome_of(request, holder, record)

    async def _outcome_of(self, request: RequestedCall, holder: KeyRecord, record: KeyRecord) -> Outcome | None:
        """Return the outcome of the call that holds the key; None where that call died before it began."""
        key, store = request.idempotency_key or "", self._store
        if holder.outcome is not None:
            return await current_outcome(store.pending, holder.outcome)
        if holder.owner_alive:
            msg = f"a call with idempotency key {key!r} is still running; ask again when it has ended"
            raise ToolConflictError(msg, tool_name=record.tool_name, code="in_progress", retry_after_s=1.0)
        entry = await store.journal.find(holder.call_id, "")
        if entry is not None and entry.done:
            return await current_outcome(store.pending, entry.result)
        if entry is not None:
            msg = f"the call with key {key!r} was interrupted and may have happened; a person is asked whether it did"
            raise ToolConflictError(msg, tool_name=record.tool_name, code="outcome_unknown")
        tenant = request.principal.tenant
        for action in await store.pending.list(tenant=tenant, status=None, call_id=holder.call_id, limit=1):
            # The process died after it wrote the question and before it settled the key.
            paused = outcome_to_dict(await paused_outcome(store.pending, action))
            await store.keys.settle(request.principal, key, paused)
            return await current_outcome(store.pending, paused)
        await store.keys.release(request.principal, key, call_id=holder.call_id)
        if await store.keys.reserve(request.principal, key, record) is None:
            return None
        msg = f"a call with idempotency key {key!r} has just been started elsewhere; ask again when it has ended"
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
            await self._store.keys.release(request.principal, key, call_id=request.call_id)
        else:
            await self._store.keys.settle(request.principal, key, data)


class OutcomeRecorder:
    """Write outcomes of calls with effects or keys, also when the caller is gone or the store is unavailable."""

    def __init__(self, store: Store, keys: IdempotencyKeys, background: BackgroundTasks) -> None:
        self._journal = store.journal
        self._keys = keys
        self._background = background

    async def record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Write an outcome; a cancellation of the caller does not stop the write."""
        await asyncio.shield(self._background.start(self._record(attempt, outcome)))

    async def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        request, data = attempt.request, dump_outcome(outcome)
        try:
            await self._write(attempt, outcome, data)
        except StoreError as error:
            _log.error("the result of %s (%s) waits to be recorded: %s", request.call_id, request.tool_name, error)
            self._background.retry_write(partial(self._write_later, attempt, outcome, data))

    async def _write_later(self, attempt: Attempt, outcome: Outcome, data: Mapping[str, Any]) -> None:
        """Write an outcome once the store is back; a known result must not become a question."""
        if attempt.journaled and await self._journal.find(attempt.request.call_id, "") is None:
            attempt.journaled = False  # the intent was never written
        await self._write(attempt, outcome, data)

    async def _write(self, attempt: Attempt, outcome: Outcome, data: Mapping[str, Any]) -> None:
        if attempt.journaled:
            await self._journal.finish(attempt.request.call_id, "", data)
        await self._keys.settle(attempt, outcome, data)
