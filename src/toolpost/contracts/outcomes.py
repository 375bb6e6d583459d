"""Outcomes of a call: completed, failed or paused, and the flat ToolResult that executors return."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, TypeAlias, final

from msgspec import Struct

from toolpost.contracts.errors import PauseSignal, ToolError
from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from toolpost.contracts.questions import Question

NO_META: Mapping[str, Any] = MappingProxyType({})
OUTPUT_ISSUES = "output_issues"
"""Where `Completed.meta` lists how a result breaks the tool's own output schema."""
SERVER_META = "_meta"
"""Where `Completed.meta` has the `_meta` of an MCP server's result, as far as it is passed on."""
OWN_META = "toolpost/"
"""The namespace of the members that Toolpost adds to the `_meta` of MCP results; a server behind cannot set them."""


@final
class Completed(Struct, frozen=True):
    """The tool ran. Its result fits the output schema, or `meta["output_issues"]` lists where it does not.

    `content` is the result; of a large one it is a preview, and `artifacts` names the whole. `meta` is what a source
    adds: the `status` of an HTTP response, under `next` the arguments that ask for the next page, and the `_meta` of an
    MCP server's result.
    """

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

    @property
    def status(self) -> str:
        """Return the name of the outcome."""
        return "completed"


@final
class Failed(Struct, frozen=True):
    """The call did not succeed; `error` says why and whether trying again could help."""

    call_id: str
    run_id: str
    tool_name: str
    error: ToolError
    duration_ms: float = 0.0

    @property
    def status(self) -> str:
        """Return the name of the outcome."""
        return "failed"


class OpenQuestion(Struct, frozen=True):
    """A question that waits for a person, and the tool that it is about."""

    pending_id: str
    tool_name: str
    question: Question

    def to_dict(self) -> dict[str, Any]:
        """Return what every surface shows of it."""
        return {"id": self.pending_id, "tool_name": self.tool_name, **self.question.to_dict()}


@final
class Paused(Struct, frozen=True):
    """The call waits for a person. The pending id is an address: it grants no right to answer.

    Where calls that it made wait, `inside` has the questions of them all; the first of them is `question`.
    """

    call_id: str
    run_id: str
    tool_name: str
    pending_id: str
    question: Question
    duration_ms: float = 0.0
    inside: tuple[OpenQuestion, ...] = ()

    @property
    def questions(self) -> tuple[OpenQuestion, ...]:
        """All questions that it waits with, in most cases one."""
        return self.inside or (OpenQuestion(self.pending_id, self.tool_name, self.question),)

    @property
    def status(self) -> str:
        """Return the name of the outcome."""
        return "paused"


def pause_signal(paused: Paused) -> PauseSignal:
    """Return the signal that carries a pause out of a call whose caller takes no outcome."""
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
    """Return the questions that a call waits with as JSON data: the first one, and with it the `others`."""
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
        """Build the result of a call that began at `started_at` and has just succeeded."""
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
        """Build the result of a call that began at `started_at` and has just failed."""
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
