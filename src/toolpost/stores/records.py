"""Conversions, ids and versions of records that all stores share."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, PendingAction, Question
from toolpost.stores.encryption import copy_json

# The members that change are stored in separate columns.
_CHANGING = frozenset({"status", "answer", "answered_by", "answered_at", "outcome", "owner"})
_KEPT = tuple(name for name in PendingAction.__struct_fields__ if name not in _CHANGING)
_QUESTION = Question.__struct_fields__
_ANSWER = Answer.__struct_fields__


def action_to_data(action: PendingAction) -> dict[str, Any]:
    """Convert the constant part of a pending action to plain data."""
    return {
        **{name: getattr(action, name) for name in _KEPT},
        "question": {name: getattr(action.question, name) for name in _QUESTION},
        "answers": {key: answer_to_data(answer) for key, answer in action.answers.items()},
    }


def action_from_data(data: dict[str, Any]) -> PendingAction:
    """Build a pending action from plain data, as it was added."""
    question: dict[str, Any] = {
        **data["question"],
        "answerers": _names(data["question"].get("answerers")),
        "passed_on": tuple(data["question"].get("passed_on", ())),
    }
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
    """Convert an answer to plain data."""
    return {name: getattr(answer, name) for name in _ANSWER}


def copy_action(action: PendingAction) -> PendingAction:
    """Copy a pending action deeply, as storing and reading it would."""
    answer, outcome = action.answer, action.outcome
    return replace(
        action_from_data(copy_json(action_to_data(action), "pending")),
        status=action.status,
        answer=None if answer is None else Answer(**copy_json(answer_to_data(answer), "pending")),
        answered_by=action.answered_by,
        answered_at=action.answered_at,
        outcome=None if outcome is None else copy_json(dict(outcome), "pending"),
    )


def next_version(now: float, last: int) -> int:
    """Return the next version: at least the time in ms, because a new row must not reuse versions of a deleted one."""
    return max(int(now * 1000), last + 1)
