"""Providers as they are today, asked only when somebody says so: TOOLPOST_LIVE=1, and the key of each that has one."""

import asyncio
import os
from importlib.util import find_spec

import pytest

from tests.builtin.pages import provider
from toolpost.builtin.providers.making import retrieve_chain, scrape_chain, search_chain
from toolpost.builtin.providers.protocols import Filters
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
    engine = {"engine": os.environ.get("TOOLPOST_GOOGLE_ENGINE", "")} if name == "google" else {}
    chain = search_chain([provider(name, api_key=key_of(name), **engine)], NetworkPolicy())
    found = await chain.providers[0].search("python programming language", 5)
    await chain.close()

    assert any("python.org" in result["url"] for result in found.results)


@live
async def test_brave_says_how_long_to_wait_when_it_is_asked_too_fast() -> None:
    chain = search_chain([provider("brave", api_key=key_of("brave"))], NetworkPolicy())
    asked = (chain.providers[0].search(f"tea {number}", 1) for number in range(10))
    outcomes = await asyncio.gather(*asked, return_exceptions=True)
    await chain.close()

    failed = [one for one in outcomes if isinstance(one, BaseException)]
    assert all(isinstance(one, ToolRateLimitError) for one in failed), failed
    assert len(failed) < 10


@live
@pytest.mark.parametrize(("url", "said"), PAGES)
@pytest.mark.parametrize("name", ["direct", "jina"])
async def test_known_pages_are_read(name: str, url: str, said: str) -> None:
    chain = scrape_chain([provider(name, api_key=os.environ.get("TOOLPOST_JINA_KEY"))], NetworkPolicy())
    page = await chain.providers[0].scrape(url)
    await chain.close()

    assert said in f"{page.title} {page.content}"


@pytest.mark.skipif(
    find_spec("psycopg") is None or not os.environ.get("TOOLPOST_PGVECTOR_URL"),
    reason="install psycopg and set TOOLPOST_PGVECTOR_URL to a database with the extension vector and a table chunks",
)
async def test_pgvector_is_asked_for_the_nearest() -> None:
    link = provider(
        "pgvector",
        url=os.environ["TOOLPOST_PGVECTOR_URL"],
        index="chunks",
        embeddings={"url": os.environ["TOOLPOST_EMBEDDINGS_URL"], "model": os.environ["TOOLPOST_EMBEDDINGS_MODEL"]},
    )
    chain = retrieve_chain([link], NetworkPolicy())
    found = await chain.providers[0].retrieve("tea", Filters(limit=3))
    await chain.close()

    scores = [chunk["score"] or 0 for chunk in found.chunks]
    assert scores == sorted(scores, reverse=True)
