"""Operations on the policy: show its rules, and explain the verdict about a call without making it."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

from starlette.responses import Response

from toolpost.configuration.document import item_lines
from toolpost.contracts.errors import ToolSchemaError
from toolpost.contracts.principal import Principal
from toolpost.gateway.problems import Problem
from toolpost.gateway.rest.operations import JsonResponse, Operations, RestRequest
from toolpost.gateway.rest.schema_builders import ref
from toolpost.gateway.rest.tool_documents import verdict_document
from toolpost.runtime.pending_card import preview_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.policy.approvals import Approvals
    from toolpost.policy.rules import Rule

OPERATIONS = Operations("policy")
_TEXT = {"type": "string", "minLength": 1, "maxLength": 400}
_QUESTION = {
    "type": "object",
    "properties": {
        "tool": _TEXT,
        "arguments": {"type": "object", "description": "Without them, the verdict is that about all calls of the tool"},
        "user": {**_TEXT, "description": "`tenant:user`; by default the caller"},
    },
    "required": ["tool"],
    "additionalProperties": False,
}


@OPERATIONS.declare("GET", "/policy", scope=("answer", "admin"), answers={200: ref("Policy")})
async def show_policy(request: RestRequest) -> Response:
    """Show the template, the rules in their order, and how many tools each decides about."""
    box, policy = request.box, request.box.router.policy
    decided = Counter(request.service.tools.verdict(entry).rule for entry in request.tools.entries())
    rules = await _rules(request)
    return JsonResponse(
        {
            "template": {"name": policy.template, "tools": decided[0]},
            "approvals": _approvals(policy.approvals),
            "rules": [{**rule, "tools": decided[rule["index"]]} for rule in rules],
            "file": None if box.config_path is None else box.config_path.name,
        }
    )


@OPERATIONS.declare("POST", "/policy/explain", takes=_QUESTION, answers={200: ref("Explanation")}, problems=(404, 409))
async def explain_policy(request: RestRequest) -> Response:
    """Explain what the policy decides about a call, without effects."""
    box, body = request.box, request.body
    entry = request.tools.find(body["tool"])
    principal = _principal_of(request)
    try:
        explained = await box.router.explainer.explain(entry.spec.name, body.get("arguments"), principal=principal)
    except ToolSchemaError as error:
        raise Problem(409, error.error_code, error.message) from None
    policy, rules = box.router.policy, await _rules(request)
    verdict, question = explained.verdict, explained.question
    steps = policy.trace(entry.spec, destructive=explained.destructive)
    return JsonResponse(
        {
            **verdict_document(verdict),
            "tool": entry.spec.name,
            "user": str(principal),
            "rule": rules[verdict.rule - 1] if verdict.rule else None,
            "trace": [
                {
                    "rule": 0 if step.rule is None else index,
                    "text": step.rule.text if step.rule is not None else f"template {policy.template}",
                    "outcome": step.outcome,
                    "why": step.why,
                }
                for index, step in enumerate(steps, 1)
                if step.outcome == "decides" or request.only_user is None  # an agent sees its own rule only
            ],
            "issues": list(explained.issues),
            "preview": None if question is None else preview_of(question, question.payload),
            "arguments": None if question is None else dict(question.arguments),
            "target": None if question is None else dict(question.target),
            "held": request.service.tools.document(entry)["held"],
        }
    )


def _principal_of(request: RestRequest) -> Principal:
    user = request.body.get("user")
    if user is None:
        return request.caller.principal
    try:
        principal = Principal.parse(user if ":" in user else f"{request.tenant}:{user}")
    except ValueError as error:
        raise Problem(422, "invalid_body", f"the body is invalid: $.user: {error}") from None
    if principal == request.caller.principal:
        return principal
    if request.only_user is not None or principal.tenant != request.tenant:
        detail = "the verdict for another user is for callers of the same tenant with the scope 'answer' or 'admin'"
        raise Problem(403, "other_user", detail)
    return principal


async def _rules(request: RestRequest) -> list[dict[str, Any]]:
    """Return the rules as JSON data, with their places in the configuration file, if they come from it."""
    rules = request.box.router.policy.rules
    return [_rule(rules, index, *place) for index, place in enumerate(await rule_places(request))]


async def rule_places(request: RestRequest) -> list[tuple[str | None, int | None]]:
    """Return the file and line of each rule; None for rules that are not in the file, and for agents."""
    policy, path, lines = request.box.router.policy, request.box.config_path, list[int]()
    if path is not None and policy.rules and request.only_user is None:
        lines = await asyncio.to_thread(item_lines, path, "policy")
    if path is None or len(lines) != len(policy.rules):
        return [(None, None)] * len(policy.rules)
    return [(path.name, line) for line in lines]


def _rule(rules: Sequence[Rule], index: int, file: str | None, line: int | None) -> dict[str, Any]:
    rule = rules[index]
    conditions = {
        "tools": list(rule.tools),
        "sources": list(rule.sources),
        "tags": list(rule.tags),
        "side_effects": list(rule.side_effects),
        "destructive": rule.destructive,
    }
    return {
        "index": index + 1,
        "of": len(rules),
        "action": rule.action,
        "text": rule.text,
        "reason": rule.reason,
        "conditions": conditions,
        "approvals": _approvals(rule.approvals),
        "file": file,
        "line": line,
    }


def _approvals(approvals: Approvals) -> dict[str, Any]:
    return {
        "answerers": None if approvals.answerers is None else list(approvals.answerers),
        "four_eyes": approvals.four_eyes,
        "person": approvals.person,
    }
