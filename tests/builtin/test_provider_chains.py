"""Chains of providers: in order, told when one falls back to the next, and swapped by configuration alone."""

import asyncio
from typing import Any

import pytest

from tests.builtin.caller import Caller
from tests.builtin.pages import allowed, as_json, provider, site
from tests.wire.site import Received, Site, reply
from toolpost import Toolbox, tool
from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.providers.factory import (
    build_retrieve_chain,
    build_scrape_chain,
    build_search_chain,
    share_timeout,
)
from toolpost.builtin.web_tools import web_fetch_tools, web_search_tools
from toolpost.configuration.settings import Settings
from toolpost.contracts.errors import ConfigError, ToolConnectionError
from toolpost.contracts.events import EventCode
from toolpost.contracts.outcomes import Completed, Failed

RESULTS = as_json({"results": [{"title": "Tea", "url": "https://tea.example/", "content": "All about tea"}]})


def link(there: Site, name: str = "tavily") -> ProviderSettings:
    return provider(name, api_key="k3y", url=there.url)


def box(*tools: Any) -> Toolbox:
    return Toolbox(tools=tools, settings=Settings(data_dir=None, builtins="none", policy="exploratory"))


@pytest.mark.req("NPRV-01", "NPRV-03")
async def test_the_next_provider_is_asked_when_one_fails_and_that_is_an_event() -> None:
    async with site({"/search": RESULTS}) as fine, site({"/web/search": reply(503, b"down")}) as broken:
        chain = build_search_chain([link(broken, "brave"), link(fine)], allowed())
        async with box(*web_search_tools(chain)) as opened:
            outcome = await opened.call("web_search", {"query": "tea"}, run_id="r1")
            events = await opened.events(run_id="r1")
        await chain.close()

    assert isinstance(outcome, Completed)
    assert outcome.content["provider"] == "tavily"
    fallen = [event.payload for event in events if event.code is EventCode.FALLBACK_USED]
    assert [(one["provider"], one["next"], one["error_code"]) for one in fallen] == [
        ("brave", "tavily", "server_error")
    ]


async def test_those_who_read_pages_share_the_time_that_a_call_may_take() -> None:
    given = [provider("direct"), provider("jina", timeout_s=4)]

    assert [one.timeout_s for one in share_timeout(given)] == [6, 4]
    assert [one.timeout_s for one in share_timeout([provider("direct"), provider("jina")])] == [5, 5]
    assert [one.timeout_s for one in share_timeout([provider("direct"), provider("jina", timeout_s=30)])] == [5, 30]


async def test_when_all_fail_every_failure_is_reported() -> None:
    async with site({"/search": reply(429, retry_after="9")}) as one, site({"/web/search": reply(503)}) as other:
        chain = build_search_chain([link(one), link(other, "brave")], allowed())
        async with box(*web_search_tools(chain)) as opened:
            outcome = await opened.call("web_search", {"query": "tea"}, timeout_s=5)
        await chain.close()

    assert isinstance(outcome, Failed)
    assert outcome.error.error_code == "all_providers_failed"
    assert "tavily: tavily answered 429" in str(outcome.error)
    assert "brave: brave answered 503" in str(outcome.error)


async def test_a_provider_that_leads_inside_is_passed_over() -> None:
    async with site({"/search": RESULTS}) as fine, site() as inside, site() as lost:
        lost.answer = reply(302, location=f"{inside.url}/secrets")
        chain = build_search_chain([link(lost, "brave"), link(fine)], allowed())
        async with box(*web_search_tools(chain)) as opened:
            outcome = await opened.call("web_search", {"query": "tea"}, run_id="r1")
            events = await opened.events(run_id="r1")
        await chain.close()

    assert isinstance(outcome, Completed)
    fallen = [event.payload for event in events if event.code is EventCode.FALLBACK_USED]
    assert [(one["provider"], one["error_code"]) for one in fallen] == [("brave", "provider_refused")]
    assert inside.requests == []


async def test_a_provider_that_says_nothing_leaves_time_for_the_next() -> None:
    async def silent(_: Received, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()

    async with site({"/search": RESULTS}) as fine, Site(answer=silent) as mute:
        slow = provider("brave", api_key="k3y", url=mute.url, timeout_s=0.3)
        chain = build_search_chain([slow, link(fine)], allowed())
        async with box(*web_search_tools(chain)) as opened:
            outcome = await opened.call("web_search", {"query": "tea"}, run_id="r1")
            events = await opened.events(run_id="r1")
        await chain.close()

    assert isinstance(outcome, Completed)
    fallen = [event.payload for event in events if event.code is EventCode.FALLBACK_USED]
    assert [(one["provider"], one["error_code"]) for one in fallen] == [("brave", "timeout")]


async def test_no_one_who_listens_at_all_was_certainly_not_asked() -> None:
    async with site() as gone, site() as there:
        links = [link(gone), link(there, "brave")]
    chain = build_search_chain(links, allowed())
    async with box(*web_search_tools(chain)) as opened:
        outcome = await opened.call("web_search", {"query": "tea"}, timeout_s=5)
    await chain.close()

    assert isinstance(outcome, Failed)
    assert isinstance(outcome.error, ToolConnectionError)
    assert (outcome.error.sent, outcome.error.error_code) == (False, "all_providers_failed")


async def test_what_one_provider_must_not_reach_another_is_not_asked_for() -> None:
    async with site({"/": as_json({"data": {"content": "leaked"}})}) as jina:
        chain = build_scrape_chain([provider("direct"), link(jina, "jina")], allowed())
        error = await Caller(web_fetch_tools(chain)).refused("web_fetch", url="http://169.254.169.254/latest/")
        await chain.close()

    assert error["message"].startswith("Permission denied: ")
    assert jina.requests == []


@pytest.mark.req("NPRV-02", "NPRV-03", "FUT-15")
@pytest.mark.parametrize(
    "answer",
    [
        {"results": [{"title": "Tea", "url": "https://tea.example/", "snippet": "All about tea"}]},
        '{"web": {"results": [{"title": "Tea", "link": "https://tea.example/", "text": "All about tea"}]}}',
        [{"name": "Tea", "href": "https://tea.example/", "body": "All about tea"}],
    ],
    ids=["an object", "JSON as text", "a list"],
)
async def test_a_tool_takes_the_place_of_a_provider_by_configuration_alone(answer: Any) -> None:
    @tool(side_effects="read")
    async def find(query: str) -> Any:
        """Find."""
        return answer if query == "tea" else None

    chain = build_search_chain([provider("mcp", tool="find")], allowed())
    async with box(find, *web_search_tools(chain)) as opened:
        outcome = await opened.call("web_search", {"query": "tea"}, run_id="r1")
        events = await opened.events(run_id="r1")

    assert isinstance(outcome, Completed)
    assert outcome.content["provider"] == "find"
    assert outcome.content["results"] == [
        {"title": "Tea", "url": "https://tea.example/", "content": "All about tea", "score": None}
    ]
    assert {event.payload["tool_name"] for event in events} == {"web_search", "find"}


async def test_a_tool_that_fails_or_needs_a_person_is_passed_over() -> None:
    @tool(side_effects="external", destructive=True)
    async def find(query: str) -> Any:
        """Find."""
        return query

    settings = Settings(data_dir=None, builtins="none")
    async with site({"/search": RESULTS}) as fine:
        links = [provider("mcp", tool="missing"), provider("mcp", tool="find")]
        chain = build_search_chain([*links, link(fine)], allowed())
        async with Toolbox(tools=[find, *web_search_tools(chain)], settings=settings) as opened:
            outcome = await opened.call("web_search", {"query": "tea"}, run_id="r1")
            events = await opened.events(run_id="r1")
        await chain.close()

    assert isinstance(outcome, Completed)
    fallen = [event.payload["error_code"] for event in events if event.code is EventCode.FALLBACK_USED]
    assert fallen == ["tool_not_found", "provider_paused"]


async def test_a_tool_reads_pages_too() -> None:
    @tool(side_effects="read")
    async def read(url: str) -> str:
        """Read."""
        return f"# {url}"

    chain = build_scrape_chain([provider("mcp", tool="read")], allowed())
    async with box(read, *web_fetch_tools(chain)) as opened:
        outcome = await opened.call("web_fetch", {"url": "https://93.184.215.14/"})

    assert isinstance(outcome, Completed)
    assert (outcome.content["content"], outcome.content["provider"]) == ("# https://93.184.215.14/", "read")


@pytest.mark.parametrize(
    ("make", "name"),
    [(build_search_chain, "direct"), (build_scrape_chain, "duckduckgo"), (build_retrieve_chain, "duckduckgo")],
)
def test_a_provider_of_another_kind_is_a_mistake_that_names_the_right_ones(make: Any, name: str) -> None:
    with pytest.raises(ConfigError, match="those that can: "):
        make([provider(name)], allowed())


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("google", "requires engine"),
        ("opensearch", "requires url and index"),
        ("pgvector", "requires url and index and embeddings"),
        ("embedded", "requires path"),
        ("mcp", "requires tool"),
    ],
)
def test_a_provider_says_what_it_needs(name: str, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        provider(name)
