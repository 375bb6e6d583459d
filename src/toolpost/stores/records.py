"""Questions and answers as plain data, and back."""

from __future__ import annotations

import json
from dataclasses import fields, replace
from typing import Any

from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, Question
from toolpost.stores.sealing import to_json

# What changes in the life of a question stands beside the record, not in it.
_CHANGING = frozenset({"status", "answer", "answered_by", "answered_at", "outcome"})
_KEPT = tuple(field.name for field in fields(PendingAction) if field.name not in _CHANGING)
_QUESTION = tuple(field.name for field in fields(Question))
_ANSWER = tuple(field.name for field in fields(Answer))


def action_to_data(action: PendingAction) -> dict[str, Any]:
    """The part of a pending action that never changes."""
    return {
        **{name: getattr(action, name) for name in _KEPT},
        "question": {name: getattr(action.question, name) for name in _QUESTION},
        "answers": {key: answer_to_data(answer) for key, answer in action.answers.items()},
    }


def action_from_data(data: dict[str, Any]) -> PendingAction:
    """A pending action as it was added."""
    question: dict[str, Any] = {**data["question"], "answerers": _names(data["question"].get("answerers"))}
    values: dict[str, Any] = {
        **data,
        "question": Question(**question),
        "asked_by": Principal(*data["asked_by"]),
        "answers": {key: Answer(**answer) for key, answer in data["answers"].items()},
        "answerers": _names(data["answerers"]),
    }
    return PendingAction(**values)


def _names(kept: list[str] | None) -> tuple[str, ...] | None:
    return None if kept is None else tuple(kept)


def answer_to_data(answer: Answer) -> dict[str, Any]:
    """An answer as plain data."""
    return {name: getattr(answer, name) for name in _ANSWER}


def detached(value: Any, what: str) -> Any:
    """A copy that shares nothing with the original; StoreError when it is not JSON."""
    return json.loads(to_json(value, what))


def detached_action(action: PendingAction) -> PendingAction:
    """A copy of a pending action, as reading it back from a disk would give."""
    answer, outcome = action.answer, action.outcome
    return replace(
        action_from_data(detached(action_to_data(action), "pending")),
        status=action.status,
        answer=None if answer is None else Answer(**detached(answer_to_data(answer), "pending")),
        answered_by=action.answered_by,
        answered_at=action.answered_at,
        outcome=None if outcome is None else detached(dict(outcome), "pending"),
    )
