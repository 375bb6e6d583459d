"""The router: the one straight line that every call goes down."""

from __future__ import annotations

import asyncio
import copy
import json
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from toolpost.contracts.calls import NO_ANSWERS, AuthorizedCall, RequestedCall
from toolpost.contracts.errors import (
    StoreError,
    ToolCancelledError,
    ToolError,
    ToolNotFoundError,
    ToolSchemaError,
    ToolSourceDownError,
    ToolTimeoutError,
    ToolValidationError,
)
from toolpost.contracts.events import EventCode, JsonText
from toolpost.contracts.makers import maker
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.questions import Question
from toolpost.policy.approvals import CalledTool
from toolpost.policy.redaction import MASK, secret_values
from toolpost.runtime.announcement import announcement
from toolpost.runtime.arrivals import NoArrivals
from toolpost.runtime.attempt import Attempt, ContextDefaults
from toolpost.runtime.background import Background
from toolpost.runtime.cache import ResultCache
from toolpost.runtime.failures import failure_of
from toolpost.runtime.ids import IdMaker, writable
from toolpost.runtime.inflight import InFlight
from toolpost.runtime.invoker import Invoker
from toolpost.runtime.json_arguments import read_arguments
from toolpost.runtime.keys import KeyGate
from toolpost.runtime.lanes import Lanes
from toolpost.runtime.pausing import Pausing, about_call, with_answerers
from toolpost.runtime.recorder import PATIENCE_S, Recorder
from toolpost.runtime.results import Bulk, Results
from toolpost.runtime.teller import NotJson, Teller, as_told
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from collections.abc import Coroutine, Mapping, Sequence

    from toolpost.auth.credentials import Authorizer
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.calls import PermittedCall, ValidatedCall
    from toolpost.contracts.context import ToolContext
    from toolpost.contracts.outcomes import Outcome
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.questions import OnPending
    from toolpost.contracts.storage import EventSink, Store
    from toolpost.policy.redaction import Redactor
    from toolpost.policy.rules import Policy
    from toolpost.runtime.arrivals import Arrivals
    from toolpost.runtime.lane import Lane
    from toolpost.runtime.results import Result

_OF_THE_DEADLINE = 0.98  # a call ends with its own error, not with the deadline's, where its source does not come
_REQUESTED = EventCode.TOOL_CALL_REQUESTED  # looking a member up runs Python code
_new_request = maker(RequestedCall)
_new_authorized = maker(AuthorizedCall)
_new_completed = maker(Completed)


class ToolRouter:
    """Takes calls from request to outcome: validated, permitted, authorized, limited, journaled, told.

    Graph nodes, agents, workflows and surfaces all talk to this and to nothing behind it.
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
        self.arrivals: Arrivals = NoArrivals()
        self.inflight = InFlight()
        self.background = Background()
        self.teller = Teller([store.events, *sinks], redactor, announcement(on_pending, self.background))
        self.context_defaults = context_defaults or ContextDefaults()
        self._authorizer = authorizer
        self._auto_emit = True
        self._timeout_s = timeout_s
        self._pending_ttl_s = pending_ttl_s
        self._lanes = Lanes(registry, policy, self.teller, timeout_s=timeout_s, retry_ratio=retry_ratio)
        self._invoker = Invoker(store.journal, self.teller, authorizer)
        self._results = Results(store.artifacts, inline_bytes=inline_bytes)
        self._cache = ResultCache()
        self._keys = KeyGate(store)
        self._recorder = Recorder(store.journal, self._keys, self.background)
        self._ids = IdMaker()
        self._pausing = Pausing(store, self.teller, self._ids, self.background, ttl_s=pending_ttl_s)

    def beside(self, *sinks: EventSink) -> ToolRouter:
        """A router for a host with sinks of its own that tells of completion itself; all else is shared."""
        other = copy.copy(self)
        other.teller = self.teller.beside([self.store.events, *sinks])
        other._invoker = Invoker(self.store.journal, other.teller, self._authorizer)  # noqa: SLF001 - a copy of itself, here and below
        other._pausing = Pausing(self.store, other.teller, self._ids, self.background, ttl_s=self._pending_ttl_s)  # noqa: SLF001
        other._auto_emit = False  # noqa: SLF001
        return other

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str | None = None,
        *,
        principal: Principal,
        run_id: str | None = None,
        task_id: str = "",
        timeout_s: float | None = None,
        idempotency_key: str | None = None,
        correlation_id: str = "",
        context: ToolContext | None = None,
        held: tuple[object, ...] = (),
        call_id: str | None = None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool by name; the arguments may be JSON text, as models write them."""
        if isinstance(arguments, str):
            arguments = read_arguments(arguments)
        if timeout_s is not None and not timeout_s > 0:  # NaN too
            raise ValueError(f"timeout_s must be more than 0 seconds, not {timeout_s!r}")
        tick = self._ids.tick()
        run_id = f"run_{tick}" if run_id is None else writable(run_id)
        key = None if idempotency_key is None else writable(idempotency_key)
        told = as_told({} if arguments is None else arguments)
        call_id = f"call_{tick}" if call_id is None else call_id
        what = (call_id, run_id, tool_name, _private(arguments, told), principal, timeout_s, key)
        how = (correlation_id, task_id, context, NO_ANSWERS, None, False, held)
        return self._run(_new_request(what + how), told)

    async def resume(self, request: RequestedCall) -> Outcome:
        """Take a call on from the top, with one more answer known.

        StoreError when the store failed before the call began: nothing ran and no end was told, so that the answer
        can be given again.
        """
        return await self._run(request, as_told(request.arguments))

    async def _run(self, request: RequestedCall, told: Any) -> Outcome:
        """Take a requested or resumed call to its outcome; each ends in exactly one event."""
        attempt = self._begin(request, told)
        try:
            if self.store.events.congested:
                await self.store.events.drain()
            outcome = await self._advance(attempt)
        except asyncio.CancelledError:
            outcome = self._failed(attempt, self._stopped(attempt))
        except Exception as raised:  # noqa: BLE001 - whatever it was, the caller gets an outcome and the log an end
            outcome = self._failed(attempt, failure_of(raised, request.tool_name))
        finally:
            self.inflight.leave(attempt)
        if isinstance(outcome, Failed) and _is_unbegun(attempt, outcome.error):
            raise outcome.error
        if attempt.task is not None and attempt.task.cancelling() != attempt.cancelling:
            return await self._stop(attempt, outcome)
        try:
            if attempt.journaled or request.idempotency_key is not None:
                await self._recorder.record(attempt, outcome)
        finally:
            self._end(attempt, outcome)
        return outcome

    async def _stop(self, attempt: Attempt, outcome: Outcome) -> Outcome:
        """End a call whose task was asked to stop: by us alone, then the caller gets the outcome; or by others, too."""
        foreign = attempt.take_back() and isinstance(outcome, Failed)
        self._end(attempt, outcome)
        if attempt.journaled or attempt.request.idempotency_key is not None:
            await self._recorder.record(attempt, outcome)
        if foreign:
            raise asyncio.CancelledError
        return outcome

    async def _advance(self, attempt: Attempt) -> Outcome:
        """The straight line: each stage makes the next, and any may answer with a question."""
        lane = attempt.lane or await self._late_lane(attempt)
        validated = lane.validate(attempt.request)
        if attempt.told.__class__ is NotJson:
            raise ToolValidationError("$: the arguments are nested too deeply or not JSON", tool_name=lane.name)

        answered = await self._keys.enter(validated, lane) if attempt.request.idempotency_key is not None else None
        if answered is not None:
            return answered

        permitted = (
            lane.verdict.review(validated) if lane.previewer is None else await self._review(attempt, lane, validated)
        )
        if isinstance(permitted, Question):
            return await self._pausing.pause(attempt, lane, permitted)

        credential = await self._authorizer.authorize(permitted)
        if isinstance(credential, Question):
            return await self._pausing.pause(attempt, lane, credential)

        if lane.cache_ttl_s is not None and (kept := self._cached(attempt, permitted)):
            return kept

        authorized = _new_authorized((permitted, credential, attempt.context))
        output = await self._invoker.ask(attempt, lane, authorized)
        if isinstance(output, Question):
            return await self._pausing.pause(attempt, lane, output)

        result = self._results.settle(output, lane)
        if isinstance(result, Bulk):
            readable = self._lanes.find("artifact_read") is not None
            result = await self._results.keep(result, attempt.call, readable=readable)
        return self._complete(attempt, lane, permitted, result)

    async def _late_lane(self, attempt: Attempt) -> Lane:
        """Wait for a tool whose source is connecting, or whose schemas take a while to compile.

        Until then nobody knows what is secret in the call.
        """
        request = attempt.request
        name = request.tool_name
        if not attempt.announced and (self.arrivals.is_stale(name) or not self._lanes.knows(name)):
            await self.arrivals.arrive(name, within_s=max(0.0, attempt.remaining_s) * _OF_THE_DEADLINE)
        lane = await self._lanes.prepared(name)
        if not attempt.announced:
            attempt.lane, attempt.call = lane, self.teller.ref(request, lane)
            self._announce(attempt, attempt.told)
            if request.timeout_s is None:
                self.inflight.move_deadline(attempt, lane.timeout_s)
        return lane

    async def await_tool(self, tool_name: str) -> None:
        """Wait for a tool whose source is still connecting; ToolSourceDownError when that is down."""
        if not self._lanes.knows(tool_name) or self.arrivals.is_connecting(tool_name):
            await self.arrivals.arrive(tool_name, within_s=self._timeout_s)
        if self._lanes.knows(tool_name):
            with suppress(ToolSchemaError):
                await self._lanes.prepared(tool_name)

    async def _review(self, attempt: Attempt, lane: Lane, call: ValidatedCall) -> PermittedCall | Question:
        """Have a tool say what this call would do, and judge it by that."""
        assert lane.previewer is not None  # noqa: S101 - whoever calls this has looked
        attempt.preview = preview = await lane.previewer(call.arguments, attempt.context())
        if preview is None or preview.destructive is None or lane.verdicts is None:
            return lane.verdict.review(call, preview)
        attempt.verdict = verdict = lane.verdicts[preview.destructive]
        return verdict.review(call, preview)

    def _complete(self, attempt: Attempt, lane: Lane, permitted: PermittedCall, result: Result) -> Completed:
        """Hand the result on."""
        request = attempt.request
        content, attempt.summary, text, artifact_id, meta = result
        artifacts = attempt.saved if artifact_id is None else (artifact_id, *attempt.saved)
        done = _new_completed(
            (request.call_id, request.run_id, lane.name, content, attempt.elapsed_ms, artifacts, text, False, meta)
        )
        if lane.cache_ttl_s is not None and not artifacts:  # an artifact is one tenant's
            self._cache.put(_cache_key(permitted), done, ttl_s=lane.cache_ttl_s)
        return done

    def _cached(self, attempt: Attempt, permitted: PermittedCall) -> Completed | None:
        kept = self._cache.get(_cache_key(permitted))
        if kept is None:
            return None
        attempt.started = True
        attempt.summary = "from the cache"
        self.teller.tell(attempt.call, EventCode.TOOL_CALL_STARTED, {"input": attempt.input_of(permitted.validated)})
        request = attempt.request
        return kept._replace(
            call_id=request.call_id, run_id=request.run_id, cached=True, duration_ms=attempt.elapsed_ms
        )

    def _begin(self, request: RequestedCall, told: Any) -> Attempt:
        """Put the call under its deadline and within reach of cancellation, and tell of it."""
        lane = self._lanes.find(request.tool_name)
        if lane is not None and self.arrivals.is_stale(request.tool_name):
            lane = None  # it waits for the new listing, which may change what is validated and asked
        attempt = Attempt(self, request, lane, self.teller.ref(request, lane), told)
        self.inflight.enter(attempt, request.timeout_s or (self._timeout_s if lane is None else lane.timeout_s))
        if lane is not None or not self._may_come(request.tool_name):
            self._announce(attempt, attempt.told)
        return attempt

    def _may_come(self, tool_name: str) -> bool:
        """Whether a call without a lane may get one."""
        return self._lanes.knows(tool_name) or self.arrivals.may_have(tool_name)

    def _announce(self, attempt: Attempt, params: Any) -> None:
        """Tell that a call is requested, once however often it is resumed."""
        attempt.announced = True
        if not attempt.request.answers:
            self.teller.tell(attempt.call, _REQUESTED, {"params": params})

    def _end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Count the call and tell how it ended; a pause is no end."""
        if isinstance(outcome, Paused):
            return
        if not attempt.announced:  # its source never came, so that nobody knows which arguments are secret
            asked: object = attempt.asked
            self._announce(attempt, dict.fromkeys(asked, MASK) if is_object(asked) else {})
        if attempt.lane is not None:
            attempt.lane.entry.record(outcome.duration_ms, isinstance(outcome, Completed))
        if self._auto_emit:
            self.teller.ended(attempt.call, outcome, summary=attempt.summary)

    def _stopped(self, attempt: Attempt) -> ToolError:
        """The error of a call that was stopped; one whose deadline struck while its source connected never began."""
        name = attempt.request.tool_name
        if attempt.stopped == "timeout" and attempt.lane is None and self.arrivals.is_connecting(name):
            told = f"the source of {name!r} is still connecting after {attempt.timeout_s:.1f} s; call again, or give it"
            return ToolSourceDownError(f"{told} longer", tool_name=name)
        return _stopped(attempt)

    def _failed(self, attempt: Attempt, error: ToolError) -> Failed:
        request = attempt.request
        error.tool_name = error.tool_name or request.tool_name
        if attempt.lane is not None:
            error.origin = attempt.lane.entry.origin
        error.conceal(self.teller.redactor_for(request, attempt.lane).message)
        return Failed(request.call_id, request.run_id, request.tool_name, error, attempt.elapsed_ms)

    async def unknown_question(self, tool_name: str, call: Mapping[str, Any]) -> tuple[Question, str]:
        """The question what became of a call, as the journal has it, and the hash of what running it again would run.

        That is the tool as it is here; where it is not, the one that was called.
        """
        prompt = f"{tool_name} was interrupted; it may or may not have happened. What is the case?"
        asked = Question(kind="unknown", prompt=prompt, reason="outcome_unknown", key="unknown")
        arguments = call["arguments"]
        try:
            tool = (await self._lanes.prepared(tool_name)).called
        except (ToolNotFoundError, ToolSchemaError):
            tool = CalledTool(*call.get("tool", ()))
        redactor = self.teller.redactor.with_secrets(secret_values(arguments, tool.secret_paths))
        shown = about_call(asked, tool, arguments, redactor)
        return with_answerers(shown, self._lanes.approvals(tool_name)), tool.digest

    def new_id(self, prefix: str) -> str:
        """An id that nobody else has."""
        return self._ids.make(prefix)

    async def close(self) -> None:
        """Stop what runs and wait for what is left to be written."""
        await self.inflight.stop_all()
        await self.background.finish(patience_s=PATIENCE_S * 2)
        self.inflight.close()
        await self.inflight.stop_all()  # what that background began


def _is_unbegun(attempt: Attempt, error: ToolError) -> bool:
    """Whether a resumed call could not even begin, because its intent could not be written."""
    return isinstance(error, StoreError) and not attempt.invoked and attempt.request.pending_id is not None


def _private(arguments: Any, told: Any) -> Any:
    """Arguments that nobody else holds, so that what is validated is what runs."""
    kind = told.__class__
    if kind is dict:
        return told
    return json.loads(told) if kind is JsonText else arguments


def _stopped(attempt: Attempt) -> ToolError:
    """The error that stands for a call that was stopped, by its deadline, on request, or with its caller."""
    name = attempt.request.tool_name
    doubt = "; it may have taken effect all the same" if attempt.journaled else ""
    if attempt.stopped == "timeout":
        timeout_ms = round(attempt.timeout_s * 1000, 3)
        message = f"Tool execution timed out after {timeout_ms:g}ms{doubt}"
        return ToolTimeoutError(message, timeout_ms=timeout_ms, tool_name=name)
    who = "the call was cancelled" if attempt.stopped else "the caller was cancelled"
    return ToolCancelledError(f"{who}{doubt}", tool_name=name)


def _cache_key(permitted: PermittedCall) -> tuple[str, ...]:
    """Pure tools share results; what was read for one person is not shown to another."""
    call = permitted.validated
    spec = call.tool.spec
    who = "" if spec.side_effects == "pure" else str(call.request.principal)
    return (spec.name, spec.version, who, json.dumps(call.arguments, sort_keys=True, default=str))
