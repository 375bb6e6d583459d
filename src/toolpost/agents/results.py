"""What a planner returns, a finish or a pause, and the events of a run on the way there."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar, Literal, TypeAlias

from msgspec import Struct, field

from toolpost.contracts.records import represent

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from toolpost.contracts.chat import Usage
    from toolpost.contracts.questions import QuestionKind

FinishReason = Literal["answer_complete", "no_path", "budget_exhausted"]


class PlannerFinish(Struct, frozen=True, kw_only=True):
    """Result of a run that ended: the model answered, found no way to, or used up a budget.

    `messages` is the whole conversation, for the next turn of it: `planner.run(query, messages=finish.messages)`.
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
    """A question to a person, for which one call of a run waits; `payload` may say where to sign in and is a secret.

    The payload of an approval has `prompt`, `arguments`, `target` and `answers`, the words that `resume` takes.
    `arguments`, with secrets masked and long values cut, and `target` say which call waits. `refused` says why the
    last answer to the question was not taken.
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
        """Return what may be shown of the question as JSON data."""
        return {
            "pending_id": self.pending_id,
            "kind": self.kind,
            "prompt": self.prompt,
            "tool_name": self.tool_name,
            "reason": self.reason,
            "arguments": dict(self.arguments),
            "target": dict(self.target),
            "refused": self.refused,
        }


class PlannerPause(Struct, frozen=True, kw_only=True):
    """A run that waits for people; `resume_token` is a secret.

    `questions` has every question that is open. The other members are those of the first.
    """

    questions: tuple[PlannerQuestion, ...]
    resume_token: str
    run_id: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("resume_token",))

    @property
    def reason(self) -> str:
        """Why the call waits, such as `approval_required`."""
        return self.questions[0].reason

    @property
    def payload(self) -> Mapping[str, Any]:
        """What the application needs to ask the question; it never reaches the model."""
        return self.questions[0].payload

    @property
    def kind(self) -> QuestionKind:
        """The kind of question."""
        return self.questions[0].kind

    @property
    def prompt(self) -> str:
        """The question in words."""
        return self.questions[0].prompt

    @property
    def tool_name(self) -> str:
        """The tool whose call waits."""
        return self.questions[0].tool_name

    @property
    def pending_id(self) -> str:
        """The id of the pending action."""
        return self.questions[0].pending_id

    @property
    def arguments(self) -> Mapping[str, Any]:
        """The arguments of the call, with secrets masked."""
        return self.questions[0].arguments

    @property
    def target(self) -> Mapping[str, str]:
        """Where the call goes."""
        return self.questions[0].target

    @property
    def refused(self) -> str:
        """Why the last answer was not taken."""
        return self.questions[0].refused


PlannerResult: TypeAlias = PlannerFinish | PlannerPause


class ModelText(Struct, frozen=True, kw_only=True):
    """A piece of the text that the model writes."""

    type: ClassVar[str] = "text"
    run_id: str
    text: str

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return {"type": self.type, "run_id": self.run_id, "text": self.text}


class ModelReplied(Struct, frozen=True, kw_only=True):
    """The model has ended a reply; `steps` counts its replies, `usage` is what the run has used so far."""

    type: ClassVar[str] = "replied"
    run_id: str
    steps: int
    usage: Usage

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        return {"type": self.type, "run_id": self.run_id, "steps": self.steps, "usage": self.usage._asdict()}


class CallStarted(Struct, frozen=True, kw_only=True):
    """The model calls a tool; in `arguments` secrets are masked and long values cut."""

    type: ClassVar[str] = "call_started"
    run_id: str
    call_id: str
    tool_name: str
    arguments: Mapping[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        facts = {"call_id": self.call_id, "tool_name": self.tool_name, "arguments": dict(self.arguments)}
        return {"type": self.type, "run_id": self.run_id, **facts}


class CallProgress(Struct, frozen=True, kw_only=True):
    """A running call reports what it does, or a value of its stream, which is in `value` too unless it is large.

    `call_id` is that of `CallStarted`; it is empty for calls that tools make, and while several of one tool run.
    """

    type: ClassVar[str] = "call_progress"
    run_id: str
    call_id: str
    tool_name: str
    text: str
    fraction: float | None = None
    value: Any = None

    def __repr__(self) -> str:
        return represent(self, without=("value",))

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        facts = {"call_id": self.call_id, "tool_name": self.tool_name, "text": self.text}
        return {"type": self.type, "run_id": self.run_id, **facts, "fraction": self.fraction, "value": self.value}


class CallEnded(Struct, frozen=True, kw_only=True):
    """A call has ended, or waits for a person; `text` is what the model reads of it."""

    type: ClassVar[str] = "call_ended"
    run_id: str
    call_id: str
    tool_name: str
    status: str
    text: str
    duration_ms: float = 0.0

    def __repr__(self) -> str:
        return represent(self, without=("text",))

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        facts = {"call_id": self.call_id, "tool_name": self.tool_name, "status": self.status, "text": self.text}
        return {"type": self.type, "run_id": self.run_id, **facts, "duration_ms": round(self.duration_ms, 3)}


class RunPaused(Struct, frozen=True, kw_only=True):
    """The run waits for people; the last event of a stream."""

    type: ClassVar[str] = "paused"
    run_id: str
    result: PlannerPause

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data, without what resumes the run."""
        questions = [question.to_dict() for question in self.result.questions]
        return {"type": self.type, "run_id": self.run_id, "questions": questions}


class RunFinished(Struct, frozen=True, kw_only=True):
    """The run has ended; the last event of a stream."""

    type: ClassVar[str] = "finished"
    run_id: str
    result: PlannerFinish

    def to_dict(self) -> dict[str, Any]:
        """Return the event as JSON data."""
        answer = self.result.answer
        dump = getattr(answer, "model_dump", None)
        facts = {"reason": self.result.reason, "answer": dump(mode="json") if callable(dump) else answer}
        return {"type": self.type, "run_id": self.run_id, **facts, "metadata": dict(self.result.metadata)}


PlannerEvent: TypeAlias = ModelText | ModelReplied | CallStarted | CallProgress | CallEnded | RunPaused | RunFinished
OnEvent: TypeAlias = "Callable[[PlannerEvent], object]"
