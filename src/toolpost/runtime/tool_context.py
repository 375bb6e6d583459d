"""The context of a running call, and its services: steps that run once, progress, nested calls, artifacts."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import PauseSignal, ToolConflictError, ToolError
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Failed, Outcome
from toolpost.contracts.questions import Question
from toolpost.policy.paths import AllowedPaths
from toolpost.policy.progress import RateLimit
from toolpost.runtime.event_emitter import describe_value, error_facts
from toolpost.runtime.persistence import recorded_outcome
from toolpost.runtime.results import artifact_ref
from toolpost.schema.json_values import finite_number
from toolpost.stores.agent_records.folders import SHARED_MEMORY, USER_MEMORY, session_folder, tenant_folder, user_folder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Mapping
    from pathlib import Path

    from toolpost.contracts.context import ProtectedPath
    from toolpost.contracts.principal import Principal
    from toolpost.contracts.storage import JournalEntry, Store
    from toolpost.runtime.attempt import Attempt, InFlightCalls
    from toolpost.runtime.event_emitter import EventEmitter

_VALUES_AT_ONCE, _VALUES_PER_SECOND = 1000, 100.0  # of a stream; a fast one must not fill the log
_MOST_NESTED = 20  # depth of nested calls, which stops tools that call themselves


def build_context(router: RouterServices, attempt: Attempt) -> ToolContext:
    """Build the context of a running call; called only for tools that take one."""
    request, given = attempt.request, attempt.request.context
    defaults, tenant = router.context_defaults, request.principal.tenant
    memory, shared = (given.memory_dir, given.shared_memory_dir) if given else (None, None)
    if memory is None:
        memory = defaults.user_folder(USER_MEMORY, request.principal)
        shared = shared or defaults.folder(SHARED_MEMORY, tenant)
    return ToolContext(
        request.task_id or request.run_id,
        user_id=given.user_id if given and given.user_id else str(request.principal),
        tenant_id=tenant,
        trace_id=(given.trace_id if given else "") or request.run_id,
        correlation_id=request.correlation_id or request.call_id,
        call_id=request.call_id,
        idempotency_key=request.idempotency_key or request.call_id,
        allowed_paths=given.allowed_paths
        if given and not given.inherits_paths
        else defaults.allowed_paths.of(request.principal),
        protected_paths=(*defaults.protected_paths(), *(given.protected_paths if given else ())),
        memory_dir=memory,
        shared_memory_dir=shared,
        session_dir=(given.session_dir if given else None) or defaults.session_folder(request.principal),
        llm_context=given.llm_context if given else None,
        tool_context=given.tool_context if given else None,
        answers=request.answers,
        services=ContextServices(router, attempt),
        preview=attempt.preview,
        client=given.client if given else None,
    )


class ContextServices:
    """Services of the runtime that a tool uses through its context."""

    __slots__ = ("_attempt", "_counts", "_locks", "_router", "_values")

    def __init__(self, router: RouterServices, attempt: Attempt) -> None:
        self._router = router
        self._attempt = attempt
        self._values: RateLimit | None = None
        self._counts: Counter[str] = Counter()
        self._locks: dict[str, asyncio.Lock] = {}

    async def once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        """Run `fn` once per call and key, and then return its recorded result; concurrent uses wait.

        If `fn` raises an Exception, it counts as not run. If it is interrupted by anything else, such as a cancellation
        or SystemExit, it may have run: its intent stays, as after a crash, and the call pauses before it runs again.
        """
        if not key:
            raise ValueError("ctx.once needs a key that names the step")
        async with self._locks.setdefault(key, asyncio.Lock()):
            return await self._once(key, fn, repeatable=repeatable)

    async def _once(self, key: str, fn: Callable[[], Awaitable[Any]], *, repeatable: bool) -> Any:
        attempt, journal = self._attempt, self._router.store.journal
        call_id = attempt.request.call_id
        entry = await journal.find(call_id, key)
        if entry is not None and entry.done:
            return entry.result
        if entry is not None and not repeatable:
            question = _step_question(attempt.request.tool_name, entry)
            answer = attempt.request.answers.get(question.key)
            if answer is None:
                raise PauseSignal(question)
            if answer.decision == "happened":
                await journal.begin(attempt.journal_entry(key))  # which the process that ran the step can no longer end
                await journal.finish(call_id, key, answer.value)
                return answer.value
        await journal.begin(attempt.journal_entry(key))
        try:
            result = await fn()
        except (Exception, PauseSignal):
            await journal.forget(call_id, key)
            raise
        await journal.finish(call_id, key, result)
        return result

    def progress(self, text: str, *, fraction: float | None = None) -> None:
        """Emit the progress of the call."""
        facts = {"text": text, "fraction": finite_number(fraction)}
        self._router.emitter.emit(self._attempt.call, EventCode.SUBAGENT_ACTION, facts)

    def stream(self, value: Any) -> None:
        """Emit one value of a stream; `left_out` counts the values that the rate limit has dropped before it."""
        if self._values is None:
            now = self._attempt.clock.monotonic
            self._values = RateLimit(burst=_VALUES_AT_ONCE, per_second=_VALUES_PER_SECOND, clock=now)
        dropped = self._values.take()
        if dropped is None:
            return
        facts = describe_value(value, self._attempt.call)
        if dropped:
            facts["left_out"] = dropped
        self._router.emitter.emit(self._attempt.call, EventCode.SUBAGENT_ACTION, facts)

    def extend_deadline(self, timeout_s: float) -> None:
        """Extend the deadline of the call to this many seconds from its start, if that is later."""
        attempt = self._attempt
        if timeout_s > attempt.timeout_s:
            self._router.inflight.move_deadline(attempt, timeout_s)
        attempt.expires = max(attempt.expires, attempt.began + timeout_s)

    def fell_back(self, name: str, *, to: str, error: ToolError) -> None:
        """Emit that one provider failed and the next is used."""
        facts = {"provider": name, "next": to, **error_facts(error)}
        self._router.emitter.emit(self._attempt.call, EventCode.FALLBACK_USED, facts)

    async def call(self, tool_name: str, arguments: Mapping[str, Any] | str, *, key: str) -> Outcome:
        """Call another tool as part of the same run, under the same policy.

        A tool that runs again after a pause gets the recorded outcomes of its earlier calls with effects, like `once`.
        """
        attempt, request = self._attempt, self._attempt.request
        call_id = self._nested_call_id(tool_name, arguments, key)
        if call_id.count(".") > _MOST_NESTED:
            message = f"calls are nested more than {_MOST_NESTED} deep; does {tool_name!r} call itself?"
            error = ToolConflictError(message, tool_name=tool_name, code="nested_too_deep")
            return Failed(call_id, request.run_id, tool_name, error, 0.0)
        if request.answers:  # the tool runs again after a pause
            known = await recorded_outcome(self._router.store, call_id, tenant=request.principal.tenant)
            is_interrupted = isinstance(known, Failed) and known.error.error_code == "interrupted"
            if known is not None and not is_interrupted:  # an interrupted call may run again
                return known
        held = attempt.runtime.limiters if attempt.runtime else ()
        return await self._router.call(
            tool_name,
            arguments,
            principal=request.principal,
            run_id=request.run_id,
            task_id=request.task_id,
            context=request.context,
            held=(*request.held, *held),
            call_id=call_id,
        )

    def _nested_call_id(self, tool_name: str, arguments: Mapping[str, Any] | str, key: str) -> str:
        """Return an id that is the same for this nested call in every run: of tool, arguments, key and count so far."""
        try:
            text = json.dumps([tool_name, arguments, *([key] if key else [])], sort_keys=True, default=str)
        except (TypeError, ValueError, RecursionError):  # validation will reject the call
            text = json.dumps([str(tool_name)])
        self._counts[text] += 1
        digest = sha256(f"{self._counts[text]}|{text}".encode()).hexdigest()
        return f"{self._attempt.request.call_id}.{digest[:16]}"

    async def save_artifact(self, data: bytes, *, media_type: str, name: str) -> str:
        call = self._attempt.call
        new = artifact_ref(call, media_type=media_type, at=self._attempt.clock.wall(), name=name)
        ref = await self._router.store.artifacts.put(data, new)
        self._attempt.artifact_ids += (ref.id,)
        facts = {"artifact_id": ref.id, "media_type": media_type, "size": ref.size}
        self._router.emitter.emit(call, EventCode.ARTIFACT_STORED, facts)
        return ref.id

    async def read_artifact(self, artifact_id: str) -> bytes:
        tenant, user = self._attempt.request.principal
        return await self._router.store.artifacts.read(artifact_id, tenant=tenant, user=user)


def _step_question(tool_name: str, entry: JournalEntry) -> Question:
    """Return the question about a step that began and has no result.

    Its key contains the time, because an answer applies only to that run of the step: if it runs and is interrupted
    again, there is a new question.
    """
    prompt = f"{tool_name} was interrupted during step {entry.step!r}. Did that step happen?"
    key, payload = f"once:{entry.step}:{entry.at}", {"step": entry.step}
    return Question(kind="unknown", prompt=prompt, reason="outcome_unknown", payload=payload, key=key)


class ContextDefaults(NamedTuple):
    """Default values of a tool's context."""

    allowed_paths: AllowedPaths = AllowedPaths(None)
    data_dir: Path | None = None
    protected_paths: Callable[[], tuple[ProtectedPath, ...]] = tuple

    def folder(self, name: str, tenant: str) -> str | None:
        """Return a tenant's folder, if there is a data folder."""
        return None if self.data_dir is None else str(tenant_folder(self.data_dir, name, tenant))

    def user_folder(self, name: str, person: Principal) -> str | None:
        """Return the folder of a user, if there is a data folder."""
        return None if self.data_dir is None else str(user_folder(self.data_dir, name, person))

    def session_folder(self, person: Principal) -> str | None:
        """Return the folder of a person's sessions, if there is a data folder."""
        return None if self.data_dir is None else str(session_folder(self.data_dir, person))


class RouterServices(Protocol):
    """The parts of the router that a running call needs."""

    store: Store
    emitter: EventEmitter
    context_defaults: ContextDefaults
    inflight: InFlightCalls

    def call(
        self,
        tool_name: str,
        arguments: Mapping[str, Any] | str,
        *,
        principal: Principal,
        run_id: str,
        task_id: str,
        context: ToolContext | None,
        held: tuple[object, ...],
        call_id: str | None,
    ) -> Coroutine[Any, Any, Outcome]:
        """Call a tool as part of another call."""
        ...
