"""Which calls need a person: the templates, the rules over them, and what a grant is bound to."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.contracts.calls import PermittedCall, RequestedCall, ValidatedCall
from toolpost.contracts.context import ToolContext
from toolpost.contracts.errors import ToolPermissionError
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.principal import Principal
from toolpost.contracts.questions import Answer, Question
from toolpost.contracts.spec import SafetyProfile, ToolSpec
from toolpost.policy.call_hashes import call_hash
from toolpost.policy.rules import Policy, Rule, Template

READS = ToolSpec(name="file.read", side_effects="read", tags=("files",), source="file")
WRITES = ToolSpec(name="note.add", side_effects="write")
DELETES = ToolSpec(name="repo.delete", safety=SafetyProfile(destructive=True), source="repo", tags=("danger",))
FETCHES = ToolSpec(name="web.get", side_effects="read", safety=SafetyProfile(network=True))
POSTS = ToolSpec(name="chat.post", side_effects="external", safety=SafetyProfile(network=True, destructive=False))
UNKNOWN = ToolSpec(name="odd.do", side_effects="external", safety=SafetyProfile(network=True, destructive=None))

UNSAID = ToolSpec(name="odd.run", side_effects="external", safety=SafetyProfile(destructive=None))


class Described:
    """A tool of which only the record matters here."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        raise NotImplementedError


def call(spec: ToolSpec, *, answer: Answer | None = None, **arguments: Any) -> ValidatedCall:
    answers = {} if answer is None else {"approval": answer}
    request = RequestedCall(
        "call_1", "run_1", spec.name, arguments, Principal("acme", "ann"), answers=answers, pending_id="ask_1"
    )
    return ValidatedCall(request, Described(spec), arguments)


def asks(policy: Policy, spec: ToolSpec) -> bool:
    return isinstance(policy.verdict(spec).review(call(spec)), Question)


@pytest.mark.req("NAPP-01")
@pytest.mark.parametrize(
    ("template", "asked"),
    [
        ("exploratory", set[str]()),
        ("standard", {"repo.delete", "odd.do"}),
        ("regulated", {"repo.delete", "odd.do", "web.get", "chat.post"}),
        ("audit", {"repo.delete", "odd.do", "web.get", "chat.post", "file.read", "note.add"}),
    ],
)
def test_each_template_asks_before_the_calls_it_names(template: Template, asked: set[str]) -> None:
    policy = Policy(template)
    kinds = [READS, WRITES, DELETES, FETCHES, POSTS, UNKNOWN]

    assert {spec.name for spec in kinds if asks(policy, spec)} == asked


@pytest.mark.req("NAPP-01")
def test_a_destructive_call_is_asked_about_by_default() -> None:
    question = Policy().verdict(DELETES).review(call(DELETES))

    assert isinstance(question, Question)
    assert (question.kind, question.reason, question.key) == ("approval", "approval_required", "approval")
    assert question.prompt == "Allow repo.delete? Approval is required: it is marked destructive."


@pytest.mark.parametrize(
    ("template", "spec", "why"),
    [
        ("standard", UNKNOWN, "it reaches outside this machine, and it is not declared harmless"),
        ("standard", UNSAID, "its effects are not declared"),
        ("regulated", FETCHES, "it reaches outside this machine"),
        ("regulated", DELETES, "it is marked destructive"),
        ("audit", READS, "every call is reviewed"),
    ],
)
def test_a_question_says_why_it_is_asked(template: Template, spec: ToolSpec, why: str) -> None:
    question = Policy(template).verdict(spec).review(call(spec))

    assert isinstance(question, Question)
    assert question.prompt.endswith(f"{why}.")


def test_a_call_that_needs_no_one_goes_through_without_a_grant() -> None:
    validated = call(READS, path="a.txt")

    assert Policy().verdict(READS).review(validated) == PermittedCall(validated, None)


def test_the_first_rule_that_matches_decides() -> None:
    rules = [Rule(action="allow", tools=("repo.*",)), Rule(action="deny", tools=("repo.delete",))]

    assert not asks(Policy("standard", rules), DELETES)
    with pytest.raises(ToolPermissionError):
        asks(Policy("standard", rules[::-1]), DELETES)


def test_where_no_rule_matches_the_template_decides() -> None:
    policy = Policy("standard", [Rule(action="ask", tools=("note.*",))])

    assert asks(policy, WRITES)
    assert asks(policy, DELETES)
    assert not asks(policy, READS)


@pytest.mark.parametrize(
    ("rule", "matched"),
    [
        (Rule(action="ask"), {"file.read", "repo.delete", "odd.do"}),
        (Rule(action="ask", tools=("*.read", "odd.d?")), {"file.read", "odd.do"}),
        (Rule(action="ask", tools=("FILE.*",)), set[str]()),
        (Rule(action="ask", sources=("repo", "nowhere")), {"repo.delete"}),
        (Rule(action="ask", tags=("files", "danger")), {"file.read", "repo.delete"}),
        (Rule(action="ask", side_effects=("external",)), {"odd.do"}),
        (Rule(action="ask", destructive=True), {"repo.delete", "odd.do"}),
        (Rule(action="ask", destructive=False), {"file.read"}),
        (Rule(action="ask", tools=("repo.*",), tags=("files",)), set[str]()),
    ],
    ids=["all", "names", "case", "sources", "tags", "effects", "may-destroy", "harmless", "every-condition"],
)
def test_a_rule_matches_when_each_of_its_conditions_does(rule: Rule, matched: set[str]) -> None:
    assert {spec.name for spec in [READS, DELETES, UNKNOWN] if rule.matches(spec)} == matched


def test_a_denied_tool_is_refused_with_the_rules_reason() -> None:
    policy = Policy("exploratory", [Rule(action="deny", tools=("repo.*",), reason="the repository is frozen")])

    with pytest.raises(
        ToolPermissionError, match=r"Permission denied: 'repo\.delete': the repository is frozen"
    ) as raised:
        policy.verdict(DELETES).review(call(DELETES))

    assert raised.value.tool_name == "repo.delete"


def test_a_rule_without_a_reason_still_says_what_it_did() -> None:
    denied, asked = (Policy("exploratory", [Rule(action=action)]).verdict(READS) for action in ("deny", "ask"))

    with pytest.raises(ToolPermissionError, match="a policy rule says deny"):
        denied.review(call(READS))
    question = asked.review(call(READS))
    assert isinstance(question, Question)
    assert "a policy rule says ask" in question.prompt


def test_a_grant_lets_the_very_call_through() -> None:
    grant = Answer(decision="approve", value=call_hash(DELETES, {"name": "old"}))
    approved = call(DELETES, answer=grant, name="old")

    assert Policy().verdict(DELETES).review(approved) == PermittedCall(approved, "ask_1")


@pytest.mark.parametrize("arguments", [{"name": "new"}, {}, {"name": "old", "force": True}, {"name": ["old"]}])
def test_a_grant_for_other_arguments_is_asked_about_again(arguments: dict[str, Any]) -> None:
    grant = Answer(decision="approve", value=call_hash(DELETES, {"name": "old"}))

    assert isinstance(Policy().verdict(DELETES).review(call(DELETES, answer=grant, **arguments)), Question)


@pytest.mark.parametrize(
    "changes",
    [
        {"name": "repo.purge"},
        {"description": "Delete everything."},
        {"version": "2"},
        {"input_schema": {"type": "object", "properties": {"name": {"type": "string"}}}},
        {"side_effects": "external"},
        {"safety": SafetyProfile(destructive=True, network=True)},
    ],
    ids=lambda changes: next(iter(changes)),
)
def test_a_grant_for_a_tool_that_has_changed_since_is_asked_about_again(changes: dict[str, Any]) -> None:
    grant = Answer(decision="approve", value=call_hash(DELETES, {}))
    changed = replace(DELETES, **changes)

    assert isinstance(Policy().verdict(changed).review(call(changed, answer=grant)), Question)


@pytest.mark.parametrize(
    "answer",
    [
        Answer(decision="deny", value=call_hash(DELETES, {})),
        Answer(decision="approve"),
        Answer(decision="approve", value=True),
        Answer(decision="answer", value="yes"),
    ],
    ids=["denied", "no-hash", "true", "yes"],
)
def test_only_an_approval_of_this_call_counts(answer: Answer) -> None:
    assert isinstance(Policy().verdict(DELETES).review(call(DELETES, answer=answer)), Question)


def test_a_grant_does_not_outweigh_a_denial() -> None:
    policy = Policy("exploratory", [Rule(action="deny")])
    grant = Answer(decision="approve", value=call_hash(DELETES, {}))

    with pytest.raises(ToolPermissionError):
        policy.verdict(DELETES).review(call(DELETES, answer=grant))


def test_the_order_of_arguments_does_not_matter_but_their_types_do() -> None:
    assert call_hash(READS, {"a": 1, "b": 2}) == call_hash(READS, {"b": 2, "a": 1})
    assert len({call_hash(READS, {"a": value}) for value in (1, 1.0, "1", True, None, [1])}) == 6
