"""Policy: which calls are allowed, denied or need an approval, by four templates and rules that override them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any, Literal, NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from toolpost.contracts.calls import PermittedCall, ValidatedCall
from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.questions import CallPreview, Question
from toolpost.contracts.spec import AGENT_TARGET, SideEffects, ToolSpec
from toolpost.policy.approvals import ANYBODY, Approvals
from toolpost.policy.call_hashes import call_hash
from toolpost.schema.json_values import is_object

Action = Literal["allow", "ask", "deny"]
Template = Literal["exploratory", "standard", "regulated", "audit"]
_LEAVES = "it reaches outside this machine"
_UNDECLARED = "its effects are not declared"
_CLAIMED = "only its own source, which is not trusted, says that it is harmless"
_MARKED = "it is marked destructive"
_NO_PREVIEW = CallPreview()


class Rule(Struct, frozen=True, kw_only=True):
    """An action for the tools that match all conditions; an empty condition matches every tool."""

    action: Action
    tools: tuple[str, ...] = ()
    sources: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    side_effects: tuple[SideEffects, ...] = ()
    destructive: bool | None = None
    reason: str = ""
    approvals: Approvals = ANYBODY

    @property
    def text(self) -> str:
        """The rule in one line, such as `ask: tools mail.*, destructive`."""
        conditions = [
            f"{word} {', '.join(values)}"
            for word, values in (
                ("tools", self.tools),
                ("sources", self.sources),
                ("tags", self.tags),
                ("side effects", self.side_effects),
            )
            if values and values != ("*",)
        ]
        if self.destructive is not None:
            conditions.append("destructive" if self.destructive else "not destructive")
        return f"{self.action}: {', '.join(conditions) or 'every tool'}"

    def mismatch(self, spec: ToolSpec) -> str:
        """Return the first condition that a tool does not meet; empty if the rule matches."""
        if self.matches(spec):
            return ""
        destructive = spec.safety.destructive is not False
        conditions = {
            f"the name matches none of: {', '.join(self.tools)}": self.tools
            and not any(fnmatchcase(spec.name, pattern) for pattern in self.tools),
            f"the source is not {' or '.join(self.sources)}": self.sources and spec.source not in self.sources,
            f"no tag of: {', '.join(self.tags)}": self.tags and not set(self.tags) & set(spec.tags),
            f"the side effects are {spec.side_effects!r}": self.side_effects
            and spec.side_effects not in self.side_effects,
            f"the tool is {'' if destructive else 'not '}destructive": True,
        }
        return next(text for text, fails in conditions.items() if fails)

    def matches(self, spec: ToolSpec) -> bool:
        """Return whether a tool meets every condition of the rule."""
        return (
            (not self.tools or any(fnmatchcase(spec.name, pattern) for pattern in self.tools))
            and (not self.sources or spec.source in self.sources)
            and (not self.tags or bool(set(self.tags) & set(spec.tags)))
            and (not self.side_effects or spec.side_effects in self.side_effects)
            and (self.destructive is None or (spec.safety.destructive is not False) is self.destructive)
        )


def _why_destructive(spec: ToolSpec) -> str:
    if spec.safety.destructive is None:
        if _is_claimed(spec):
            return f"{_LEAVES}, and {_CLAIMED}" if spec.safety.network else _CLAIMED
        return f"{_LEAVES}, and it is not declared harmless" if spec.safety.network else _UNDECLARED
    return _MARKED if spec.safety.destructive else ""


def _is_claimed(spec: ToolSpec) -> bool:
    """Return whether MCP annotations say that a tool is harmless; they apply only if the source is trusted."""
    annotations = spec.extra.get("annotations")
    return is_object(annotations) and (
        annotations.get("readOnlyHint") is True or annotations.get("destructiveHint") is False
    )


def _stays_inside(spec: ToolSpec) -> bool:
    """Return whether a tool acts inside an agent; an approval could not run it without that agent."""
    return spec.target is not None and spec.target.kind == AGENT_TARGET


_approval_reasons: dict[Template, Callable[[ToolSpec], str]] = {
    "exploratory": lambda _spec: "",
    "standard": _why_destructive,
    "regulated": lambda spec: _why_destructive(spec) or (_LEAVES if spec.leaves_machine else ""),
    "audit": lambda spec: _why_destructive(spec) or ("" if _stays_inside(spec) else "every call is reviewed"),
}


class Verdict:
    """The policy's decision about one tool, computed once for all its calls; `question` replaces the default one.

    `policy` describes the rule that decides, or the template.
    """

    __slots__ = ("action", "approvals", "policy", "question", "reason", "spec")

    def __init__(
        self,
        action: Action,
        reason: str,
        spec: ToolSpec,
        approvals: Approvals = ANYBODY,
        *,
        policy: Mapping[str, Any] | None = None,
    ) -> None:
        self.action: Action = action
        self.reason = reason
        self.spec = spec
        self.approvals = approvals
        self.policy = policy
        self.question: Question | None = None

    @property
    def rule(self) -> int:
        """The number of the rule that decides, from 1; 0 for the template."""
        return 0 if self.policy is None else int(self.policy["index"])

    def with_question(self, question: Question) -> Verdict:
        """Return a verdict that requires an answer to this question before every call; a denial stays a denial."""
        if self.action == "deny":
            return self
        asking = Verdict("ask", self.reason, self.spec, self.approvals, policy=self.policy)
        asking.question = question
        return asking

    def review(self, call: ValidatedCall, preview: CallPreview | None = None) -> PermittedCall | Question:
        """Permit a call, return a question, or raise ToolPermissionError; an approval is valid for its preview."""
        if self.action == "allow":
            return PermittedCall(call, None)
        if self.action == "deny":
            raise ToolPermissionError(f"{self.spec.name!r}: {self.reason}", tool_name=self.spec.name)
        if self.question is not None:
            return self.question
        answer = call.request.answers.get("approval")
        if answer is not None and answer.decision == "approve" and answer.value == call_hash(self.spec, call.arguments):
            if preview is None or answer.state == (preview.state or None):
                return PermittedCall(call, call.request.pending_id)
            return self._question(preview, "What it would change has changed since it was approved. ")
        return self._question(preview)

    def ask(self, preview: CallPreview | None = None) -> Question:
        """Return the question that a call without an answer pauses with."""
        return self.question or self._question(preview)

    def _question(self, preview: CallPreview | None, before: str = "") -> Question:
        shown = preview or _NO_PREVIEW
        why = shown.reason if shown.reason and self.reason == _MARKED else self.reason
        return Question(
            kind="approval",
            prompt=f"{before}Allow {self.spec.name}? Approval is required: {why}.",
            payload=shown.to_payload(),
            state=shown.state or None,
            rule=None if self.policy is None else {**self.policy, "reason": why},
        )


class Policy:
    """Rules and a template: the first rule that matches decides, else the template.

    A ToolRouter takes a policy; `Settings(policy=...)` takes the name of a template, or rules as mappings. `approvals`
    define who may answer if a rule does not.
    """

    def __init__(
        self, template: Template = "standard", rules: Sequence[Rule] = (), *, approvals: Approvals = ANYBODY
    ) -> None:
        self.template = template
        self.rules = tuple(rules)
        self.approvals = approvals
        self.blocks_changes = template in ("regulated", "audit")  # of definitions that no lock file pins
        self._approval_reason = _approval_reasons[template]
        self._described = [
            {"index": index, "of": len(rules), "action": rule.action, "text": rule.text}
            for index, rule in enumerate(rules, 1)
        ]

    def verdict(self, spec: ToolSpec, *, destructive: bool | None = None) -> Verdict:
        """Return the verdict for a tool, or for its calls that are `destructive` or not."""
        reviewed = _reviewed(spec, destructive)
        for index, rule in enumerate(self.rules):
            if rule.matches(reviewed):
                approvals = rule.approvals.over(self.approvals)
                reason = rule.reason or f"a policy rule says {rule.action}"
                described = self._described[index]
                return Verdict(rule.action, reason, spec, approvals, policy=described)
        why = self._approval_reason(reviewed)
        template = {"index": 0, "of": len(self.rules), "action": "ask", "text": self.template}
        return Verdict("ask" if why else "allow", why, spec, self.approvals, policy=template)

    def trace(self, spec: ToolSpec, *, destructive: bool | None = None) -> list[TraceStep]:
        """Return why each rule decides about a tool or not, and at the end the same of the template."""
        reviewed = _reviewed(spec, destructive)
        steps, decided = list[TraceStep](), False
        for rule in self.rules:
            why = "" if decided else rule.mismatch(reviewed)
            steps.append(TraceStep(rule, "not_reached" if decided else "no_match" if why else "decides", why))
            decided = decided or not why
        why = self._approval_reason(reviewed) or "no approval is required"
        steps.append(TraceStep(None, "not_reached", "") if decided else TraceStep(None, "decides", why))
        return steps


class TraceStep(NamedTuple):
    """A rule in the trace of a verdict, or None for the template: whether it decides, and why or why not."""

    rule: Rule | None
    outcome: Literal["decides", "no_match", "not_reached"]
    why: str


def _reviewed(spec: ToolSpec, destructive: bool | None) -> ToolSpec:  # noqa: FBT001 - a tri-state value, not a switch
    return spec if destructive is None else replace(spec, safety=spec.safety._replace(destructive=destructive))
