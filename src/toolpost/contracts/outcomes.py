"""Outcomes of a call: completed, failed or paused, and the flat ToolResult that executors return."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, final

from msgspec import Struct

from toolpost.contracts.errors import PauseSignal, ToolError
from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question

NO_META: Mapping[str, Any] = MappingProxyType({})
OUTPUT_ISSUES = "output_issues"
"""The key of `Completed.meta` with the violations of the output schema."""
SERVER_META = "_meta"
"""The key of `Completed.meta` with the `_meta` of an MCP server's result, as far as it is passed through."""
OWN_META = "toolpost/"
"""The namespace of the members that Toolpost adds to the `_meta` of MCP results; an upstream server cannot set them."""


@final
class Completed(Struct, frozen=True):
    """The outcome of a successful call.

    The result matches the output schema, unless `meta["output_issues"]` lists violations. `content` is the result; for
    a large result it is a preview, and `artifacts` contains the id of the full result. `meta` contains data of the
    source: the `status` of an HTTP response, the arguments of the `next` page, and the `_meta` of an MCP server's
    result.
    """

    status: ClassVar[str] = "completed"
    call_id: str
    run_id: str
    tool_name: str
    content: Any
    duration_ms: float = 0.0
    artifacts: tuple[str, ...] = ()
    text: str | None = None
    cached: bool = False
    meta: Mapping[str, Any] = NO_META

    def __repr__(self) -> str:
        return represent(self, "content", "text", "meta")


@final
class Failed(Struct, frozen=True):
    """The outcome of a failed call; `error` contains the reason and whether a retry could help."""

    status: ClassVar[str] = "failed"
    call_id: str
    run_id: str
    tool_name: str
    error: ToolError
    duration_ms: float = 0.0


class OpenQuestion(Struct, frozen=True):
    """An open question, and the tool of its call."""

    pending_id: str
    tool_name: str
    question: Question

    def to_dict(self) -> dict[str, Any]:
        """Return the question as JSON data for all surfaces."""
        return {"id": self.pending_id, "tool_name": self.tool_name, **self.question.to_dict()}


@final
class Paused(Struct, frozen=True):
    """The outcome of a call that needs an answer from a person.

    `pending_id` identifies the pending action but does not authorize anyone to answer it. If nested calls are waiting,
    `inside` contains all their questions and `question` is the first of them.
    """

    status: ClassVar[str] = "paused"
    call_id: str
    run_id: str
    tool_name: str
    pending_id: str
    question: Question
    duration_ms: float = 0.0
    inside: tuple[OpenQuestion, ...] = ()

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """All questions of the call, in most cases one."""
        return self.inside or (OpenQuestion(self.pending_id, self.tool_name, self.question),)


def pause_signal(paused: Paused) -> PauseSignal:
    """Return the signal that carries a pause to a caller that takes no outcome."""
    others = {one.pending_id: one.question for one in paused.questions[1:]}
    return PauseSignal(paused.question, pending_id=paused.pending_id, others=others)


Outcome: TypeAlias = Completed | Failed | Paused


def outcome_to_dict(outcome: Outcome) -> dict[str, Any]:
    """Return the outcome as JSON data, the same for every surface."""
    base: dict[str, Any] = {
        "status": outcome.status,
        "call_id": outcome.call_id,
        "run_id": outcome.run_id,
        "tool_name": outcome.tool_name,
        "content": None,
        "error": None,
        "pending": None,
        "artifacts": [],
        "meta": {},
        "duration_ms": round(outcome.duration_ms, 3),
    }
    match outcome:
        case Completed():
            return {
                **base,
                "content": outcome.content,
                "artifacts": list(outcome.artifacts),
                "meta": dict(outcome.meta),
            }
        case Failed():
            return {**base, "error": outcome.error.to_dict()}
        case Paused(questions=questions):
            return {**base, "pending": questions_to_dict(questions)}


def questions_to_dict(questions: Sequence[OpenQuestion]) -> dict[str, Any]:
    """Return the questions of a call as JSON data: the first one, with the `others` as a member."""
    first, *others = questions
    return {**first.to_dict(), "others": [one.to_dict() for one in others]}


class ToolResult(Struct, frozen=True, kw_only=True):
    """The result of `Tool.execute` and `ToolExecutor.execute`; times are Unix milliseconds."""

    success: bool
    result: Any = None
    error: str | None = None
    started_at: float = 0.0
    completed_at: float | None = None
    duration_ms: float | None = None
    content_text: str | None = None
    error_info: dict[str, Any] | None = None
    artifacts: tuple[str, ...] = ()
    call_id: str = ""
    run_id: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("result", "content_text"))

    @classmethod
    def completed(cls, content: Any, text: str | None = None, *, started_at: float) -> ToolResult:
        """Build the result of a call that began at `started_at` and has succeeded now."""
        done = now_ms()
        return cls(
            success=True,
            result=content,
            content_text=text,
            started_at=started_at,
            completed_at=done,
            duration_ms=done - started_at,
        )

    @classmethod
    def failed(cls, error: ToolError, *, started_at: float) -> ToolResult:
        """Build the result of a call that began at `started_at` and has failed now."""
        done = now_ms()
        return cls(
            success=False,
            error=error.message,
            error_info=error.to_dict(),
            started_at=started_at,
            completed_at=done,
            duration_ms=done - started_at,
        )


def now_ms() -> float:
    """Return the current time in Unix milliseconds."""
    return time.time() * 1000
