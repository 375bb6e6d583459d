"""Pending actions as the surfaces show them, with secrets masked and the possible answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from toolpost.auth.credentials import credential_headers
from toolpost.contracts.callers import KEY_ID, OPERATOR_ID, SESSION_ID
from toolpost.contracts.errors import ToolError
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import DECISIONS, Answer, PendingAction, Question
from toolpost.contracts.spec import DescribingTool
from toolpost.policy.call_summary import masked_paths
from toolpost.policy.secret_shapes import MASK
from toolpost.runtime.answer_checks import check_changes, is_operator, patched_arguments
from toolpost.schema.json_patch import PATCH_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.catalog.entry import Entry
    from toolpost.catalog.registry import ToolRegistry
    from toolpost.contracts.outcomes import Paused
    from toolpost.contracts.spec import ToolSpec
    from toolpost.policy.redaction import Redactor
    from toolpost.schema.json_patch import JsonChange

_PRIVATE = frozenset({"auth_url", "state"})  # of a consent's payload
_REASON: dict[str, Any] = {"type": "string", "description": "The reason, which is shown to the caller"}
_RESULT: dict[str, Any] = {"description": "The result of the call, if known"}
_DIFF = ("--- ", "diff ")
# Kinds of targets with a summary that shows the request or the command of a call.
_TARGET_PREVIEWS = {"http": "http_request", "webhook": "http_request", "command": "command"}
_OWN_PREVIEW = ("preview", "preview_data", "truncated")


def approval_card(
    action: PendingAction, registry: ToolRegistry, redactor: Redactor, *, operator: bool | None = None
) -> dict[str, Any]:
    """Return a pending action as JSON data, with its secrets masked.

    `answers` lists the possible decisions while it is open, each with the schema of its data; an approval that requires
    the operator is not offered to other callers.
    """
    name, question = action.tool_name, action.question
    entry = registry.find(name) if registry.has(name) else None
    marks = None if entry is None else entry.secret_paths
    arguments, answer = dict(action.arguments), action.answer
    redact = redactor.plain if marks is None else redactor.for_tool(arguments=marks[0], results=marks[1])
    open_text = redact(
        {
            "prompt": question.prompt,
            "payload": dict(_without_sign_in(question).payload),  # a masked URL would be useless
            "arguments": arguments,
            "outcome": action.outcome,
        }
    )
    masked = masked_paths(arguments, open_text["arguments"])
    return {
        "id": action.id,
        "status": action.status,
        "kind": question.kind,
        "reason": question.reason,
        "tool_name": name,
        **open_text,
        "masked": masked,
        "target": dict(question.target),
        "preview": preview_of(
            question, open_text["payload"], _described(entry, question, open_text["arguments"], redact)
        ),
        "truncated": bool(question.payload.get("truncated")),
        "rule": None if question.rule is None else {**question.rule, "file": None, "line": None},
        "tool": None if entry is None else _tool_facts(entry.spec),
        "caller": _caller(action),
        "passed_on": [dict(one) for one in question.passed_on],
        "waits_for": "operator" if question.needs_operator else "person",
        "answers": _answers(
            question,
            None if entry is None else entry.spec.input_schema,
            operator=is_operator(str(action.asked_by), operator=operator),
        )
        if action.status == "open"
        else [],
        "answerers": None if action.answerers is None else list(action.answerers),
        "four_eyes": question.four_eyes,
        "call_id": action.call_id,
        "run_id": action.run_id,
        "asked_by": str(action.asked_by),
        "created_at": action.created_at,
        "expires_at": action.expires_at,
        "answer": None if answer is None else _given(action, answer, redact),
        "answered_by": action.answered_by,
        "answered_at": action.answered_at,
    }


def _tool_facts(spec: ToolSpec) -> dict[str, Any]:
    """Return what an approver needs to know of a tool."""
    return {
        "description": spec.description,
        "origin": spec.origin or None,
        "source": spec.source or None,
        "side_effects": spec.side_effects,
        "destructive": spec.safety.destructive,
        "replay": spec.replay,
    }


def _caller(action: PendingAction) -> dict[str, str] | None:
    """Return the caller that made the call, or None for a call from code; a console session is named by its user."""
    caller_id = action.caller
    if not caller_id:
        return None
    kind = "operator" if caller_id == OPERATOR_ID else "token"
    for prefix, name in ((KEY_ID, "key"), (SESSION_ID, "session")):
        if caller_id.startswith(prefix):
            kind, caller_id = name, caller_id.removeprefix(prefix)
    return {"kind": kind, "id": caller_id, "name": str(action.asked_by) if kind == "session" else caller_id}


def _given(action: PendingAction, answer: Answer, redact: Callable[[Mapping[str, Any]], Any]) -> Any:
    """Return the decision, without the value for the tool, which may be a password."""
    if answer.changes is None:
        return redact({"decision": answer.decision, **({"reason": answer.reason} if answer.reason else {})})
    paths = [{"op": change["op"], "path": change["path"]} for change in answer.changes]
    return redact({"decision": "modify", "changes": paths, "arguments": patched_arguments(action, answer.changes)})


def has_own_preview(action: PendingAction) -> bool:
    """Return whether the tool itself computed the preview of an action."""
    return not action.question.payload.keys().isdisjoint(_OWN_PREVIEW)


def changed_action(action: PendingAction, registry: ToolRegistry, changes: Sequence[JsonChange]) -> PendingAction:
    """Return an action as it would be with changes, without a preview that the tool computed for other arguments.

    ToolValidationError for changes that cannot be applied, or arguments that the tool does not accept.
    """
    check_changes(action, changes)
    arguments = patched_arguments(action, changes)
    registry.find(action.tool_name).fit(dict(arguments))
    return with_preview(replace(action, arguments=arguments), {})


def with_preview(action: PendingAction, payload: Mapping[str, Any]) -> PendingAction:
    """Return an action with the preview of this payload instead of its own."""
    others = {name: value for name, value in action.question.payload.items() if name not in _OWN_PREVIEW}
    own = {name: value for name, value in payload.items() if name in _OWN_PREVIEW}
    return replace(action, question=replace(action.question, payload={**others, **own}))


def _described(
    entry: Entry | None, question: Question, arguments: Mapping[str, Any], redact: Callable[[Mapping[str, Any]], Any]
) -> dict[str, Any] | None:
    """Return the request or command of a call as the tool describes it, with masked arguments; None if it cannot."""
    if entry is None or question.kind != "approval" or not isinstance(entry.tool, DescribingTool):
        return None
    try:
        described = redact(entry.tool.describe_call(arguments))
    except (ToolError, ValueError, TypeError):  # a mask is not always a valid value
        return None
    for header in described.get("headers", ()):
        is_masked = MASK in header["value"]
        header |= {"value": None if is_masked else header["value"], "masked_by": "argument" if is_masked else None}
    if "headers" in described and entry.config is not None:
        names = {header["name"].lower() for header in described["headers"]}
        secrets = [name for name in credential_headers(entry.config) if name.lower() not in names]
        of_source = [{"name": name, "value": None, "masked_by": entry.config.name} for name in secrets]
        return {**described, "headers": [*of_source, *described["headers"]]}
    return dict(described)


def preview_of(
    question: Question, payload: Mapping[str, Any], described: Mapping[str, Any] | None = None
) -> dict[str, Any] | None:
    """Return the preview of the call: a diff, text or table of the tool, else its request or command."""
    text = payload.get("preview")
    data: Mapping[str, Any] = payload.get("preview_data") or {}
    if (isinstance(text, str) and text) or data.get("kind") == "table":
        text = text or ""
        is_diff = text.startswith(_DIFF)
        return {"kind": "diff" if is_diff else "text", "text": text, **(_counts(text) if is_diff else {}), **data}
    summary = question.target.get("summary", "")
    if described is not None:
        return {"text": summary, **described}
    kind = _TARGET_PREVIEWS.get(question.target.get("kind", ""))
    return None if kind is None else {"kind": kind, "text": summary}


def _counts(diff: str) -> dict[str, int]:
    """Return the numbers of added and removed lines of a unified diff."""
    lines = diff.splitlines()[2:]
    return {
        "added": sum(line.startswith("+") for line in lines),
        "removed": sum(line.startswith("-") for line in lines),
    }


def _answers(question: Question, input_schema: Mapping[str, Any] | None, *, operator: bool) -> list[dict[str, Any]]:
    """Return the decisions for a question; changing the arguments is a separate decision, `modify`."""
    allowed = DECISIONS[question.kind]
    answers: list[dict[str, Any]] = []
    if "approve" in allowed and (operator or not question.needs_operator):
        answers.append(_decision("approve"))
        if input_schema is not None and not question.needs_operator:
            modify = _decision("modify", changes=PATCH_SCHEMA, required=("changes",))
            answers.append({**modify, "input_schema": input_schema})
    if "answer" in allowed and question.kind != "consent":  # the sign-in answers a consent
        answers.append(_decision("answer", value=question.answer_schema or {}, required=("value",)))
    if "happened" in allowed:
        answers += [_decision("happened", value=_RESULT), _decision("not_happened"), _decision("rerun")]
    if "deny" in allowed:
        answers.append(_decision("deny", reason=_REASON))
    return answers


def _decision(name: str, *, required: tuple[str, ...] = (), **properties: Mapping[str, Any]) -> dict[str, Any]:
    schema: dict[str, Any] = {
        "type": "object",
        "properties": {"decision": {"const": name}, **properties},
        "required": ["decision", *required],
    }
    return {"decision": name, "schema": schema}


def visible_action(by: str, action: PendingAction) -> PendingAction:
    """Return an action as a person may see it: only the requester sees the sign-in URL and state of a consent."""
    if Principal.parse(by) == action.asked_by:
        return action
    return replace(action, question=_without_sign_in(action.question))


def visible_pause(by: str, paused: Paused, *, asked_by: Principal) -> Paused:
    """Return a pause as a person may see it, like `visible_action`."""
    if Principal.parse(by) == asked_by:
        return paused
    inside = tuple(replace(one, question=_without_sign_in(one.question)) for one in paused.inside)
    return replace(paused, question=_without_sign_in(paused.question), inside=inside)


def _without_sign_in(question: Question) -> Question:
    """Return a question without the URL and state of its sign-in, if it is a consent."""
    if question.kind != "consent":
        return question
    payload = {name: value for name, value in question.payload.items() if name not in _PRIVATE}
    return replace(question, payload=payload)
