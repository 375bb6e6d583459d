"""Search in the catalog: what is found, what is not, and that the index follows the tools."""

import asyncio
import time
from typing import Any

import pytest

from toolpost.builtin.specs import read_specs
from toolpost.catalog.registry import ToolRegistry
from toolpost.catalog.search import SearchIndex
from toolpost.catalog.search_terms import stem, words_of_name, words_of_text
from toolpost.contracts.context import ToolContext
from toolpost.contracts.outcomes import ToolResult
from toolpost.contracts.spec import ToolSpec


class Listed:
    """A tool that is only looked for."""

    def __init__(self, name: str, description: str = "", **facts: Any) -> None:
        properties = {key: {"type": "string", "description": hint} for key, hint in facts.pop("takes", {}).items()}
        schema = {"type": "object", "properties": properties}
        self.spec = ToolSpec(
            name=name, description=description, source=name.rpartition(".")[0], input_schema=schema, **facts
        )

    async def execute(self, params: dict[str, Any], context: ToolContext) -> ToolResult:
        return ToolResult(success=True)


SHOP = (
    Listed("github.createIssue", "Opens a new issue.", takes={"title": "The headline of the bug report"}),
    Listed("github.list_pull_requests", "Lists pull requests.", side_effects="read", tags=("review",)),
    Listed("mail.send_message", "Sends an email to somebody."),
    Listed("mail.delete_message", "Deletes an email."),
    Listed("weather.forecast", "Says how warm it will be.", side_effects="read", tags=("outdoor",)),
)


@pytest.fixture
def catalog() -> ToolRegistry:
    registry = ToolRegistry()
    registry.register_many(SHOP)
    return registry


async def names(catalog: ToolRegistry, query: str, **chosen: Any) -> list[str]:
    return [spec.name for spec in await catalog.search(query, **chosen)]


@pytest.mark.parametrize(
    ("query", "first"),
    [
        ("create issue", "github.createIssue"),
        ("createIssue", "github.createIssue"),
        ("github.createIssue", "github.createIssue"),
        ("headline", "github.createIssue"),  # of a parameter
        ("list PRs", "github.list_pull_requests"),
        ("removes e-mails", "mail.delete_message"),
        ("outdoor", "weather.forecast"),  # a tag
        ("WARM", "weather.forecast"),
    ],
)
@pytest.mark.req("MISC-25")
async def test_a_tool_is_found_by_its_name_description_parameters_and_tags(
    catalog: ToolRegistry, query: str, first: str
) -> None:
    assert (await names(catalog, query))[0] == first


async def test_only_tools_that_the_caller_may_see_are_found(catalog: ToolRegistry) -> None:
    catalog.define_collection("post", ["mail.*", "tag:review"])

    assert set(await names(catalog, "message requests forecast", collection="post")) == {
        *("mail.send_message", "mail.delete_message", "github.list_pull_requests")
    }
    assert await names(catalog, "message", sources=["github"], where=lambda spec: "message" in spec.name) == []
    assert await names(catalog, "mail.send_message", patterns=["github.*"], tags=["review"]) == []
    assert await names(catalog, "message", where=lambda spec: spec.name.endswith("message"), limit=1) == [
        "mail.send_message"
    ]
    with pytest.raises(KeyError, match="no collection 'pots'; there are: post"):
        await catalog.search("message", collection="pots")


async def test_the_index_follows_tools_that_come_change_and_go(catalog: ToolRegistry) -> None:
    assert await names(catalog, "parrot") == []

    catalog.register(Listed("zoo.feed", "Feeds a parrot."))
    assert await names(catalog, "parrot") == ["zoo.feed"]

    catalog.register(Listed("zoo.feed", "Feeds an otter."), replace=True)
    assert (await names(catalog, "parrot"), await names(catalog, "otter")) == ([], ["zoo.feed"])

    catalog.unregister("zoo.feed")
    catalog.register(Listed("zoo.clean", "Cleans the cage."))
    assert (await names(catalog, "otter"), await names(catalog, "cage")) == ([], ["zoo.clean"])


@pytest.mark.parametrize(
    "query", ["", "   ", "\x00\x1b[31m\u202e", "!?*", "the of a", "(a|b)+.*[", '"', "NEAR(", "AND OR NOT"]
)
async def test_a_query_without_words_finds_nothing_and_syntax_means_nothing(catalog: ToolRegistry, query: str) -> None:
    assert await names(catalog, query) == []
    assert await names(catalog, f"{query} forecast") == ["weather.forecast"]


async def test_other_scripts_are_searched_too(catalog: ToolRegistry) -> None:
    catalog.register(Listed("tenki.yohou", "東京の天気予報を取得する"))
    catalog.register(Listed("pogoda.get", "Показывает прогноз погоды"))

    assert await names(catalog, "天気予報") == ["tenki.yohou"]
    assert await names(catalog, "прогноз") == ["pogoda.get"]


async def test_of_a_huge_query_the_beginning_is_read(catalog: ToolRegistry) -> None:
    assert await names(catalog, "forecast " + "x" * 1_000_000) == ["weather.forecast"]
    assert await names(catalog, "forecast", limit=0) == []


async def test_a_query_that_begins_with_several_of_something_wants_a_list() -> None:
    registry = ToolRegistry()
    for name, description in (
        ("shop.get_invoice", "Show an invoice of a customer."),
        ("shop.list_invoices", "List the invoices that a customer has got so far."),
    ):
        registry.register(Listed(name, description))

    assert (await names(registry, "invoices of a customer"))[0] == "shop.list_invoices"
    assert (await names(registry, "show an invoice of a customer"))[0] == "shop.get_invoice"


def test_scores_of_words_do_not_depend_on_the_order_in_which_tools_came() -> None:
    words = " ".join(f"word{number}" for number in range(80))
    long = Listed("desk.print", f"Prints {'an invoice. ' * 6}{words}").spec
    short = [Listed("shop.bill", "Makes an invoice.").spec, Listed("shop.sell", "Sells.").spec]
    at_once, one_by_one = SearchIndex(), SearchIndex()
    at_once.change([], [*short, long])
    for spec in (long, *short):
        one_by_one.change([], [spec])

    assert [spec.name for spec in at_once.find("invoice", 5)] == ["shop.bill", "desk.print"]
    assert one_by_one.find("invoice", 5) == at_once.find("invoice", 5)


async def test_a_catalog_is_ranked_in_one_way_however_it_came_to_be() -> None:
    tools = [Listed(name, spec.description, side_effects=spec.side_effects) for name, spec in read_specs().items()]
    tools += [Listed(f"{shop}.refund", "Gives a customer the money back.") for shop in ("south", "north", "east")]
    passing = [Listed(f"gone.n{n}", tools[n % len(tools)].spec.description) for n in range(0, 150, 3)]
    queries = [*(tool.spec.description for tool in tools[::2]), "money back", "read a file", "what is the time"]
    at_once, one_by_one, after_others = ToolRegistry(), ToolRegistry(), ToolRegistry()
    at_once.register_many(tools)
    for tool in reversed(tools):
        one_by_one.register(tool)
        await one_by_one.search("anything")  # which indexes it
    after_others.register_many([*passing, *tools[5:]])
    await after_others.search("anything")
    after_others.register_many(tools[:5])
    for other in passing:
        after_others.unregister(other.spec.name)

    ranked = [[await names(one, query, limit=60) for query in queries] for one in (at_once, one_by_one, after_others)]

    assert ranked[0] == ranked[1] == ranked[2]
    assert await names(at_once, "money back", limit=3) == ["east.refund", "north.refund", "south.refund"]


async def test_a_word_of_a_tool_that_is_gone_is_not_proposed(catalog: ToolRegistry) -> None:
    assert await catalog.correct("forecst") == "forecast"
    catalog.unregister("weather.forecast")

    assert await catalog.correct("forecst") is None


async def test_nothing_is_found_in_an_empty_catalog() -> None:
    assert await names(ToolRegistry(), "anything") == []
    assert await ToolRegistry().correct("anything") is None


async def test_a_misspelled_query_is_corrected_by_words_of_the_catalog(catalog: ToolRegistry) -> None:
    assert await catalog.correct("forcast of rain") == "forecast of rain"
    assert await catalog.correct("forecast") is None


async def test_searches_during_many_changes_see_whole_states_and_leave_the_loop_free() -> None:
    registry = ToolRegistry()
    registry.register_many(Listed(f"s{n % 40}.tool_{n}", f"Handles things of kind {n}.") for n in range(3000))
    gaps: list[float] = []

    async def beat() -> None:
        while True:
            before = time.perf_counter()
            await asyncio.sleep(0.001)
            gaps.append(time.perf_counter() - before)

    beating = asyncio.create_task(beat())
    async with asyncio.TaskGroup() as group:
        found = [group.create_task(names(registry, "kind 1234")) for _ in range(5)]
        registry.unregister("s34.tool_1234")
        registry.register(Listed("late.tool", "Handles things of kind 1234."))
    beating.cancel()

    assert all("late.tool" in task.result() or "s34.tool_1234" in task.result() for task in found)
    assert (await names(registry, "kind 1234"))[0] == "late.tool"
    assert len(gaps) > 3  # the loop went on while the index was made


def test_words_are_split_where_people_see_them() -> None:
    assert words_of_name("github.listHTTPRoutesV2_for-repo") == [
        "github",
        "list",
        "http",
        "routes",
        "v2",
        "for",
        "repository",
    ]
    assert words_of_name("base64_decode") == ["base64", "decode"]
    assert words_of_text("GitHub's PRs, createIssue") == ["github", "s", "pull", "request", "create", "issue"]
    assert {stem(word) for word in ("create", "creates", "created", "creating", "creation")} == {"creat"}
