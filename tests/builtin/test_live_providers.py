"""Providers as they are today, asked only when somebody says so: TOOLPOST_LIVE=1, and the key of each that has one."""

import asyncio
import os

import pytest

from tests.builtin.pages import provider
from tests.builtin.rates import searched_at_their_rate
from toolpost.builtin.providers.factory import build_scrape_chain, build_search_chain
from toolpost.contracts.errors import ToolRateLimitError
from toolpost.wire.network import NetworkPolicy

live = pytest.mark.skipif(os.environ.get("TOOLPOST_LIVE") != "1", reason="set TOOLPOST_LIVE=1 to ask real providers")

PAGES = [("https://example.com/", "Example Domain"), ("https://www.rfc-editor.org/rfc/rfc9110", "HTTP")]


def key_of(name: str) -> str:
    key = os.environ.get(f"TOOLPOST_{name.upper()}_KEY", "")
    if not key:
        pytest.skip(f"set TOOLPOST_{name.upper()}_KEY to ask {name}")
    return key


@live
@pytest.mark.parametrize("name", ["brave", "tavily", "google", "jina"])
async def test_an_engine_answers_as_its_documentation_says(name: str) -> None:
    key, engine = key_of(name), os.environ.get("TOOLPOST_GOOGLE_ENGINE", "")
    chain = build_search_chain([provider(name, api_key=key, engine=engine)], NetworkPolicy())
    found = await chain.providers[0].search("python programming language", 5)
    await chain.close()

    assert any("python.org" in result["url"] for result in found.results)


@live
async def test_brave_is_searched_at_its_rate() -> None:
    chain = build_search_chain([provider("brave", api_key=key_of("brave"))], NetworkPolicy())
    queries = [f"tea {number}" for number in range(5)]
    found = await searched_at_their_rate(chain.providers[0], queries, wait=asyncio.sleep)
    await chain.close()

    assert [one.query for one in found] == queries
    assert all(one.results for one in found)


@live
async def test_brave_says_how_long_to_wait_when_it_is_asked_too_fast() -> None:
    chain = build_search_chain([provider("brave", api_key=key_of("brave"))], NetworkPolicy())
    asked = (chain.providers[0].search(f"tea {number}", 1) for number in range(10))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    await chain.close()

    failed = [one for one in outcomes if isinstance(one, BaseException)]
    assert all(isinstance(one, ToolRateLimitError) and one.retry_after_s is not None for one in failed), failed
    assert len(failed) < 10


@live
@pytest.mark.parametrize(("url", "said"), PAGES)
@pytest.mark.parametrize("name", ["direct", "jina"])
async def test_known_pages_are_read(name: str, url: str, said: str) -> None:
    chain = build_scrape_chain([provider(name, api_key=os.environ.get("TOOLPOST_JINA_KEY"))], NetworkPolicy())
    page = await chain.providers[0].scrape(url)
    await chain.close()

    assert said in f"{page.title} {page.content}"
