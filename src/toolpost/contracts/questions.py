"""Pauses as data: questions, answers and pending actions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias, final

from msgspec import Struct, field

from toolpost.contracts.principal import Principal, login_name
from toolpost.contracts.records import represent

QuestionKind = Literal["approval", "call", "consent", "input", "restart", "unknown"]
Decision = Literal["approve", "deny", "answer", "happened", "not_happened", "rerun"]
PendingStatus = Literal["open", "claimed", "answered", "denied", "expired", "cancelled"]
OnPending: TypeAlias = "Callable[[PendingAction], Awaitable[None] | None]"

DECISIONS: Mapping[QuestionKind, frozenset[Decision]] = {
    "approval": frozenset({"approve", "deny"}),
    "call": frozenset(),  # the runtime answers it when the nested call has ended
    "consent": frozenset({"answer", "deny"}),
    "input": frozenset({"answer", "deny"}),
    "restart": frozenset({"answer", "deny"}),  # the next process answers it automatically
    "unknown": frozenset({"happened", "not_happened", "rerun"}),
}

NEXT_STEPS: Mapping[QuestionKind, str] = {
    "approval": "`toolpost pending approve {id}{options}` runs it, `toolpost pending deny {id}{options}` does not.",
    "consent": "`toolpost accounts connect {service}{options}` signs you in; the call then resumes automatically.",
    "input": "`toolpost pending answer {id} VALUE{options}` resumes the call with your answer.",
    "restart": "It resumes automatically when `toolpost up` runs again.",
    "unknown": "`toolpost pending answer {id} --decision happened{options}` (or not_happened, or rerun) settles it.",
}
"""The commands that answer a question of each kind."""
_WILDCARDS = frozenset("*?[")
DEFINITION_CHANGED = "definition_changed"
"""The reason of an approval that asks the operator to accept the changed definition of a tool."""
_OPERATOR_STEP = (
    "The operator accepts the definition with `toolpost lock approve {tool}`; the call then continues automatically. "
    "`toolpost pending deny {{id}}{{options}}` withdraws the call."
)


class CallPreview(NamedTuple):
    """Preview of one call, computed by the tool before the call has any effect.

    `destructive` overrides the declaration of the tool, unless it is None, and `reason` completes the sentence
    "Approval is required: ...". `text`, for example a diff, is shown to the approver. `state` is a fingerprint of
    everything the preview depends on. An approval is valid only while the fingerprint is unchanged; the tool reads it
    as `ctx.preview.state`. `data` describes the changes for programs, such as the `path`, `old_size` and `new_size`
    of a diff, or a `kind` `table` with `columns`, `rows` and their `total`.
    """

    destructive: bool | None = None
    reason: str = ""
    text: str = ""
    state: str = ""
    data: Mapping[str, Any] | None = None

    def to_payload(self) -> dict[str, Any]:
        """Return the parts that a question shows."""
        return {
            **({"preview": self.text} if self.text else {}),
            **({} if self.data is None else {"preview_data": dict(self.data)}),
        }


@final
class Question(Struct, frozen=True, kw_only=True):
    """A decision that only a person can make; for the kind `call`, the end of a nested call that waits.

    `key` identifies the question within its call: when the call runs again, its answer is found by this key. A value
    must match `answer_schema` if there is one. `state` is returned with the answer; it is encrypted and never shown.
    With `deliver_denial`, a denial is an answer for the tool, not the end of the call. `arguments` (with secrets masked
    and long values cut) and `target` (`kind` and one line of `summary`) describe the call; the runtime adds them when
    the call pauses. A `preview` in the payload shows the changes. `answerers` (None: anyone of the tenant) and
    `four_eyes` (not the requester) restrict who may answer. `requests` are the requests of an MCP server to its client,
    by key and unchanged: an interactive MCP client that made the call may answer them itself. With `person` it may not.
    `rule` describes the rule of the policy that requires the approval. `passed_on` lists to whom people passed it on.
    """

    kind: QuestionKind
    prompt: str
    reason: str = "approval_required"
    payload: Mapping[str, Any] = field(default_factory=dict[str, Any])  # it may contain a sign-in URL
    key: str = "approval"
    expires_in_s: float | None = None
    answer_schema: Mapping[str, Any] | None = None
    state: Any = None
    deliver_denial: bool = False
    arguments: Mapping[str, Any] = field(default_factory=dict[str, Any])
    target: Mapping[str, str] = field(default_factory=dict[str, str])
    answerers: tuple[str, ...] | None = None
    four_eyes: bool = False
    requests: Mapping[str, Any] = field(default_factory=dict[str, Any])
    person: bool = False
    rule: Mapping[str, Any] | None = None
    passed_on: Sequence[Mapping[str, Any]] = ()

    def __repr__(self) -> str:
        return represent(self, without=("payload", "state", "requests"))

    @property
    def needs_operator(self) -> bool:
        """Whether only the operator can approve, because all tenants share a definition."""
        return self.kind == "approval" and self.reason == DEFINITION_CHANGED

    @property
    def next_step(self) -> str:
        """The commands that answer the question, with the placeholders `{id}`, `{service}` and `{options}`."""
        if self.needs_operator:
            return _OPERATOR_STEP.format(tool=self.payload.get("tool", "TOOL"))
        return NEXT_STEPS[self.kind]

    def to_dict(self) -> dict[str, Any]:
        """Return the question as JSON data for all surfaces."""
        return {
            "kind": self.kind,
            "prompt": self.prompt,
            "reason": self.reason,
            "arguments": dict(self.arguments),
            "target": dict(self.target),
            "preview": self.payload.get("preview"),
            "answerers": None if self.answerers is None else list(self.answerers),
            "four_eyes": self.four_eyes,
            "person": self.person,
        }

    @classmethod
    def shown(cls, data: Mapping[str, Any]) -> Question:
        """Restore a question from the result of `to_dict`, without the data that is not shown."""
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
            person=data.get("person", False),
        )


class Answer(Struct, frozen=True, kw_only=True):
    """An answer: the decision, a value for the tool, or changes of the arguments; `state` is that of the question.

    `changes` are operations of JSON Patch (add, replace, remove) on the exact arguments of the call. `responses` are
    those of an MCP client to the question's `requests`, by key.
    """

    decision: Decision
    value: Any = None
    reason: str = ""
    changes: Sequence[Mapping[str, Any]] | None = None
    state: Any = None
    responses: Mapping[str, Any] | None = None

    def __repr__(self) -> str:
        return represent(self, without=("value", "changes", "state", "responses"))


class PendingAction(Struct, frozen=True, kw_only=True):
    """A call that waits for a person, stored until it is answered, expires or is cancelled.

    It contains the exact call, and an answer runs only that call. `answers` are the earlier answers of the same
    call; `answerers` are patterns of `tenant:user` that may answer (None: anyone in the tenant). `outcome` is the
    outcome of the call after the answer. `same_call` is the hash of requester, call and session: a repeated call with
    the same hash waits for this action. It is empty if no other call is the same. With `unattended`, no person uses the
    MCP client that made the call. `owner` is the owner ID of the process that asks, or has claimed the action.
    """

    id: str
    question: Question
    call_id: str
    run_id: str
    tool_name: str
    arguments: Mapping[str, Any]
    arguments_hash: str
    asked_by: Principal
    created_at: float
    expires_at: float
    status: PendingStatus = "open"
    answerers: tuple[str, ...] | None = None
    answers: Mapping[str, Answer] = field(default_factory=dict[str, Answer])
    started: bool = False
    idempotency_key: str | None = None
    correlation_id: str = ""
    task_id: str = ""
    timeout_s: float | None = None
    context: Mapping[str, Any] | None = None
    answer: Answer | None = None
    answered_by: str | None = None
    answered_at: float | None = None
    outcome: Mapping[str, Any] | None = None
    same_call: str = ""
    unattended: bool = False
    owner: str = ""

    def __repr__(self) -> str:
        return represent(self, without=("arguments", "answers", "idempotency_key", "context", "outcome", "same_call"))

    @property
    def caller(self) -> str:
        """The id of the gateway's caller that made the call, such as `key:ID`; empty for a call from code."""
        return "" if self.context is None else str(self.context.get("caller", ""))


def answering_user(question: Question, asked_by: Principal) -> str:
    """Return the user for `--user` with which the operator of this machine can answer a question, or a pattern.

    Only the requester can connect an account.
    """
    if question.kind == "consent":
        return str(asked_by)
    if question.answerers:
        named = [one for one in question.answerers if _WILDCARDS.isdisjoint(one)]
        return (named or question.answerers)[0]
    login = login_name()
    return f"{asked_by.tenant}:{'NAME' if question.four_eyes and login == asked_by.user else login}"
