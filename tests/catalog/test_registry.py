"""The registry: tools come, are found, are shown, are counted and go."""

from collections.abc import Sequence
from typing import Any

import pytest
from msgspec.structs import replace

from toolpost.catalog.function import FunctionTool, tool
from toolpost.catalog.names import canonical_name
from toolpost.catalog.registry import CallStats, CatalogChange, ToolRegistry
from toolpost.contracts.errors import ToolCollisionError, ToolNotFoundError, ToolSchemaError
from toolpost.contracts.spec import ToolCategory, ToolSpec


@tool(name="gh.issue", category=ToolCategory.NETWORK, tags=["gh", "read"], side_effects="read")
async def issue(number: int) -> str:
    """Read an issue."""
    return f"#{number}"


@tool(name="gh.comment", category=ToolCategory.NETWORK, tags=["gh", "write"])
async def comment(number: int, text: str) -> None:
    """Comment on an issue."""


@tool(cost_hint="free", latency_hint_ms=1, timeout_s=2)
async def add(a: int, b: int) -> int:
    """Add."""
    return a + b


def named(name: str, **changes: Any) -> FunctionTool:
    return add.renamed(replace(add.spec, name=name, **changes))


@pytest.fixture
def registry() -> ToolRegistry:
    made = ToolRegistry()
    made.register_many([issue, comment, add])
    return made


@pytest.mark.req("PREG-03")
def test_a_registered_tool_is_found(registry: ToolRegistry) -> None:
    assert registry.get("gh.issue") is issue
    assert registry.has("gh.issue")
    assert registry.find("gh.issue").spec is issue.spec


@pytest.mark.req("PREG-03")
def test_an_unknown_tool_is_not(registry: ToolRegistry) -> None:
    assert registry.get("gh.wiki") is None
    assert not registry.has("gh.wiki")


@pytest.mark.req("PREG-03")
def test_a_tool_is_found_by_the_name_that_models_use(registry: ToolRegistry) -> None:
    assert registry.get("gh__issue") is issue
    assert registry.has("gh__issue")


@pytest.mark.req("PREG-01")
def test_a_name_is_given_once(registry: ToolRegistry) -> None:
    with pytest.raises(ValueError, match=r"'gh\.issue' is already registered \(from the toolbox itself\)") as raised:
        registry.register(issue)

    assert isinstance(raised.value, ToolCollisionError)
    assert raised.value.tool_name == "gh.issue"


def test_a_taken_name_says_which_source_has_it(registry: ToolRegistry) -> None:
    registry.register(named("lab.add", source="lab"))

    with pytest.raises(ToolCollisionError, match=r"\(from lab\); rename one of them"):
        registry.register(named("lab.add"))


@pytest.mark.req("PREG-01")
@pytest.mark.parametrize("names", [("a.b", "a__b"), ("a__b", "a.b")])
def test_two_tools_that_a_model_could_not_distinguish_are_refused(names: Sequence[str]) -> None:
    registry = ToolRegistry()
    registry.register(named(names[0]))

    with pytest.raises(ToolCollisionError, match="would both be 'a__b' to a model"):
        registry.register(named(names[1]))

    assert [spec.name for spec in registry.specs()] == [names[0]]


def test_a_refused_tool_leaves_nothing_behind(registry: ToolRegistry) -> None:
    changes: list[CatalogChange] = []
    registry.subscribe(changes.extend)

    with pytest.raises(ToolCollisionError):
        registry.register(named("gh__issue"))

    assert registry.get("gh__issue") is issue
    assert (len(registry.list()), changes) == (3, [])


@pytest.mark.parametrize(
    "schemas",
    [
        {"input_schema": {"type": "objekt"}},
        {"input_schema": {"type": "array"}},
        {"input_schema": {"$ref": "https://example.org/schema.json"}},
        {"output_schema": {"type": 7}},
        {"output_schema": {"$ref": "https://example.org/schema.json"}},
    ],
    ids=["illegal", "no-object", "remote", "illegal-output", "remote-output"],
)
def test_a_tool_with_a_broken_schema_is_refused(schemas: dict[str, Any]) -> None:
    with pytest.raises(ToolSchemaError, match="'broken'"):
        ToolRegistry().register(named("broken", **schemas))


def test_a_very_long_name_is_cut_and_leads_back_to_its_tool() -> None:
    registry = ToolRegistry()
    long, other = (canonical_name("api", "list_" * 30 + end) for end in ("a", "b"))
    registry.register_many([named(long), named(other)])

    shown = [definition.name for definition in registry.to_llm_tools()]

    assert [len(name) for name in shown] == [64, 64]
    assert [registry.find(name).spec.name for name in shown] == [long, other]


@pytest.mark.req("PREG-02", "PREG-04")
def test_tools_are_listed_in_the_order_they_came(registry: ToolRegistry) -> None:
    assert registry.list() == [issue, comment, add]


@pytest.mark.req("PREG-04")
def test_tools_are_listed_by_category(registry: ToolRegistry) -> None:
    assert registry.list_by_category(ToolCategory.NETWORK) == [issue, comment]
    assert registry.list_by_category(ToolCategory.FILE) == []


@pytest.mark.req("PREG-05", "MISC-21", "PTYPE-01")
def test_a_model_gets_name_description_and_the_schema_as_it_is(registry: ToolRegistry) -> None:
    definition = registry.to_llm_tools()[0]

    assert (definition.name, definition.description) == ("gh__issue", "Read an issue.")
    assert definition.parameters is issue.spec.input_schema


@pytest.mark.req("PREG-05")
def test_a_model_may_be_shown_some_tools_only(registry: ToolRegistry) -> None:
    assert [definition.name for definition in registry.to_llm_tools(["add", "gh__issue"])] == ["add", "gh__issue"]


def test_another_naming_policy_shows_other_names() -> None:
    registry = ToolRegistry(naming="dotted")
    registry.register(issue)

    assert registry.to_llm_tools()[0].name == "gh.issue"


@pytest.mark.req("PREG-08", "GEN-21")
def test_a_tool_that_comes_later_is_shown_and_one_that_goes_is_not(registry: ToolRegistry) -> None:
    registry.register(named("later"))
    registry.unregister("gh__issue")

    assert [definition.name for definition in registry.to_llm_tools()] == ["gh__comment", "add", "later"]
    assert not registry.has("gh.issue")
    assert not registry.has("gh__issue")


def test_the_name_of_a_tool_that_went_is_free_in_both_forms(registry: ToolRegistry) -> None:
    registry.unregister("gh.issue")
    registry.register(named("gh__issue"))

    assert registry.find("gh__issue").spec.name == "gh__issue"


@pytest.mark.req("ERR-14")
def test_a_misspelled_tool_is_named_with_its_neighbour(registry: ToolRegistry) -> None:
    with pytest.raises(ToolNotFoundError) as raised:
        registry.find("gh.isue")

    assert str(raised.value) == 'Tool "gh.isue" not found. Did you mean "gh.issue"?'


@pytest.mark.req("ERR-14")
def test_unregistering_an_unknown_tool_says_so(registry: ToolRegistry) -> None:
    with pytest.raises(ToolNotFoundError, match='Tool "nothing_like_it" not found'):
        registry.unregister("nothing_like_it")


@pytest.mark.req("GEN-21")
def test_a_tool_is_exchanged_in_its_place_and_its_counts_continue(registry: ToolRegistry) -> None:
    registry.update_call_stats("gh.issue", 10.0, True)
    better = named("gh.issue", description="Read it better.", category=ToolCategory.DATA)

    registry.register(better, replace=True)

    assert registry.list() == [better, comment, add]
    assert registry.to_llm_tools()[0].description == "Read it better."
    assert registry.get_stats().call_stats["gh.issue"].count == 1


def test_exchanging_what_is_not_there_adds_it(registry: ToolRegistry) -> None:
    registry.register(named("fresh"), replace=True)

    assert registry.has("fresh")


def test_exchanging_does_not_take_a_name_that_only_looks_the_same(registry: ToolRegistry) -> None:
    with pytest.raises(ToolCollisionError):
        registry.register(named("gh__issue"), replace=True)


@pytest.mark.req("GEN-21")
def test_a_subscriber_is_notified_of_every_change(registry: ToolRegistry) -> None:
    changes: list[CatalogChange] = []
    registry.subscribe(changes.extend)

    registry.register(named("later"))
    registry.register(named("later", version="2"), replace=True)
    registry.unregister("later")

    assert changes == [("added", "later"), ("changed", "later"), ("removed", "later")]


@pytest.mark.parametrize(
    ("members", "names"),
    [
        (["gh.*"], ["gh.issue", "gh.comment"]),
        (["tag:read", "add"], ["gh.issue", "add"]),
        (["tag:nothing"], list[str]()),
        ([], list[str]()),
    ],
    ids=["pattern", "tag-and-name", "nobody", "empty"],
)
def test_a_collection_holds_what_its_patterns_say(
    registry: ToolRegistry, members: Sequence[str], names: list[str]
) -> None:
    registry.define_collection("some", members)

    assert [spec.name for spec in registry.specs("some")] == names


def test_a_collection_follows_the_catalog(registry: ToolRegistry) -> None:
    registry.define_collection("github", ["gh.*"])

    registry.unregister("gh.issue")
    registry.register(named("gh.wiki"))

    assert [spec.name for spec in registry.specs("github")] == ["gh.comment", "gh.wiki"]


def test_an_unknown_collection_names_those_that_there_are(registry: ToolRegistry) -> None:
    with pytest.raises(KeyError, match="none are defined"):
        registry.specs("github")
    registry.define_collection("b", ["*"])
    registry.define_collection("a", ["*"])
    with pytest.raises(KeyError, match="no collection 'github'; there are: a, b"):
        registry.specs("github")


@pytest.mark.req("PREG-06", "PREG-07", "MET-09")
def test_calls_are_counted_by_tool(registry: ToolRegistry) -> None:
    registry.update_call_stats("add", 10.0, True)
    registry.update_call_stats("add", 30.0, False)
    registry.update_call_stats("gh__issue", 5.0, True)

    stats = registry.get_stats()

    shown = {name: replace(one, buckets=()) for name, one in stats.call_stats.items()}
    assert shown == {"gh.issue": CallStats(1, 0, 5.0), "add": CallStats(2, 1, 20.0)}
    assert {name: sum(one.buckets) for name, one in stats.call_stats.items()} == {"gh.issue": 1, "add": 2}
    assert stats.call_stats["add"].buckets[:5] == (0, 0, 1, 0, 1)  # up to 1, 5, 10, 25 and 50 ms


@pytest.mark.req("PREG-06")
def test_tools_are_counted_in_all_and_by_category(registry: ToolRegistry) -> None:
    stats = registry.get_stats()

    assert stats.total == 3
    assert set(stats.by_category) == set(ToolCategory)
    assert {category: count for category, count in stats.by_category.items() if count} == {
        ToolCategory.NETWORK: 2,
        ToolCategory.CUSTOM: 1,
    }
    assert stats.call_stats == {}


@pytest.mark.req("PREG-07")
def test_a_call_of_an_unknown_tool_is_not_counted(registry: ToolRegistry) -> None:
    registry.update_call_stats("gh.wiki", 1.0, True)

    assert registry.get_stats().call_stats == {}


@pytest.mark.req("MET-10", "NCON-01")
def test_what_a_tool_costs_and_takes_is_visible(registry: ToolRegistry) -> None:
    told = registry.find("add").spec.to_dict()

    assert (told["cost_hint"], told["latency_hint_ms"], told["timeout_s"]) == ("free", 1, 2)


@pytest.mark.slow
def test_ten_thousand_tools_are_shown_in_the_order_they_came() -> None:
    registry = ToolRegistry()
    registry.register_many(named(f"t.n{number}") for number in range(10_000))

    assert [definition.name for definition in registry.to_llm_tools()] == [f"t__n{n}" for n in range(10_000)]
    assert isinstance(registry.find("t__n9999").spec, ToolSpec)
