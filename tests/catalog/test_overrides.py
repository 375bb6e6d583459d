"""What an operator changes about a tool."""

from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.catalog.function import tool
from toolpost.catalog.registry import ToolRegistry
from toolpost.contracts.config import ToolOverride
from toolpost.contracts.errors import ConfigError, ToolCollisionError, ToolValidationError
from toolpost.contracts.spec import ToolSpec


@tool(name="gh.create_issue", tags=["write"], timeout_s=5)
async def create_issue(repo: str, title: str, labels: list[str] | None = None) -> str:
    """Create an issue."""
    return f"{repo}: {title}"


def registry_with(**override: Any) -> ToolRegistry:
    registry = ToolRegistry()
    registry.register(create_issue, override=ToolOverride.model_validate(override))
    return registry


def test_a_renamed_tool_is_found_under_its_new_name_alone() -> None:
    registry = registry_with(name="report_bug")

    assert registry.has("report_bug")
    assert not registry.has("gh.create_issue")
    assert [definition.name for definition in registry.to_llm_tools()] == ["report_bug"]


def test_a_tool_of_a_source_keeps_its_namespace_when_renamed() -> None:
    sourced = create_issue.renamed(ToolSpec(name="gh.create_issue", source="gh"))
    registry = ToolRegistry()

    registry.register(sourced, override=ToolOverride(name="report bug"))

    assert [spec.name for spec in registry.specs()] == ["gh.report_bug"]


def test_a_new_name_that_is_taken_is_refused() -> None:
    registry = registry_with(name="other")

    with pytest.raises(ToolCollisionError):
        registry.register(create_issue, override=ToolOverride(name="other"))


def test_a_description_tags_and_a_deadline_can_be_changed() -> None:
    spec = registry_with(description="File a bug.", tags=["bugs"], timeout_s=9).find("gh.create_issue").spec

    assert (spec.description, spec.tags, spec.timeout_s) == ("File a bug.", ("bugs",), 9)


def test_what_an_override_leaves_out_stays() -> None:
    spec = registry_with(name="report_bug").find("report_bug").spec

    assert (spec.description, spec.tags, spec.timeout_s) == ("Create an issue.", ("write",), 5)
    assert spec.input_schema == create_issue.spec.input_schema


def test_the_original_stays_reachable_and_untouched() -> None:
    entry = registry_with(name="report_bug", description="File a bug.", fix={"repo": "a/b"}).find("report_bug")

    assert entry.original is create_issue.spec
    assert (entry.original.name, entry.original.description) == ("gh.create_issue", "Create an issue.")
    assert "repo" in entry.original.input_schema["properties"]


def test_a_hidden_tool_cannot_be_called_but_is_on_record() -> None:
    registry = registry_with(hide=True)

    assert not registry.has("gh.create_issue")
    assert registry.list() == []
    assert registry.hidden == {"gh.create_issue": create_issue.spec}


def test_a_fixed_argument_is_out_of_the_callers_hands() -> None:
    entry = registry_with(fix={"repo": "a/b"}).find("gh.create_issue")

    assert "repo" not in entry.spec.input_schema["properties"]
    assert entry.spec.input_schema["required"] == ["title"]
    assert entry.fit({"title": "Bug"}) == {"repo": "a/b", "title": "Bug"}
    with pytest.raises(ToolValidationError, match="repo"):
        entry.fit({"title": "Bug", "repo": "other/repo"})


def test_a_fixed_argument_wins_where_the_schema_is_open() -> None:
    @tool(input_schema={"type": "object", "properties": {"repo": {"type": "string"}}})
    async def anything(**given: Any) -> None: ...

    registry = ToolRegistry()
    registry.register(anything, override=ToolOverride(fix={"repo": "a/b"}))

    assert registry.find("anything").fit({"repo": "other/repo"}) == {"repo": "a/b"}


@pytest.mark.parametrize(
    "rule",
    [
        {"allOf": [{"required": ["repo"]}]},
        {"anyOf": [{"required": ["repo"]}, {"required": ["org"]}]},
        {"minProperties": 2},
        {"dependentRequired": {"title": ["repo"]}},
    ],
    ids=lambda rule: next(iter(rule)),
)
@pytest.mark.parametrize("kind", ["fix", "default"])
def test_rules_between_arguments_hold_with_those_that_are_filled_in(rule: dict[str, Any], kind: str) -> None:
    words = {name: {"type": "string"} for name in ("repo", "org", "title")}

    @tool(input_schema={"type": "object", "properties": words, **rule})
    async def report(**given: Any) -> None: ...

    registry = ToolRegistry()
    registry.register(report, override=ToolOverride.model_validate({kind: {"repo": "a/b"}}))

    assert registry.find("report").fit({"title": "Bug"}) == {"repo": "a/b", "title": "Bug"}


def test_a_rule_that_a_fixed_argument_sets_off_is_not_passed_over() -> None:
    words = {name: {"type": "string"} for name in ("repo", "title")}

    @tool(input_schema={"type": "object", "properties": words, "dependentRequired": {"repo": ["title"]}})
    async def report(**given: Any) -> None: ...

    registry = ToolRegistry()
    registry.register(report, override=ToolOverride(fix={"repo": "a/b"}))

    with pytest.raises(ToolValidationError, match="title"):
        registry.find("report").fit({})


def test_a_default_may_be_left_out_or_changed_by_the_caller() -> None:
    entry = registry_with(default={"repo": "a/b"}).find("gh.create_issue")

    assert entry.spec.input_schema["properties"]["repo"]["default"] == "a/b"
    assert entry.spec.input_schema["required"] == ["title"]
    assert entry.fit({"title": "Bug"}) == {"repo": "a/b", "title": "Bug"}
    assert entry.fit({"title": "Bug", "repo": "c/d"}) == {"repo": "c/d", "title": "Bug"}


def test_a_default_that_is_a_secret_is_not_shown_to_a_model() -> None:
    @tool
    async def fetch(url: str, api_key: str) -> None: ...

    registry = ToolRegistry()
    registry.register(fetch, override=ToolOverride(default={"api_key": "hunter22"}))

    assert "hunter22" not in str(registry.to_llm_tools())
    assert registry.find("fetch").fit({"url": "u"}) == {"url": "u", "api_key": "hunter22"}


@pytest.mark.parametrize("kind", ["fix", "default"])
def test_an_argument_that_the_tool_does_not_have_is_refused(kind: str) -> None:
    with pytest.raises(ConfigError, match="it has no argument 'repos'; it has repo, title, labels"):
        registry_with(**{kind: {"repos": "a/b"}})


def test_an_unknown_argument_is_refused_too_where_the_schema_merely_says_nothing() -> None:
    @tool(input_schema={"type": "object", "properties": {"repo": {"type": "string"}}})
    async def silent(**given: Any) -> None: ...

    with pytest.raises(ConfigError, match="it has no argument 'repos'; it has repo"):
        ToolRegistry().register(silent, override=ToolOverride(fix={"repos": "a/b"}))


def test_an_unknown_argument_is_accepted_where_the_schema_asks_for_more() -> None:
    @tool
    async def anything(**given: str) -> None: ...

    registry = ToolRegistry()
    registry.register(anything, override=ToolOverride(fix={"repo": "a/b"}))

    assert registry.find("anything").fit({"title": "Bug"}) == {"title": "Bug", "repo": "a/b"}


@pytest.mark.parametrize("kind", ["fix", "default"])
def test_a_value_that_the_tool_would_refuse_is_refused_at_once(kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'gh\.create_issue' violates its schema: \$\.repo: "):
        registry_with(**{kind: {"repo": 7}})


@pytest.mark.parametrize(
    ("override", "complaint"),
    [({"side_effects": "reads"}, "side_effects 'reads' is not one of"), ({"replay": "twice"}, "replay 'twice' is not")],
)
def test_a_misspelled_effect_is_refused(override: dict[str, str], complaint: str) -> None:
    with pytest.raises(ConfigError, match=complaint):
        registry_with(**override)


def test_an_operator_can_say_what_a_tool_does_to_the_world() -> None:
    spec = registry_with(side_effects="external", destructive=False, replay="keyed").find("gh.create_issue").spec

    assert (spec.side_effects, spec.safety.destructive, spec.replay) == ("external", False, "keyed")


@pytest.mark.parametrize(
    ("declared", "override", "destructive", "replay"),
    [
        ({"side_effects": "external"}, {"side_effects": "read"}, False, "idempotent"),
        ({"side_effects": "write"}, {"side_effects": "external"}, None, "unsafe"),
        ({"side_effects": "external", "destructive": False}, {"side_effects": "external"}, False, "unsafe"),
        ({"destructive": True}, {"side_effects": "read"}, True, "idempotent"),
        ({"destructive": True}, {"destructive": False}, False, "unsafe"),
        ({"side_effects": "external"}, {"description": "Other."}, False, "unsafe"),
    ],
    ids=["settled", "unknown-again", "still-known", "mark-stays", "mark-taken-back", "untouched"],
)
def test_other_effects_settle_what_was_unknown_but_take_no_mark_away(
    declared: dict[str, Any], override: dict[str, Any], destructive: bool | None, replay: str
) -> None:
    @tool(**declared)
    async def act() -> None: ...

    registry = ToolRegistry()
    registry.register(act, override=ToolOverride.model_validate(override))

    spec = registry.find("act").spec
    assert (spec.safety.destructive, spec.replay) == (destructive, replay)


def test_what_a_model_sees_of_a_large_schema_is_changed_along_with_it() -> None:
    large = create_issue.spec.input_schema
    shorter = {**large, "properties": {name: {"type": "string"} for name in large["properties"]}}
    registry = ToolRegistry()
    changed = ToolOverride(fix={"repo": "a/b"}, default={"title": "Bug"})
    registry.register(create_issue.renamed(replace(create_issue.spec, model_schema=shorter)), override=changed)

    shown = registry.find("gh.create_issue").shown_schema
    assert shown["properties"] == {"title": {"type": "string", "default": "Bug"}, "labels": {"type": "string"}}
    assert shown["required"] == []
