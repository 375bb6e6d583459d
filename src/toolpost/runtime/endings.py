"""How a waiting call ends without running again: refused, too late, cancelled, or as a person reports."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.errors import ToolApprovalDenied, ToolCancelledError, ToolError
from toolpost.contracts.events import CallRef, EventCode, RunSummary
from toolpost.contracts.outcomes import Completed, Failed, Paused
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import PendingAction
from toolpost.contracts.storage import JournalEntry
from toolpost.runtime.results import summary_of
from toolpost.runtime.revive import revive

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.questions import Answer
    from toolpost.runtime.teller import Teller

_ANSWERED = {"approve": EventCode.APPROVAL_GRANTED, "deny": EventCode.APPROVAL_DENIED}


class Endings:
    """Makes the outcomes of calls that no tool decides, and tells of them; `release` lets go of what they hold."""

    def __init__(self, teller: Teller, release: Callable[[PendingAction], None]) -> None:
        self._teller = teller
        self._release = release

    def answered(self, action: PendingAction, answer: Answer, *, recovered: bool = False) -> None:
        """Tell that a person answered; `recovered` that this is told again, after a crash."""
        facts: dict[str, Any] = {"pending_id": action.id, "by": action.answered_by, "decision": answer.decision}
        if recovered:
            facts["recovered"] = True
        code = _ANSWERED.get(answer.decision, EventCode.CALL_RESUMED)
        self._teller.tell(self._ref(action), code, {**facts, "reason": answer.reason})

    def denied(self, action: PendingAction, answer: Answer) -> Failed:
        """A person said no."""
        because = f": {answer.reason}" if answer.reason else ""
        return self._failed(action, ToolApprovalDenied(f"{action.answered_by} refused {action.tool_name}{because}"))

    def expired(self, action: PendingAction) -> Failed:
        """Nobody answered in time: the answer is no."""
        self._teller.tell(self._ref(action), EventCode.QUESTION_EXPIRED, {"pending_id": action.id})
        return self._failed(action, ToolApprovalDenied(f"nobody answered {action.id} in time", code="question_expired"))

    def cancelled(self, action: PendingAction) -> Failed:
        """The call was cancelled while it waited."""
        return self._failed(action, ToolCancelledError("the call was cancelled while it waited for a person"))

    def happened(self, action: PendingAction, content: Any) -> Completed:
        """A person knows that the interrupted call took effect."""
        outcome = Completed(action.call_id, action.run_id, action.tool_name, content)
        self._teller.ended(self._ref(action), outcome, summary="as a person reported")
        return outcome

    def not_happened(self, action: PendingAction) -> Failed:
        """A person knows that the interrupted call did not take effect."""
        return self._failed(action, ToolError("the call was interrupted and did not happen", code="not_executed"))

    def interrupted(self, of: JournalEntry | RunSummary) -> Failed:
        """A call that is safe to repeat lost its process."""
        message = "the process running this call ended before it did; it is safe to call again"
        return self._failed(of, ToolError(message, code="interrupted"))

    def recorded(self, of: RunSummary, kept: Mapping[str, Any]) -> None:
        """A call whose result was written down lost its process before anybody was told."""
        outcome = revive(kept)
        if not isinstance(outcome, Paused):
            content = outcome.content if isinstance(outcome, Completed) else None
            self._teller.ended(self._ref(of), outcome, summary=summary_of(content))

    def paused(self, of: JournalEntry | PendingAction, action: PendingAction) -> None:
        """Tell that a person is asked: what became of a call, or for an answer that was lost with its process."""
        self._teller.paused(self._ref(of), action)

    def _failed(self, of: PendingAction | JournalEntry | RunSummary, error: ToolError) -> Failed:
        if isinstance(of, PendingAction):
            self._release(of)
        error.tool_name = of.tool_name
        error.conceal(self._teller.redactor.message)
        outcome = Failed(of.call_id, of.run_id, of.tool_name, error)
        self._teller.ended(self._ref(of), outcome)
        return outcome

    def _ref(self, of: PendingAction | JournalEntry | RunSummary) -> CallRef:
        """The call that is spoken of."""
        redact = self._teller.redactor.plain
        if isinstance(of, PendingAction):
            who, correlation = of.asked_by, of.correlation_id
        elif isinstance(of, JournalEntry):
            who, correlation = of.principal, of.call.get("correlation_id", "")
        else:
            who, correlation = Principal(of.tenant, of.user), ""
        return CallRef(of.run_id, of.call_id, of.tool_name, who.tenant, who.user, correlation or of.call_id, redact)
