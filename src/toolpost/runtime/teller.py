"""Tells what happens to calls: the one place where events are made."""

from __future__ import annotations

import json
import logging
import time
from typing import TYPE_CHECKING, Any

from toolpost.contracts.compact_json import compact_encoder
from toolpost.contracts.events import CallRef, EventCode, JsonText, RunEvent
from toolpost.contracts.makers import maker
from toolpost.contracts.outcomes import OUTPUT_ISSUES, Completed, Failed
from toolpost.contracts.principal import LOCAL_TENANT
from toolpost.policy.redaction import secret_values
from toolpost.runtime.bus import fan_out

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.catalog.registry import CatalogChange
    from toolpost.contracts.calls import RequestedCall
    from toolpost.contracts.errors import ToolError
    from toolpost.contracts.questions import PendingAction
    from toolpost.contracts.storage import EventSink
    from toolpost.policy.redaction import Redactor
    from toolpost.runtime.lane import Lane

_log = logging.getLogger("toolpost.runtime")
_now = time.time
_new_event = maker(RunEvent)
_new_ref = maker(CallRef)
_COMPLETED = EventCode.TOOL_CALL_COMPLETED  # looking a member up runs Python code
_IMMUTABLE = frozenset({str, int, float, bool, type(None)})
_encode = compact_encoder()


class Teller:
    """Emits events to the log and to every other sink, and announces questions to the application."""

    def __init__(
        self, sinks: Sequence[EventSink], redactor: Redactor, announce: Callable[[PendingAction], None] | None = None
    ) -> None:
        self._emit = fan_out(sinks)
        self._announce = announce
        self.redactor = redactor

    def beside(self, sinks: Sequence[EventSink]) -> Teller:
        """A teller with the same secrets that tells others."""
        return Teller(sinks, self.redactor, self._announce)

    def ref(self, request: RequestedCall, lane: Lane | None) -> CallRef:
        """The call that events will speak of."""
        call_id, (tenant, user) = request.call_id, request.principal
        correlation = request.correlation_id or call_id
        if lane is None:
            return CallRef(request.run_id, call_id, request.tool_name, tenant, user, correlation, self.redactor.plain)
        redact = lane.redact
        if lane.secret_paths:  # what the arguments say in secret must not come back in an error or a result
            arguments, results = lane.entry.secret_paths
            redact = self.redactor_for(request, lane).for_tool(arguments=arguments, results=results)
        return _new_ref((request.run_id, call_id, lane.name, tenant, user, correlation, redact))

    def redactor_for(self, request: RequestedCall, lane: Lane | None) -> Redactor:
        """The redactor that also knows the secrets in a call's own arguments."""
        if lane is None or not lane.secret_paths:
            return self.redactor
        return self.redactor.with_secrets(secret_values(request.arguments, lane.secret_paths))

    def tell(self, call: CallRef, code: EventCode, facts: Mapping[str, Any]) -> None:
        """Emit one event."""
        self._emit(_new_event((code, _now(), call, facts)))

    def ended(self, call: CallRef, outcome: Completed | Failed, *, summary: Any = None) -> None:
        """Emit the one event that ends a call."""
        if isinstance(outcome, Completed):
            facts: dict[str, Any] = {"summary": summary, "duration_ms": outcome.duration_ms}
            if outcome.artifacts:
                facts["output_artifact_id"] = outcome.artifacts[0]
            if OUTPUT_ISSUES in outcome.meta:
                facts[OUTPUT_ISSUES] = outcome.meta[OUTPUT_ISSUES]
            self.tell(call, _COMPLETED, facts)
        else:
            self.tell(call, EventCode.TOOL_CALL_FAILED, {**why(outcome.error), "duration_ms": outcome.duration_ms})

    def paused(self, call: CallRef, action: PendingAction) -> None:
        """Tell, by event and to the application, that a person is needed."""
        question = action.question
        code = EventCode.APPROVAL_REQUESTED if question.kind == "approval" else EventCode.CALL_PAUSED
        facts = {"pending_id": action.id, "kind": question.kind, "prompt": question.prompt}
        self.tell(call, code, {**facts, "arguments": dict(question.arguments), "target": dict(question.target)})
        if self._announce is not None:
            self._announce(action)

    def catalog(self, change: CatalogChange) -> None:
        """Tell that a tool came, went or changed."""
        call = CallRef("catalog", "", change.tool_name, "local", "toolpost", "", self.redactor.plain)
        self.tell(call, EventCode.CATALOG_CHANGED, {"change": change.kind})

    def breaker(self, source: str, state: str, *, tenant: str = LOCAL_TENANT) -> None:
        """Tell that a source's breaker opened or closed, and whom it concerns."""
        code = EventCode.BREAKER_CLOSED if state == "closed" else EventCode.BREAKER_OPENED
        self.source(source, code, {"state": state}, tenant=tenant)

    def source(self, name: str, code: EventCode, facts: Mapping[str, Any], *, tenant: str = LOCAL_TENANT) -> None:
        """Tell how a source is doing; where it is one tenant's alone, only that tenant is told."""
        run_id = f"source_{name}" if tenant == LOCAL_TENANT else f"source_{tenant}_{name}"
        call = CallRef(run_id, "", "", tenant, "toolpost", "", self.redactor.plain)
        self.tell(call, code, {"source": name, **facts})


class NotJson(JsonText):
    """What is told of arguments that cannot be written down."""

    __slots__ = ()


def as_told(arguments: Any) -> Any:
    """Arguments as they are at this moment; what anyone does to them later does not change the record."""
    if arguments.__class__ is dict and _IMMUTABLE.issuperset(map(type, arguments.values())):
        return arguments.copy()
    try:
        return JsonText(_encode(arguments))
    except (TypeError, ValueError, RecursionError):
        return NotJson(json.dumps(f"<{type(arguments).__name__} that is not JSON>"))


def why(error: ToolError) -> dict[str, Any]:
    """What events tell of an error."""
    return {"error_code": error.error_code, "error_message": error.message, "error": error.message}
