"""What comes of a planner's run: its end, or a pause and what a person may say to it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, cast

from toolpost.contracts.questions import DECISIONS, Answer

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.agents.conversation import Conversation
    from toolpost.contracts.questions import Decision, QuestionKind

FinishReason = Literal["answer_complete", "no_path", "budget_exhausted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerFinish:
    """The end of a run: the model answered, had nothing to say, or used up its turns."""

    reason: FinishReason
    payload: Mapping[str, Any] = field(repr=False)
    metadata: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannerPause:
    """A run that waits for a person; what resumes it and the payload, which may say where to sign in, are secrets.

    `arguments`, with secrets masked and long values cut, and `target` say which call waits.
    `refused` says why the last answer to the question was not taken.
    """

    reason: str
    payload: Mapping[str, Any] = field(repr=False)
    resume_token: str = field(repr=False)
    kind: QuestionKind
    prompt: str
    tool_name: str
    pending_id: str
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Mapping[str, str] = field(default_factory=dict[str, str])
    refused: str = ""


def finish_of(talk: Conversation, reason: FinishReason, answer: Any = None) -> PlannerFinish:
    """The end of a conversation."""
    facts = {"run_id": talk.run_id, "user_id": talk.user, "iterations": talk.turns, "tool_calls": talk.calls}
    return PlannerFinish(reason=reason, payload={"answer": answer}, metadata=facts)


def answer_of(kind: QuestionKind, user_input: Any) -> Answer:
    """What a person said; where only a decision is wanted, the input is its word."""
    if isinstance(user_input, Answer):
        return user_input
    if "answer" in DECISIONS[kind]:
        return Answer(decision="answer", value=user_input)
    return Answer(decision=cast("Decision", str(user_input)))
