"""Build call events and send them to every sink. The only place that creates RunEvents."""

from __future__ import annotations

import inspect
import json
import logging
import time
from typing import TYPE_CHECKING, Any

from toolpost.contracts.events import JOURNALED, CallRef, EventCode, JsonText, RunEvent
from toolpost.contracts.fast_namedtuple import fast_constructor
from toolpost.contracts.outcomes import OUTPUT_ISSUES, Completed, Failed
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.schema.json_values import compact_encoder

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolpost.catalog.registry import CatalogChange
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import OnPending, PendingAction
    from toolpost.contracts.storage import EventSink
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.concurrency import BackgroundTasks

_log = logging.getLogger("toolpost.runtime")
_sink_log = logging.getLogger("toolpost.events")
_now = time.time
_new_event = fast_constructor(RunEvent)
_COMPLETED = EventCode.TOOL_CALL_COMPLETED  # looking up an enum member runs Python code
_IMMUTABLE = frozenset({str, int, float, bool, type(None)})
_encode = compact_encoder()


class EventBus:
    """Event sink that passes each event to the subscribers of its code, or of all codes (None).

    A subscriber that raises is logged and does not disturb the call or the other subscribers.
    """

    def __init__(self, *, keep_history: bool = False) -> None:
        self._handlers: list[tuple[EventCode | None, Callable[[RunEvent], None]]] = []
        self.history: list[RunEvent] = []
        self._keep_history = keep_history

    def subscribe(self, code: EventCode | None, handler: Callable[[RunEvent], None]) -> Callable[[], None]:
        """Call `handler` for every event of a code, and return the function that ends the subscription.

        The handler is a plain function and returns at once. It is called on the event loop, except for the progress
        of a plain function, which comes from its worker thread: pass that on with `loop.call_soon_threadsafe`.
        """
        subscription = (code, handler)
        self._handlers.append(subscription)
        return lambda: self._handlers.remove(subscription)

    def emit(self, event: RunEvent) -> None:
        """Pass an event to its subscribers."""
        if self._keep_history:
            self.history.append(event)
        for code, handler in tuple(self._handlers):
            if code is None or code == event.code:
                _handle(handler, event)


def fan_out(sinks: Sequence[EventSink]) -> Callable[[RunEvent], None]:
    """Return one function that emits to every sink; the first must be the log, whose errors reach the caller."""
    if len(sinks) == 1:
        return sinks[0].emit
    first, others = sinks[0].emit, [sink.emit for sink in sinks[1:]]

    def emit(event: RunEvent) -> None:
        first(event)
        for other in others:
            _handle(other, event)

    return emit


def _handle(handler: Callable[[RunEvent], None], event: RunEvent) -> None:
    try:
        handler(event)
    except Exception:  # noqa: BLE001 - foreign code; one subscriber must not disturb the others
        _sink_log.exception("an event subscriber failed on %s", event.code.name)


class EventEmitter:
    """Emit events to the log and to every other sink, and report questions to the application's `on_pending`."""

    def __init__(
        self,
        sinks: Sequence[EventSink],
        redactor: Redactor,
        background: BackgroundTasks,
        on_pending: OnPending | None = None,
    ) -> None:
        self._emit = fan_out(sinks)
        self._redactor = redactor
        self._background = background
        self._on_pending = on_pending

    def with_sinks(self, sinks: Sequence[EventSink]) -> EventEmitter:
        """Return an emitter for other sinks, with the same redactor and `on_pending`."""
        return EventEmitter(sinks, self._redactor, self._background, self._on_pending)

    def emit(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        """Emit one event of a call."""
        self._emit(_new_event((code, _now(), call, facts)))

    def emit_end(
        self, call: CallRef, outcome: Completed | Failed, *, summary: Any = None, journaled: bool = False
    ) -> None:
        """Emit the one event that ends a call; `journaled` says that its journal entry was written, for `verify`."""
        facts: dict[str, Any]
        if isinstance(outcome, Completed):
            code, facts = _COMPLETED, {"summary": summary, "duration_ms": outcome.duration_ms}
            if outcome.artifacts:
                facts["output_artifact_id"] = outcome.artifacts[0]
            if OUTPUT_ISSUES in outcome.meta:
                facts[OUTPUT_ISSUES] = outcome.meta[OUTPUT_ISSUES]
        else:
            code = EventCode.TOOL_CALL_FAILED
            facts = {**error_facts(outcome.error), "duration_ms": outcome.duration_ms}
        if journaled:
            facts[JOURNALED] = True
        self.emit(call, code, facts)

    def emit_pause(self, call: CallRef, action: PendingAction) -> None:
        """Emit that a call waits for a person, and report the question to `on_pending`."""
        question = action.question
        code = EventCode.APPROVAL_REQUESTED if question.kind == "approval" else EventCode.CALL_PAUSED
        facts = {"pending_id": action.id, "kind": question.kind, "prompt": question.prompt}
        self.emit(call, code, {**facts, "arguments": dict(question.arguments), "target": dict(question.target)})
        if self._on_pending is not None:
            self._notify(self._on_pending, action)

    def _notify(self, on_pending: OnPending, action: PendingAction) -> None:
        """Call `on_pending` without waiting for a coroutine; the question stands whatever it raises."""
        try:
            handled = on_pending(action)
        except Exception:  # noqa: BLE001 - foreign code
            _log.exception("on_pending failed on %s", action.id)
        else:
            if inspect.isawaitable(handled):
                self._background.start(_finish_notification(handled, action.id))

    def emit_catalog_change(self, change: CatalogChange) -> None:
        """Emit that a tool was added, removed or changed."""
        call = CallRef("catalog", "", change.tool_name, "local", "toolpost", "", self._redactor.plain)
        self.emit(call, EventCode.CATALOG_CHANGED, {"change": change.kind})

    def emit_breaker(self, source: str, state: str, *, tenant: str = LOCAL_TENANT) -> None:
        """Emit that the circuit breaker of a source, or of one tenant's host, opened or closed."""
        code = EventCode.BREAKER_CLOSED if state == "closed" else EventCode.BREAKER_OPENED
        self.emit_source(source, code, {"state": state}, tenant=tenant)

    def emit_source(self, name: str, code: EventCode, facts: Mapping[str, Any], *, tenant: str = LOCAL_TENANT) -> None:
        """Emit the state of a source; the event of one tenant's source is visible to that tenant alone."""
        run_id = f"source_{name}" if tenant == LOCAL_TENANT else f"source_{tenant}_{name}"
        call = CallRef(run_id, "", "", tenant, "toolpost", "", self._redactor.plain)
        self.emit(call, code, {"source": name, **facts})


async def _finish_notification(handled: Awaitable[None], action_id: str) -> None:
    try:
        await handled
    except Exception:  # noqa: BLE001 - foreign code
        _log.exception("on_pending failed on %s", action_id)


class NotJson(JsonText):
    """Placeholder in events for arguments that cannot be written as JSON."""

    __slots__ = ()


def snapshot_arguments(arguments: Any) -> Any:
    """Return an immutable snapshot of the arguments for events."""
    if arguments.__class__ is dict and _IMMUTABLE.issuperset(map(type, arguments.values())):
        return arguments.copy()
    try:
        return JsonText(_encode(arguments))
    except (TypeError, ValueError, RecursionError):
        return NotJson(json.dumps(f"<{type(arguments).__name__} that is not JSON>"))


def error_facts(error: ToolError) -> dict[str, Any]:
    """Return the facts of an error for an event."""
    return {"error_code": error.error_code, "error_message": error.message, "error": error.message}
