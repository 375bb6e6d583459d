"""The router: run every call through validation, policy, credential, invocation and result."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol, Self

from msgspec.structs import replace

from toolpost.catalog.threads import is_interrupt
from toolpost.contracts.calls import AuthorizedCall, OutcomeKey, RequestedCall
from toolpost.contracts.clock import SYSTEM_CLOCK, Clock
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import (
    PauseSignal,
    StoreError,
    TakenOverError,
    ToolConflictError,
    ToolError,
    ToolSchemaError,
    ToolSourceDownError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.contracts.events import CALLER, CallRef, EventCode, JsonText
from toolpost.contracts.ids import writable
from toolpost.contracts.outcomes import Completed, Failed, Outcome, Paused
from toolpost.contracts.questions import Answer, Question
from toolpost.policy.secret_shapes import MASK
from toolpost.runtime.arguments import read_arguments
from toolpost.runtime.attempt import PARKED, Attempt, Try
from toolpost.runtime.concurrency import STORE_RETRY_S
from toolpost.runtime.event_emitter import NotJson, error_facts, snapshot_arguments
from toolpost.runtime.explanation import Explainer
from toolpost.runtime.failures import expired_error, failure_of, format_traceback, is_in_doubt, stopped_error
from toolpost.runtime.guards import CallGuards
from toolpost.runtime.idempotency import IdempotencyKeys, OutcomeRecorder
from toolpost.runtime.pauses import PauseWriter
from toolpost.runtime.resilience import backoff, may_repeat
from toolpost.runtime.results import CredentialScrubber, LargeResult, Result, ResultProcessor
from toolpost.runtime.services import RuntimeServices
from toolpost.runtime.tool_context import ContextDefaults, build_context
from toolpost.runtime.tool_runtime import CallTraits, ToolRuntime, ToolRuntimes, context_secrets
from toolpost.runtime.tracing import CallTracer
from toolpost.schema.json_values import is_object

if TYPE_CHECKING:
    from collections.abc import Collection, Coroutine, Mapping, Sequence

    from toolpost.auth.credentials import Authorizer, SourceAccess
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.calls import Credential, PermittedCall, ToolOutput, ValidatedCall
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import OnPending
    from toolpost.contracts.storage import EventSink, Journal, Store
    from toolpost.policy.redaction import Redactor
    from toolpost.policy.rules import Policy
    from toolpost.runtime.attempt import InFlightCalls
    from toolpost.runtime.event_emitter import EventEmitter
    from toolpost.runtime.gates import Gates
    from toolpost.runtime.guards import Upstream

_tool_log = logging.getLogger("toolpost.tools")
_DEADLINE_SHARE = 0.98  # a call fails with the error of a source that does not connect, not with that of its deadline
# Saves 0.3 µs per call, with that of the emitter (measured 2026-11): the lookup of an enum member runs Python code.
_REQUESTED, _STARTED = EventCode.TOOL_CALL_REQUESTED, EventCode.TOOL_CALL_STARTED
_REFUSALS = frozenset({401, 403})  # a refused request has no effect, and may be sent again
_MOST_RENEWALS = 2
_WORTH_RETRYING = 0.5  # of the duration of an attempt that timed out; with less time left, the call is not retried


@dataclass(frozen=True, slots=True, kw_only=True)
class CallLimits:
    """Limits of a router's calls: default deadline, largest inline result, expiry of questions, share of retries."""

    timeout_s: float = 30.0
    inline_bytes: int = 32_768
    pending_ttl_s: float = 7 * 24 * 3600.0
    retry_ratio: float = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class RouterOptions:
    """Options of a router; `ToolRouter.create` describes them."""

    context_defaults: ContextDefaults
    limits: CallLimits
    sources: ConnectingSources
    joins_repeated: bool = True
    trace_arguments: bool = False
    emits_end: bool = True


class ToolRouter:
    """Run calls from request to outcome: validated, permitted, authorized, limited, journaled, with events.

    `nested` runs the calls that tools make; by default this router does.
    """

    def __init__(
        self,
        runtimes: ToolRuntimes,
        services: RuntimeServices,
        options: RouterOptions,
        *,
        nested: ToolRouter | None = None,
    ) -> None:
        self.store = store = services.store
        self._owned = store.journal
        self.redactor = services.redactor
        self.emitter = services.emitter
        self.inflight = services.inflight
        self.background = services.background
        self.clock = services.clock
        self.sources = options.sources
        self.context_defaults = options.context_defaults
        self._services = services
        self._options = options
        self._limits = limits = options.limits
        self._log = store.events
        self._cache = services.cache
        self._ids = services.ids
        self._now = services.clock.monotonic
        self.guards = runtimes.guards
        self._runtimes = runtimes
        self._registry = runtimes.registry
        self._nested = nested or self
        self.explainer = Explainer(runtimes, self._nested, services)
        self._joins_repeated, self._emits_end = options.joins_repeated, options.emits_end
        self.tracer: CallTracer | None = None
        if services.tracer is not None:
            self.tracer = CallTracer(services.tracer, runtimes.find, with_arguments=options.trace_arguments)
        self._invoker = Invoker(store.journal, self.emitter, self.inflight, self.guards.gates, services.clock)
        self._results = ResultProcessor(store.artifacts, inline_bytes=limits.inline_bytes, clock=services.clock)
        self._keys = IdempotencyKeys(store)
        self._recorder = OutcomeRecorder(store, self._keys, self.background)
        self._pauses = PauseWriter(services, ttl_s=limits.pending_ttl_s)

    @classmethod
    def create(  # noqa: PLR0913 - one declaration; all but the first are keyword-only
        cls,
        registry: ToolRegistry,
        *,
        store: Store,
        policy: Policy,
        authorizer: Authorizer,
        redactor: Redactor,
        sinks: Sequence[EventSink] = (),
        on_pending: OnPending | None = None,
        context_defaults: ContextDefaults | None = None,
        limits: CallLimits | None = None,
        sources: ConnectingSources | None = None,
        joins_repeated: bool = True,
        trace_arguments: bool = False,
        clock: Clock = SYSTEM_CLOCK,
    ) -> Self:
        """Create a router for the tools of a registry, with the services and guards that it needs.

        `sources` finds tools that are not in the catalog yet. With `joins_repeated`, a call that is repeated while it
        waits is the same call; a host that answers by calling again needs False. With `trace_arguments`, spans contain
        the redacted arguments.
        """
        limits = limits or CallLimits()
        services = RuntimeServices.create(store, redactor, sinks=sinks, on_pending=on_pending, clock=clock)
        guards = CallGuards(
            policy,
            authorizer,
            emitter=services.emitter,
            redactor=redactor,
            limits=store.limits,
            background=services.background,
            timeout_s=limits.timeout_s,
            retry_ratio=limits.retry_ratio,
            clock=clock,
        )
        options = RouterOptions(
            context_defaults=context_defaults or ContextDefaults(),
            limits=limits,
            sources=sources or NoSources(),
            joins_repeated=joins_repeated,
            trace_arguments=trace_arguments,
        )
        return cls(ToolRuntimes(registry, guards), services, options)

    def for_host(self, *sinks: EventSink, registry: ToolRegistry | None = None) -> ToolRouter:
        """Return a router for a host that emits the end of its calls itself, with its own sinks.

        Nested calls emit their end. `registry` contains the host's tools; the default is that of this router. Policy,
        limits, store and running calls are shared.
        """
        emitter = self.emitter.with_sinks([self.store.events, *sinks])
        services = dataclasses.replace(self._services, emitter=emitter)
        runtimes = self._runtimes if registry is None else self._runtimes.over(registry)
        options = dataclasses.replace(self._options, emits_end=False)
        nested = ToolRouter(runtimes, services, self._options)
        return ToolRouter(runtimes, services, options, nested=nested)

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str | None,
        *,
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
        if isinstance(arguments, str):
            arguments = read_arguments(arguments)
        if timeout_s is not None and not timeout_s > 0:  # NaN too
            raise ValueError(f"timeout_s must be more than 0 seconds, not {timeout_s!r}")
        random_part = self._ids.random_part()
        has_key = idempotency_key is not None and idempotency_key.__class__ is not OutcomeKey
        if has_key or call_id is not None or not self._joins_repeated:
            session = None  # a nested call is identified by its position, one with a key by its key
        elif session is None:
            session = "" if run_id is None else f"run:{run_id}"
        run_id = f"run_{random_part}" if run_id is None else writable(run_id)
        key = None if idempotency_key is None else writable(idempotency_key)
        snapshot = snapshot_arguments({} if arguments is None else arguments)
        private = snapshot  # the caller cannot change it
        if snapshot.__class__ is not dict:
            private = json.loads(snapshot) if snapshot.__class__ is JsonText else arguments
        request = RequestedCall(
            f"call_{random_part}" if call_id is None else call_id,
            run_id,
            tool_name,
            private,
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
        """Run a paused call again from its start, with one more answer.

        Raise StoreError if the store failed before the call began: nothing ran and no end was emitted, and
        the question can be answered again.
        """
        running = self._run(request, snapshot_arguments(request.arguments))
        return await (running if self.tracer is None else self.tracer.trace(request, running))

    async def _run(self, request: RequestedCall, snapshot: Any) -> Outcome:
        """Run a requested or resumed call to its outcome; each ends with exactly one event."""
        attempt = self._begin(request, snapshot)
        try:
            if self._log.congested:
                await self._log.drain()
            outcome = await self._advance(attempt)
        except asyncio.CancelledError:
            outcome = (
                await self._park(attempt) if attempt.may_be_parked else self._failed(attempt, self._stopped(attempt))
            )
        except BaseException as raised:  # every call has an outcome, and an end in the log
            if is_interrupt(raised):
                raise
            outcome = self._failed(attempt, failure_of(raised, attempt.call.tool_name))
        finally:
            self.inflight.leave(attempt)
        is_unbegun = request.pending_id is not None and not attempt.invoked
        if is_unbegun and type(outcome) is Failed and isinstance(outcome.error, StoreError):
            raise outcome.error  # the intent of a resumed call could not be written
        task = attempt.task
        if task is not None and task.cancelling() != attempt.cancelling:
            return await self._stop(attempt, outcome)
        await self._record(attempt, outcome)
        return outcome

    async def _record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Emit the end of a call once its outcome is recorded; after a crash in between, the call has not ended."""
        if attempt.journaled or attempt.request.idempotency_key is not None:
            await self._recorder.record(attempt, outcome, partial(self._end, attempt, outcome))
        else:
            self._end(attempt, outcome)

    async def _park(self, attempt: Attempt) -> Outcome:
        """Suspend a stopped call for restart: the next process on the store runs it from its start."""
        assert attempt.runtime is not None  # noqa: S101 - such a call has begun
        request, prompt = attempt.request, "The process that ran this call has stopped; the next process resumes it."
        question = Question(kind="restart", prompt=prompt, reason="stopping", key=PARKED)
        try:
            validated = attempt.runtime.validate(request)
            paused = await self._pauses.pause(attempt, attempt.runtime, question, validated)
            # Claimed by this process: recovery finds it after this process has ended.
            answer, by = Answer(decision="answer"), str(request.principal)
            await self.store.pending.claim(paused.pending_id, answer, by=by, at=self.clock.wall())
        except ToolError as error:
            return self._failed(attempt, error)
        return paused

    async def _stop(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """End a call with a cancelled task: return the outcome, or raise CancelledError if its caller cancelled it."""
        foreign = attempt.uncancel() and isinstance(outcome, Failed)
        await self._record(attempt, outcome)
        if foreign:
            raise asyncio.CancelledError
        return outcome

    async def _advance(self, attempt: Attempt) -> Outcome:
        """Run all stages in order. Each builds the input of the next; each may return a question."""
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
        credential = access.shared if access.provider is None else await _authorize(attempt, access, permitted)
        if type(credential) is Question:
            return await self._pauses.pause(attempt, runtime, credential, validated)

        if runtime.cache_ttl_s is not None and (cached := self._cached(attempt, permitted)):
            return cached

        if not attempt.started:  # emitted once, even if the call is resumed
            self._emit_started(attempt, validated)
        authorized = AuthorizedCall(
            permitted, credential, partial(build_context, self._nested, attempt), runtime.own_attempt_s
        )
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
        """Wait for a tool of a connecting source, or for the compilation of large schemas.

        The request event waits too, because the schema of the tool marks secret arguments.
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
        """Validate, permit and authorize a call without running it, for other requests to its source.

        Raise the ToolError with which the call would fail.
        """
        await self.await_tool(tool_name)
        runtime = await self._runtimes.prepare(tool_name)
        random_part = self._ids.random_part()
        request = RequestedCall(f"call_{random_part}", f"run_{random_part}", tool_name, dict(arguments), principal)
        permitted = runtime.verdict.review(runtime.validate(request))
        if isinstance(permitted, Question):
            return permitted
        credential = await runtime.access.authorize(permitted)
        return credential if isinstance(credential, Question) else AuthorizedCall(permitted, credential, ToolContext)

    async def await_tool(self, tool_name: str) -> None:
        """Wait for a tool of a connecting source; ToolSourceDownError if the source is down."""
        if not self._registry.has(tool_name) or self.sources.is_connecting(tool_name):
            await self.sources.wait_for_tool(tool_name, within_s=self._limits.timeout_s)
        if self._registry.has(tool_name):
            with suppress(ToolSchemaError):
                await self._runtimes.prepare(tool_name)

    async def _review(self, attempt: Attempt, runtime: ToolRuntime, call: ValidatedCall) -> PermittedCall | Question:
        """Get the tool's preview of this call, and apply the policy to it."""
        assert runtime.previewer is not None  # noqa: S101 - checked by the caller
        attempt.preview = preview = await runtime.previewer(call.arguments, build_context(self._nested, attempt))
        if preview is None or preview.destructive is None or runtime.verdicts is None:
            return runtime.verdict.review(call, preview)
        attempt.verdict = verdict = runtime.verdicts[preview.destructive]
        return verdict.review(call, preview)

    def _complete(self, attempt: Attempt, runtime: ToolRuntime, permitted: PermittedCall, result: Result) -> Completed:
        """Build the outcome, and cache it if the tool permits that."""
        request = attempt.request
        content, attempt.summary, text, artifact_id, meta = result
        artifacts = attempt.artifact_ids if artifact_id is None else (artifact_id, *attempt.artifact_ids)
        took_ms = (self._now() - attempt.began) * 1000
        done = Completed(
            request.call_id, request.run_id, runtime.name, content, took_ms, artifacts, text, cached=False, meta=meta
        )
        if runtime.cache_ttl_s is not None and not artifacts:  # an artifact belongs to one tenant
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
        """Register the call with its deadline, and emit its request."""
        name, sources = request.tool_name, self.sources
        runtime = self._runtimes.find(name)
        if runtime is not None and sources.connecting and sources.is_stale(name):
            runtime = None  # wait for the new listing, which may change the schema and the verdict
        call = _unknown_ref(request, self.redactor) if runtime is None else runtime.call_ref(request)
        timeout_s = request.timeout_s or (self._limits.timeout_s if runtime is None else runtime.deadline_s)
        attempt = self.inflight.begin(request, runtime, call, snapshot, timeout_s)
        attempt.owner = request.owner or self._owned.owner_id
        if runtime is not None or not (self._registry.has(name) or sources.may_have(name)):
            self._emit_requested(attempt, snapshot)
        return attempt

    def _emit_requested(self, attempt: Attempt, params: Any) -> None:
        """Emit the request of a call; for a resumed call it was emitted before the pause."""
        attempt.announced = True
        request = attempt.request
        if not request.answers:
            facts = {"params": params}
            if request.context is not None and request.context.caller:
                facts[CALLER] = request.context.caller
            self.emitter.emit(attempt.call, _REQUESTED, facts)

    def _emit_started(self, attempt: Attempt, call: ValidatedCall) -> None:
        """Emit the start of a call, with a new snapshot of the arguments only if validation changed them."""
        attempt.started = True
        is_known = call.arguments is attempt.request.arguments
        facts: dict[str, Any] = {"input": attempt.snapshot if is_known else snapshot_arguments(call.arguments)}
        facts["checks_ms"] = (self._now() - attempt.began - attempt.auth_s) * 1000
        if attempt.auth_s:
            facts["auth_ms"] = attempt.auth_s * 1000
        self.emitter.emit(attempt.call, _STARTED, facts)

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Count the call and emit its end; a pause is not an end."""
        if type(outcome) is Paused:
            if outcome.call_id != attempt.request.call_id:
                self.emitter.emit_end(attempt.call, _repeated(attempt, outcome))
            return
        if not attempt.announced:  # its source never connected, so no schema marks secret arguments
            arguments: object = attempt.original_arguments
            self._emit_requested(attempt, dict.fromkeys(arguments, MASK) if is_object(arguments) else {})
        if attempt.runtime is not None:
            attempt.runtime.counts.record(outcome.duration_ms, isinstance(outcome, Completed))
        if self._emits_end:
            journaled = attempt.journaled and attempt.intent_written
            stages: Mapping[str, Any] = {}
            if attempt.queue_s or attempt.tries:
                stages = attempt.stages(outcome.error if isinstance(outcome, Failed) else None)
            self.emitter.emit_end(attempt.call, outcome, attempt.summary, journaled, stages)

    def _stopped(self, attempt: Attempt) -> ToolError:
        """Return the error of a cancelled call; if it timed out while its source was connecting, it never began."""
        name = attempt.request.tool_name
        if attempt.stopped == "timeout" and attempt.runtime is None and self.sources.is_connecting(name):
            waited = f"the source of {name!r} is still connecting after {attempt.timeout_s:.1f} s"
            return ToolSourceDownError(f"{waited}; call again, or increase the timeout", tool_name=name)
        return stopped_error(attempt)

    def _failed(self, attempt: Attempt, error: ToolError) -> Failed:
        request, name = attempt.request, attempt.call.tool_name
        error.tool_name = error.tool_name or name
        if attempt.runtime is not None:
            entry = attempt.runtime.entry
            if origin := entry.content_origin:  # the error of a nested call keeps its origin
                error.origin, error.is_trusted = origin, entry.is_trusted
            error.is_repeatable = error.is_repeatable and not is_in_doubt(attempt, attempt.runtime, error)
        redactor = self.redactor if attempt.runtime is None else attempt.runtime.redactor_for(request)
        error.conceal(redactor.message)
        if error.is_uncaught:
            error.traceback = format_traceback(error, redactor.redact)
            _tool_log.error("%s raised %s (run %s)", name, error.message, request.run_id, exc_info=error.__cause__)
        return Failed(request.call_id, request.run_id, name, error, attempt.elapsed_ms)

    def resumes(self, tool_name: str) -> bool:
        """Return whether a tool of the catalog runs again from its start after a crash."""
        return self._registry.has(tool_name) and self._registry.find(tool_name).spec.resumes

    def traits(self, tool_name: str) -> CallTraits:
        """Return the facts that a host needs before a call of a tool."""
        runtime = self._runtimes.find(tool_name)
        return CallTraits() if runtime is None else runtime.traits

    @property
    def policy(self) -> Policy:
        """The policy of calls that begin now."""
        return self.guards.policy

    def new_id(self, prefix: str) -> str:
        """Return a new unique id."""
        return self._ids.make(prefix)

    async def park(self, *, within_s: float) -> None:
        """Wait for running calls; after `within_s`, suspend repeatable ones for restart and cancel the others."""
        await self.inflight.finish(within_s=within_s)
        await self.inflight.park_all()

    async def close(self) -> None:
        """Cancel running calls and wait for pending writes."""
        await self.inflight.stop_all()
        await self.background.finish(patience_s=STORE_RETRY_S * 2)
        self.inflight.close()
        await self.inflight.stop_all()  # calls of background tasks


def _unknown_ref(request: RequestedCall, redactor: Redactor) -> CallRef:
    """Return the reference to a call of a tool that is unknown, or not known yet."""
    call_id, (tenant, user) = request.call_id, request.principal
    correlation = request.correlation_id or call_id
    return CallRef(request.run_id, call_id, request.tool_name, tenant, user, correlation, redactor.plain)


class ConnectingSources(Protocol):
    """The sources of a Toolbox, for tools that are not in the catalog yet."""

    @property
    def connecting(self) -> Collection[str]:
        """Names of the connecting sources; without any, no tool is stale."""
        ...

    def may_have(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog belongs to a source that is connecting or down."""
        ...

    def is_connecting(self, tool_name: str) -> bool:
        """Return whether a tool that is not in the catalog belongs to a source that is connecting."""
        ...

    def is_stale(self, tool_name: str) -> bool:
        """Return whether a tool in the catalog comes from an earlier listing while its server is connecting."""
        ...

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        """Wait for the source of a tool; ToolSourceDownError if the source is down or takes longer."""
        ...


class NoSources:
    """Default of a router without connecting sources."""

    connecting: Collection[str] = ()

    def may_have(self, tool_name: str) -> bool:
        return False

    is_connecting = is_stale = may_have

    async def wait_for_tool(self, tool_name: str, *, within_s: float) -> None:
        pass


class Invoker:
    """Run authorized calls to an output, a question or an error."""

    def __init__(
        self, journal: Journal, emitter: EventEmitter, inflight: InFlightCalls, gates: Gates, clock: Clock
    ) -> None:
        self._now = clock.monotonic
        self._gates = gates
        self._journal = journal
        self._emitter = emitter
        self._bound_try = inflight.bound_try
        self._scrubber = CredentialScrubber()

    async def invoke(self, attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall) -> ToolOutput | Question:
        """Run a call until it succeeds or must not be retried; exceptions of the tool become ToolErrors.

        A credential that the server rejects is renewed; if that fails, return a question to the user.
        """
        request, limiters, start, read_output = attempt.request, runtime.limiters, runtime.start, runtime.output
        upstream = runtime.upstream if runtime.hosts is None else runtime.hosts.of(call)
        tries, attempt_s = 0, runtime.attempt_s
        while True:
            tries += 1
            if upstream.breaker.failures or self._gates.opens_at:
                await self._admit(attempt, runtime, upstream, call, is_retry=tries > 1)
            if limiters:
                await _acquire(attempt, runtime, upstream)
            began, error = self._now(), None
            try:
                if runtime.journaled and not attempt.journaled:
                    await self._journal_intent(attempt)
                attempt.invoked = True
                self._bound_try(attempt, began + attempt_s)
                value = await start(call)
                output = value if read_output is None else read_output(value)
            except BaseException as raised:  # noqa: BLE001 - foreign code is called here
                output, error = _read_exception(raised, attempt, runtime, upstream)
            finally:
                if limiters:
                    runtime.release(request.held)
                attempt.finish_try(began, error)
            if error is None:
                if upstream.breaker.failures or upstream.budget.spent:
                    await upstream.succeeded()
                holds_secrets = runtime.access.secrets or call.credential.headers or request.context is not None
                return await self._scrub(output, attempt, runtime, call.credential) if holds_secrets else output
            credential = await self._wait_for_retry(attempt, runtime, upstream, call, error, tries, began)
            if isinstance(credential, Question):
                return credential
            await self._renew_intent(attempt, error)
            tries = tries if credential is call.credential else 0
            call = replace(call, credential=credential)

    async def _admit(
        self, attempt: Attempt, runtime: ToolRuntime, upstream: Upstream, call: AuthorizedCall, *, is_retry: bool
    ) -> None:
        """Wait for the gate of the source; raise an error if its breaker is open, or if the gate opens too late."""
        if upstream.breaker.failures:
            await upstream.breaker.admit(runtime.name, is_retry=is_retry)
        if runtime.gated_source is None:
            return
        try:
            await self._gates.wait(
                runtime.gated_source, call.credential, tool_name=runtime.name, deadline=attempt.deadline
            )
        except BaseException:
            upstream.breaker.abandoned()
            raise

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
        """Write the intent to the journal; from now on the call may have an effect."""
        attempt.journaled = True  # first: the deadline may pass while the intent is being written
        try:
            await self._journal.begin(attempt.journal_entry(""))
            attempt.intent_written = True
        except Exception:
            attempt.journaled = False  # without an intent nothing ran, and there is nothing to record
            raise

    async def _wait_for_retry(
        self,
        attempt: Attempt,
        runtime: ToolRuntime,
        upstream: Upstream,
        call: AuthorizedCall,
        error: ToolError,
        tries: int,
        began: float,
    ) -> Credential | Question:
        """Wait for the next attempt without holding a slot, and return its credential, or the question for one.

        Raise the error if there must not be another attempt.
        """
        took_s = self._now() - began
        await upstream.breaker.failed(error)
        if runtime.gated_source is not None:
            await self._gates.close(runtime.gated_source, call.credential, error)
        if not attempt.tries:
            attempt.tries = (Try(began, took_s, error.error_code),)
        await self._note_inner_calls(attempt, runtime, error)
        wait = backoff(tries, error, runtime.retry_policy, chance=attempt.clock.chance)
        if (
            tries >= runtime.retry_policy.max_attempts
            or attempt.has_inner
            or not may_repeat(error, runtime.spec.replay, runtime.retry_policy)
            # After a timeout, an attempt with much less time than the last would time out again.
            or wait + (took_s * _WORTH_RETRYING if isinstance(error, ToolTimeoutError) else 0.0) >= attempt.remaining_s
            or not await upstream.budget.withdraw()
        ):
            return await _renewed(attempt, runtime, call, error)
        self._emitter.emit(attempt.call, EventCode.CALL_RETRIED, {"tries": tries, "wait_s": wait, **error_facts(error)})
        await asyncio.sleep(wait)
        return call.credential

    async def _renew_intent(self, attempt: Attempt, error: ToolError) -> None:
        """Write the intent again before another attempt: while the call waited, another process may have adopted it.

        Raise TakenOverError in that case, and the error of the last attempt if the store cannot be written.
        """
        if not attempt.journaled:
            return
        try:
            await self._journal.begin(attempt.journal_entry(""))
        except TakenOverError:
            raise
        except StoreError:
            if attempt.owner == self._journal.owner_id:
                raise error from None
            raise TakenOverError(
                f"call {attempt.request.call_id!r} was not retried: this process has lost its lease since the last "
                "attempt, so another process may have taken the call over"
            ) from error

    async def _note_inner_calls(self, attempt: Attempt, runtime: ToolRuntime, error: ToolError) -> None:
        """Note whether an unsafe call has made calls with effects; its error may be that of the last one."""
        if attempt.journaled and runtime.spec.replay == "unsafe" and error.is_retryable:
            try:
                attempt.has_inner = bool(await self._journal.inner(attempt.request.call_id))
            except StoreError:
                attempt.has_inner = True  # not known


async def _authorize(attempt: Attempt, access: SourceAccess, permitted: PermittedCall) -> Credential | Question:
    """Return the credential of a call, or the question for one, and note how long that took."""
    now = attempt.clock.monotonic
    began = now()
    try:
        return await access.authorize(permitted)
    finally:
        attempt.auth_s = now() - began


async def _acquire(attempt: Attempt, runtime: ToolRuntime, upstream: Upstream) -> None:
    """Wait for a slot, and note how long that took."""
    now = attempt.clock.monotonic
    began = now()
    try:
        await runtime.acquire(attempt.request.held)
    except BaseException:
        upstream.breaker.abandoned()
        raise
    finally:
        attempt.queue_s += now() - began


async def _renewed(
    attempt: Attempt, runtime: ToolRuntime, call: AuthorizedCall, refused: ToolError
) -> Credential | Question:
    """Return another credential for a rejected call, or the question for one; raise the error without either."""
    attempt.renewals += 1
    may_renew = refused.status_code in _REFUSALS and attempt.renewals <= _MOST_RENEWALS
    better = await runtime.access.renewed(call, refused) if may_renew else None
    if better is None:
        raise refused
    return better


def _read_exception(
    raised: BaseException, attempt: Attempt, runtime: ToolRuntime, upstream: Upstream
) -> tuple[Any, ToolError | None]:
    """Return the question or the error of a tool; a cancellation by the caller is raised again."""
    if isinstance(raised, PauseSignal):
        return raised.question, None
    has_expired = attempt.end_try()
    stopped = isinstance(raised, asyncio.CancelledError) and attempt.is_cancelled
    if stopped or is_interrupt(raised):
        upstream.breaker.abandoned()
        raise raised
    error = expired_error(attempt, runtime, raised) if has_expired else failure_of(raised, runtime.name)
    if isinstance(error, ToolTimeoutError):
        error.bound = "attempt"
    error.conceal(runtime.redactor_for(attempt.request).message)
    return None, error


def _repeated(attempt: Attempt, waiting: Paused) -> Failed:
    """Return the end of a call that is the same as a waiting one: in the log, each call has its own."""
    request, name = attempt.request, attempt.call.tool_name
    message = f"nothing was run: the same call waits as {waiting.pending_id}"
    error = ToolConflictError(message, tool_name=name, code="already_waiting")
    return Failed(request.call_id, request.run_id, name, error, attempt.elapsed_ms)


def _cache_key(permitted: PermittedCall) -> tuple[str, ...]:
    """Return the cache key of a call; only pure tools share results between principals."""
    call = permitted.validated
    spec = call.tool.spec
    who = "" if spec.side_effects == "pure" else str(call.request.principal)
    return (spec.name, spec.version, who, json.dumps(call.arguments, sort_keys=True, default=str))
