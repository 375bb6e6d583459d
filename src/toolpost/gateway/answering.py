"""The right to answer a pending action over HTTP: people have it, credentials of agents do not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.callers import OPERATOR_ID, SESSION_ID
from toolpost.gateway.access import insufficient_scope
from toolpost.gateway.problems import Problem
from toolpost.policy.approvals import answer_refusal, is_same_person

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.contracts.callers import Caller
    from toolpost.contracts.questions import Decision, PendingAction


def viewer_of(caller: Caller, action: PendingAction, decisions: Sequence[str]) -> dict[str, Any]:
    """Return which of the possible decisions a caller may make, and why not the others."""
    may, why_not = list[str](), None
    for decision in decisions:
        rights = cast("Decision", "approve" if decision == "modify" else decision)
        problem = refusal(caller, action, rights)
        why = answer_refusal(action, str(caller.principal), rights) if problem is None else problem.detail
        if not why:
            may.append(decision)
        why_not = why_not or why or None
    return {"may": may, "why_not": why_not}


def refusal(caller: Caller, action: PendingAction, decision: Decision) -> Problem | None:
    """Return the problem of a caller who may not give this answer, or None.

    A console session is a person's, so it may answer the calls of its user, but not one that was made with the token
    that opened it: an agent may have that token. The operator's token is a person's. Denying withdraws the call, unless
    the tool receives the denial.
    """
    if not caller.may_answer(action.tool_name):
        return insufficient_scope("answer")
    if not caller.person:
        detail = "the client of this token is not in server.oidc.person_clients, so it cannot answer pending actions"
        return Problem(403, "not_a_person", detail)
    is_withdrawn = decision == "deny" and not action.question.deliver_denial
    if caller.id == OPERATOR_ID or is_withdrawn:
        return None
    if caller.is_session:
        if action.caller != caller.credential or caller.credential == OPERATOR_ID:
            return None
        detail = (
            "the call was made with the token that opened this session, and an agent may have that token; "
            "another person of the tenant must answer it"
        )
        return Problem(403, "own_call", detail)
    if action.caller.startswith(SESSION_ID) or not is_same_person(caller.principal, action.asked_by):
        return None
    detail = (
        f"the call was made for {action.asked_by}, and a key or token of the same user may be the agent's; "
        "another user of the tenant must answer it, or the same user in the console, or the operator on the machine: "
        "`toolpost pending list`"
    )
    return Problem(403, "own_call", detail)
