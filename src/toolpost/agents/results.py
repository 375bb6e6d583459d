"""Results of a planner, a finish or a pause, and the events of a run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field
from msgspec.structs import asdict

from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.chat import Usage
    from toolpost.contracts.questions import QuestionKind

FinishReason = Literal["answer_complete", "no_path", "budget_exhausted"]


class PlannerFinish(Struct, frozen=True, kw_only=True):
    """Result of a run that ended: the model answered, could not answer, or used up a budget.

    `messages` is the whole conversation. To continue it, call `planner.run(query, messages=finish.messages)`.
    """

    reason: FinishReason
    payload: Mapping[str, Any]
    metadata: Mapping[str, Any]
    messages: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])

    def __repr__(self) -> str:
        return represent(self, without=("payload", "messages"))

    @property
    def answer(self) -> Any:
        """The answer, of the type of `answer_schema` if the planner has one; None without an answer."""
        return self.payload.get("answer")


class PlannerQuestion(Struct, frozen=True, kw_only=True):
    """A question to a person about a waiting call; `payload` may contain a sign-in address and is a secret.

    The payload of an approval has `prompt`, `arguments`, `target` and `answers`, the words that `resume` accepts.
    `arguments`, with secrets masked and long values cut, and `target` identify the waiting call. `refused` is the
    reason why the last answer was rejected.
    """

    pending_id: str
    kind: QuestionKind
    prompt: str
    tool_name: str
    reason: str
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("payload",))

    def to_dict(self) -> dict[str, Any]:
        """Return the public part of the question as JSON data."""
        facts = {name: value for name, value in asdict(self).items() if name != "payload"}
        return {**facts, "arguments": dict(self.arguments), "target": dict(self.target)}


class PlannerPause(Struct, frozen=True, kw_only=True):
    """A run that waits for people; `resume_token` is a secret.

    `questions` contains every open question. The other members are those of the first.
    """

    questions: tuple[PlannerQuestion, ...]
    resume_token: str
    run_id: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("resume_token",))

    @property
    def reason(self) -> str:
        return self.questions[0].reason

    @property
    def payload(self) -> Mapping[str, Any]:
        return self.questions[0].payload

    @property
    def kind(self) -> QuestionKind:
        return self.questions[0].kind

    @property
    def prompt(self) -> str:
        return self.questions[0].prompt

    @property
    def tool_name(self) -> str:
        return self.questions[0].tool_name

    @property
    def pending_id(self) -> str:
        return self.questions[0].pending_id

    @property
    def arguments(self) -> Mapping[str, Any]:
        return self.questions[0].arguments

    @property
    def target(self) -> Mapping[str, str]:
        return self.questions[0].target

    @property
    def refused(self) -> str:
        return self.questions[0].refused


PlannerResult: TypeAlias = PlannerFinish | PlannerPause


class RunEventBase(Struct, frozen=True, kw_only=True):
    """An event of a run."""

    type: ClassVar[str]
    run_id: str

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return {"type": self.type, **asdict(self)}


class ModelText(RunEventBase, frozen=True, kw_only=True):
    """A piece of the model's text."""

    type: ClassVar[str] = "text"
    text: str


class ModelReplied(RunEventBase, frozen=True, kw_only=True):
    """The model has ended a reply; `steps` counts its replies, `usage` is the run's so far."""

    type: ClassVar[str] = "replied"
    steps: int
    usage: Usage

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, **asdict(self), "usage": self.usage._asdict()}


class CallStarted(RunEventBase, frozen=True, kw_only=True):
    """The model calls a tool; in `arguments` secrets are masked and long values cut."""

    type: ClassVar[str] = "call_started"
    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, **asdict(self), "arguments": dict(self.arguments)}


class CallProgress(RunEventBase, frozen=True, kw_only=True):
    """A running call reports progress, or a value of its stream; `value` has it too unless it is large.

    `call_id` is that of `CallStarted`; it is empty for nested calls, and while several calls of one tool run.
    """

    type: ClassVar[str] = "call_progress"
    call_id: str
    tool_name: str
    text: str
    fraction: float | None = None
    value: Any = None

    def __repr__(self) -> str:
        return represent(self, without=("value",))


class CallEnded(RunEventBase, frozen=True, kw_only=True):
    """A call has ended or paused; `text` is the result for the model."""

    type: ClassVar[str] = "call_ended"
    call_id: str
    tool_name: str
    status: str
    text: str
    duration_ms: float = 0.0

    def __repr__(self) -> str:
        return represent(self, without=("text",))

    def to_dict(self) -> dict[str, Any]:
        return {"type": self.type, **asdict(self), "duration_ms": round(self.duration_ms, 3)}


class RunPaused(RunEventBase, frozen=True, kw_only=True):
    """The run waits for people; the last event of a stream."""

    type: ClassVar[str] = "paused"
    result: PlannerPause

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data, without the resume token."""
        questions = [question.to_dict() for question in self.result.questions]
        return {"type": self.type, "run_id": self.run_id, "questions": questions}


class RunFinished(RunEventBase, frozen=True, kw_only=True):
    """The run has ended; the last event of a stream."""

    type: ClassVar[str] = "finished"
    result: PlannerFinish

    def to_dict(self) -> dict[str, Any]:
        answer = self.result.answer
        dump = getattr(answer, "model_dump", None)
        facts = {"reason": self.result.reason, "answer": dump(mode="json") if callable(dump) else answer}
        return {"type": self.type, "run_id": self.run_id, **facts, "metadata": dict(self.result.metadata)}


PlannerEvent: TypeAlias = ModelText | ModelReplied | CallStarted | CallProgress | CallEnded | RunPaused | RunFinished
OnEvent: TypeAlias = "Callable[[PlannerEvent], object]"
