"""Build the events of calls and send them to every sink."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import deque
from collections.abc import Mapping
from contextlib import contextmanager
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from toolpost.contracts.callers import CALLER_KEY_RUN, CALLER_SESSION_RUN, SCOPES
from toolpost.contracts.errors import ToolTimeoutError
from toolpost.contracts.events import JOURNALED, TRACEBACK, CallRef, EventCode, JsonText, RunEvent
from toolpost.contracts.outcomes import OUTPUT_ISSUES, Completed, Failed
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.runtime.event_bus import Emit, fan_out
from toolpost.schema.json_values import compact_encoder

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Sequence

    from toolpost.catalog.registry import CatalogChange
    from toolpost.contracts.callers import CallerKey, CallerSession
    from toolpost.contracts.clock import Clock
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import OnPending, PendingAction
    from toolpost.contracts.storage import EventSink
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.concurrency import BackgroundTasks

_log = logging.getLogger("toolpost.runtime")
_COMPLETED = EventCode.TOOL_CALL_COMPLETED  # the lookup takes 0.1 µs per call
_IMMUTABLE = frozenset({str, int, float, bool, type(None)})
_NO_FACTS: Mapping[str, Any] = MappingProxyType({})
_LONGEST_TEXT = 500  # characters of a streamed value on a line of progress
_LONGEST_VALUE = 8192  # characters of JSON; longer values are only described
_CHANGES_AT_A_TIME = 100  # a millisecond or two
_UNASKED = frozenset({"call", "restart"})  # kinds that resume automatically
_encode = compact_encoder()


class EventEmitter:
    """Emit events to the log and to every other sink, and report questions to the application's `on_pending`."""

    def __init__(
        self,
        sinks: Sequence[EventSink],
        redactor: Redactor,
        background: BackgroundTasks,
        on_pending: OnPending | None = None,
        *,
        clock: Clock,
    ) -> None:
        self._clock = clock
        self._sinks = list(sinks)
        self.emit: Emit = fan_out(self._sinks, clock)  # one event of a call
        self._redactor = redactor
        self._background = background
        self._on_pending = on_pending
        self._catalog_changes: deque[CatalogChange] = deque()

    def with_sinks(self, sinks: Sequence[EventSink]) -> EventEmitter:
        """Return an emitter for other sinks, with the same redactor and `on_pending`."""
        return EventEmitter(sinks, self._redactor, self._background, self._on_pending, clock=self._clock)

    def add_sink(self, sink: EventSink) -> Callable[[], None]:
        """Emit to one more sink, until the returned function is called."""
        self._sinks.append(sink)
        self.emit = fan_out(self._sinks, self._clock)

        def remove() -> None:
            self._sinks.remove(sink)
            self.emit = fan_out(self._sinks, self._clock)

        return remove

    @contextmanager
    def relay_progress(
        self, receive: Callable[[RunEvent], None], *, run_id: str | None = None, call_id: str | None = None
    ) -> Generator[None]:
        """Call `receive` with the progress of a run or of a call, possibly in a worker thread, within the context."""
        remove = self.add_sink(_ProgressSink(receive, run_id, call_id))
        try:
            yield
        finally:
            remove()

    def emit_end(
        self,
        call: CallRef,
        outcome: Completed | Failed,
        summary: Any = None,
        journaled: bool = False,  # noqa: FBT001, FBT002 - made for every call
        stages: Mapping[str, Any] = _NO_FACTS,
    ) -> None:
        """Emit the one event that ends a call; with `journaled`, its journal entry was written, for `verify`.

        `stages` are the facts about its attempts.
        """
        facts: dict[str, Any]
        if isinstance(outcome, Completed):
            code, facts = _COMPLETED, {"summary": summary, "duration_ms": outcome.duration_ms}
            if outcome.artifacts:
                facts["output_artifact_id"] = outcome.artifacts[0]
            meta = outcome.meta
            if meta and OUTPUT_ISSUES in meta:
                facts[OUTPUT_ISSUES] = meta[OUTPUT_ISSUES]
        else:
            code = EventCode.TOOL_CALL_FAILED
            facts = {**error_facts(outcome.error), "duration_ms": outcome.duration_ms}
            if outcome.error.traceback:
                facts[TRACEBACK] = outcome.error.traceback
        if journaled:
            facts[JOURNALED] = True
        if stages:
            facts.update(stages)
        self.emit(call, code, facts)

    def emit_pause(self, call: CallRef, action: PendingAction) -> None:
        """Emit that a call waits, and report a question for a person to `on_pending`."""
        question = action.question
        code = EventCode.APPROVAL_REQUESTED if question.kind == "approval" else EventCode.CALL_PAUSED
        action_id = question.payload["waits_for"]["id"] if question.kind == "call" else action.id
        facts = {"pending_id": action_id, "kind": question.kind, "prompt": question.prompt}
        self.emit(call, code, {**facts, "arguments": dict(question.arguments), "target": dict(question.target)})
        if self._on_pending is not None and question.kind not in _UNASKED:
            self._background.notify(self._on_pending, action, log=_log, name=f"on_pending failed on {action.id}")

    def emit_catalog_changes(self, changes: Iterable[CatalogChange]) -> None:
        """Emit an event for each tool that was added, removed or changed, in batches."""
        is_emitting = bool(self._catalog_changes)
        self._catalog_changes.extend(changes)
        if not is_emitting:
            self._emit_some_changes()
            if self._catalog_changes:
                self._background.start(self._emit_other_changes())

    async def _emit_other_changes(self) -> None:
        while self._catalog_changes:
            await asyncio.sleep(0)
            self._emit_some_changes()

    def _emit_some_changes(self) -> None:
        for _ in range(min(_CHANGES_AT_A_TIME, len(self._catalog_changes))):
            change = self._catalog_changes[0]
            call = CallRef("catalog", "", change.tool_name, "local", "toolpost", "", self._redactor.plain)
            self.emit(call, EventCode.CATALOG_CHANGED, {"change": change.kind})
            self._catalog_changes.popleft()

    def emit_breaker(self, source: str, state: str, *, tenant: str = LOCAL_TENANT) -> None:
        """Emit that the circuit breaker of a source, or of one tenant's host, opened or closed."""
        code = EventCode.BREAKER_CLOSED if state == "closed" else EventCode.BREAKER_OPENED
        self.emit_source(source, code, {"state": state}, tenant=tenant)

    def emit_config(self, code: EventCode, facts: Mapping[str, Any]) -> None:
        """Emit that other settings were applied, or rejected."""
        self.emit(CallRef("configuration", "", "", LOCAL_TENANT, "toolpost", "", self._redactor.plain), code, facts)

    def emit_caller_key(self, code: EventCode, key: CallerKey, *, by: str) -> None:
        """Emit that the key of a caller was created or revoked, to the tenant of the key, without the key."""
        call = CallRef(CALLER_KEY_RUN, "", "", key.principal.tenant, "toolpost", "", self._redactor.plain)
        shown = key.to_dict()
        facts = {name: shown[name] for name in ("name", "user", "scopes", "expires_at", "interactive", "person")}
        self.emit(call, code, {"key_id": key.id, **facts, "by": by})

    def emit_session(self, code: EventCode, session: CallerSession, **facts: Any) -> None:
        """Emit that a console session was created or ended, to the tenant of the session, without its secret."""
        scopes = [scope for scope in SCOPES if scope in session.scopes]
        shown = {"session_id": session.id, "user": str(session.principal), "scopes": scopes}
        self._emit_of_sessions(session.principal.tenant, code, {**shown, "credential": session.credential, **facts})

    def emit_refused_ticket(self, reason: str, *, tenant: str) -> None:
        """Emit that a ticket for a console session was refused."""
        self._emit_of_sessions(tenant, EventCode.TICKET_REFUSED, {"reason": reason})

    def _emit_of_sessions(self, tenant: str, code: EventCode, facts: Mapping[str, Any]) -> None:
        self.emit(CallRef(CALLER_SESSION_RUN, "", "", tenant, "toolpost", "", self._redactor.plain), code, facts)

    def emit_source(self, name: str, code: EventCode, facts: Mapping[str, Any], *, tenant: str = LOCAL_TENANT) -> None:
        """Emit the state of a source; only its tenant sees the event of a tenant's source."""
        run_id = f"source_{name}" if tenant == LOCAL_TENANT else f"source_{tenant}_{name}"
        call = CallRef(run_id, "", "", tenant, "toolpost", "", self._redactor.plain)
        self.emit(call, code, {"source": name, **facts})


class _ProgressSink:
    """Event sink that passes the progress of one run or one call to a function."""

    def __init__(self, receive: Callable[[RunEvent], None], run_id: str | None, call_id: str | None) -> None:
        self._receive = receive
        self._run_id = run_id
        self._call_id = call_id

    def emit(self, event: RunEvent) -> None:
        is_progress = event.code is EventCode.SUBAGENT_ACTION and self._run_id in (None, event.call.run_id)
        if is_progress and self._call_id in (None, event.call.call_id):
            self._receive(event)


class NotJson(JsonText):
    """Placeholder in events for arguments that cannot be written as JSON."""

    __slots__ = ()


def snapshot_value(value: Any) -> JsonText:
    """Return a value as immutable JSON text."""
    try:
        return JsonText(_encode(value))
    except (TypeError, ValueError, RecursionError):
        return NotJson(json.dumps(f"<{type(value).__name__} that is not JSON>"))


def snapshot_arguments(arguments: Any) -> Any:
    """Return an immutable snapshot of the arguments for events."""
    if arguments.__class__ is not dict:
        return snapshot_value(arguments)
    snapshot = arguments.copy()  # first: another thread may change the caller's dict
    for value in snapshot.values():
        if type(value) not in _IMMUTABLE:
            return snapshot_value(arguments)
    return snapshot


def describe_value(value: Any, call: CallRef) -> dict[str, Any]:
    """Return the facts of a streamed value: its text with secrets masked, and the value unless it is large or binary.

    Unlike other progress, they have no `fraction`.
    """
    if isinstance(value, bytes):
        return {"text": f"{len(value)} bytes"}
    encoded = snapshot_value(value)
    is_large = len(encoded) > _LONGEST_VALUE
    if isinstance(value, str):
        text = value
    elif is_large:
        text = f"a large {type(value).__name__}"
    else:  # a text has no member names that mark secrets
        text = _encode(call.redact({"value": encoded})["value"])
    if len(text) > _LONGEST_TEXT:
        text = f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"
    return {"text": text} if is_large else {"text": text, "value": encoded}


def error_facts(error: ToolError) -> dict[str, Any]:
    """Return the facts of an error for an event."""
    facts = {"error_code": error.error_code, "error_message": error.message, "error": error.message}
    if isinstance(error, ToolTimeoutError) and error.bound is not None:
        facts["bound"] = error.bound
    return facts
