"""Pauses as data: what is asked, of whom, and what came back."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from toolpost.contracts.principal import Principal

QuestionKind = Literal["approval", "consent", "input", "unknown"]
Decision = Literal["approve", "deny", "answer", "happened", "not_happened", "rerun"]
PendingStatus = Literal["open", "claimed", "answered", "denied", "expired", "cancelled"]
OnPending: TypeAlias = "Callable[[PendingAction], Awaitable[None] | None]"

DECISIONS: Mapping[QuestionKind, frozenset[Decision]] = {
    "approval": frozenset({"approve", "deny"}),
    "consent": frozenset({"answer", "deny"}),
    "input": frozenset({"answer", "deny"}),
    "unknown": frozenset({"happened", "not_happened", "rerun"}),
}


class CallPreview(NamedTuple):
    """What one call would do, found out before anything has effects.

    `destructive` decides in place of what the tool declares (None leaves that), and `reason` ends the sentence
    "It needs a person's yes: ...". `text` is shown to whoever decides, such as a diff. `state` stands for all that the
    preview was made of: a yes holds while it stays the same, and the running tool finds it as `ctx.preview.state`.
    """

    destructive: bool | None = None
    reason: str = ""
    text: str = ""
    state: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Something only a person can decide.

    `key` tells the questions of one call apart: when the call runs again from the
    top, an answer is found under the key of the question it belongs to. A value must
    fit `answer_schema` if there is one. `state` is what the asking side wants back
    with the answer: it is kept sealed and shown to nobody. With `deliver_denial` a
    person's no is an answer that the tool gets to hear, not the end of the call.
    `arguments` and `target` say which call it is about: with secrets masked and long values
    cut, and where the call goes (`kind` and a line of `summary`). Whoever asks may leave them
    out; they are filled in when the call pauses. A `preview` in the payload shows what would change.
    `answerers` (None: anyone of the tenant) and `four_eyes` (not whoever asked) say who may answer.
    """

    kind: QuestionKind
    prompt: str
    reason: str = "approval_required"
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any], repr=False)  # it may hold where to sign in
    key: str = "approval"
    expires_in_s: float | None = None
    answer_schema: Mapping[str, Any] | None = None
    state: Any = field(default=None, repr=False)
    deliver_denial: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Mapping[str, str] = field(default_factory=dict[str, str])
    answerers: tuple[str, ...] | None = None
    four_eyes: bool = False

    def to_dict(self) -> dict[str, Any]:
        """What every surface shows of it."""
        return {
            "kind": self.kind,
            "prompt": self.prompt,
            "reason": self.reason,
            "arguments": dict(self.arguments),
            "target": dict(self.target),
            "preview": self.payload.get("preview"),
            "answerers": None if self.answerers is None else list(self.answerers),
            "four_eyes": self.four_eyes,
        }

    @classmethod
    def shown(cls, data: Mapping[str, Any]) -> Question:
        """The question that `to_dict` was made of, as far as it is shown."""
        answerers, preview = data.get("answerers"), data.get("preview")
        return cls(
            kind=data["kind"],
            prompt=data["prompt"],
            reason=data.get("reason", "approval_required"),
            payload={} if preview is None else {"preview": preview},
            arguments=data.get("arguments", {}),
            target=data.get("target", {}),
            answerers=None if answerers is None else tuple(answerers),
            four_eyes=data.get("four_eyes", False),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a person said: the decision, a value for the tool, or changed arguments; `state` is the question's."""

    decision: Decision
    value: Any = field(default=None, repr=False)
    reason: str = ""
    arguments: Mapping[str, Any] | None = field(default=None, repr=False)
    state: Any = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingAction:
    """A call that waits for a person, kept until it is answered, expires or is cancelled.

    It holds the exact call, so answering runs that call and nothing else. `answers`
    are the earlier answers of the same call; `answerers` narrows who may answer
    within the tenant: patterns of `tenant:user` (None: anyone in it). Once it was answered,
    `outcome` is what came of it.
    """

    id: str
    question: Question
    call_id: str
    run_id: str
    tool_name: str
    arguments: Mapping[str, Any] = field(repr=False)
    arguments_hash: str
    asked_by: Principal
    created_at: float
    expires_at: float
    status: PendingStatus = "open"
    answerers: tuple[str, ...] | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer], repr=False)
    started: bool = False
    idempotency_key: str | None = field(default=None, repr=False)
    correlation_id: str = ""
    task_id: str = ""
    timeout_s: float | None = None
    context: Mapping[str, Any] | None = field(default=None, repr=False)
    answer: Answer | None = None
    answered_by: str | None = None
    answered_at: float | None = None
    outcome: Mapping[str, Any] | None = field(default=None, repr=False)
