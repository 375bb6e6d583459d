"""Approval cards: a pending action as JSON data that any front end can draw, the same for every surface."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.contracts.questions import DECISIONS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.questions import PendingAction, Question
    from toolpost.policy.redaction import Redactor

_REASON: dict[str, Any] = {"type": "string", "description": "Why not; the caller is told"}
_RESULT: dict[str, Any] = {"description": "What the call returned, as far as it is known"}
_DIFF = ("--- ", "diff ")
# Kinds of targets whose one line shows what the call sends or runs.
_TARGET_PREVIEWS = {"http": "http_request", "webhook": "http_request", "command": "command"}


def approval_card(action: PendingAction, registry: ToolRegistry, redactor: Redactor) -> dict[str, Any]:
    """Return the card of a pending action, with its secrets masked.

    `answers` lists the possible decisions while it is open, each with the schema of what comes with it.
    """
    name, question = action.tool_name, action.question
    entry = registry.find(name) if registry.has(name) else None
    marks = None if entry is None else entry.secret_paths
    redact = redactor.plain if marks is None else redactor.for_tool(arguments=marks[0], results=marks[1])
    open_text = redact(
        {
            "prompt": question.prompt,
            "payload": dict(question.payload),
            "arguments": dict(action.arguments),
            "outcome": action.outcome,
        }
    )
    return {
        "id": action.id,
        "status": action.status,
        "kind": question.kind,
        "reason": question.reason,
        "tool_name": name,
        **open_text,
        "target": dict(question.target),
        "preview": _preview(question, open_text["payload"]),
        "answers": _answers(question, None if entry is None else entry.spec.input_schema)
        if action.status == "open"
        else [],
        "answerers": None if action.answerers is None else list(action.answerers),
        "four_eyes": question.four_eyes,
        "call_id": action.call_id,
        "run_id": action.run_id,
        "asked_by": str(action.asked_by),
        "created_at": action.created_at,
        "expires_at": action.expires_at,
        "answered_by": action.answered_by,
        "answered_at": action.answered_at,
    }


def _preview(question: Question, payload: Mapping[str, Any]) -> dict[str, str] | None:
    """Return what the call would do: a diff or a text of the tool's own, else the request or command of its target."""
    text = payload.get("preview")
    if isinstance(text, str) and text:
        return {"kind": "diff" if text.startswith(_DIFF) else "text", "text": text}
    kind = _TARGET_PREVIEWS.get(question.target.get("kind", ""))
    return None if kind is None else {"kind": kind, "text": question.target.get("summary", "")}


def _answers(question: Question, input_schema: Mapping[str, Any] | None) -> list[dict[str, Any]]:
    """Return the decisions that a question takes; changing the arguments is a decision of its own, `modify`."""
    allowed = DECISIONS[question.kind]
    found: list[dict[str, Any]] = []
    if "approve" in allowed:
        found.append(_decision("approve"))
        if input_schema is not None:
            found.append(_decision("modify", arguments=input_schema, required=("arguments",)))
    if "answer" in allowed and question.kind != "consent":  # whoever signs in answers a consent
        found.append(_decision("answer", value=question.answer_schema or {}, required=("value",)))
    if "happened" in allowed:
        found += [_decision("happened", value=_RESULT), _decision("not_happened"), _decision("rerun")]
    if "deny" in allowed:
        found.append(_decision("deny", reason=_REASON))
    return found


def _decision(name: str, *, required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"const": name}, **properties},
        "required": ["decision", *required],
    }
    return {"decision": name, "schema": schema}
