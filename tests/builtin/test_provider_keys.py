"""Keys of providers: they go to whom they are for, and show nowhere, whatever the other side says."""

import json
import logging
from typing import Any

import pytest

from tests.builtin.pages import as_json, provider
from tests.builtin.recorded import KEY
from tests.wire.site import Site, reply
from toolpost import Toolbox
from toolpost.builtin.providers.factory import build_retrieve_chain, build_scrape_chain, build_search_chain
from toolpost.configuration.settings import Settings
from toolpost.contracts.errors import ToolServerError
from toolpost.contracts.outcomes import Failed, Outcome, outcome_to_dict
from toolpost.wire.network import NetworkPolicy

URL_KEY = "canary-9876543210-in-the-address"
ENGINES = ["brave", "tavily", "google", "bing", "jina"]
NAMES = [*ENGINES, "opensearch"]


def tools_of(name: str, there: Site) -> tuple[str, dict[str, Any]]:
    """The tool that asks a provider, and its configuration; a second key stands in the address."""
    own = {"opensearch": {"index": "docs"}, "google": {"engine": "e1"}}.get(name, {})
    link = {"provider": name, "apiKey": KEY, "url": f"{there.url}/?key={URL_KEY}", **own}
    if name == "opensearch":
        return "retrieve", {"retrieval": {"chain": [link]}}
    return "web_search", {"webSearch": {"chain": [link]}}


async def told(name: str, there: Site, caplog: pytest.LogCaptureFixture) -> tuple[Outcome, str]:
    """The outcome of a question, and everything that anybody is told of it."""
    caplog.set_level(logging.DEBUG)
    tool, tools = tools_of(name, there)
    facts = {"data_dir": None, "policy": "exploratory", "builtins": [tool], "tools": tools}
    async with Toolbox(settings=Settings.model_validate(facts)) as box:
        outcome = await box.call(tool, {"query": "tea"}, run_id="r1", timeout_s=20)
        events = [(event.code, dict(event.payload)) for event in await box.events(run_id="r1")]
        problems = [*box.problems, *map(repr, box.report)]
    everything = [repr(outcome), json.dumps(outcome_to_dict(outcome)), repr(events), repr(problems), caplog.text]
    return outcome, "\n".join([*everything, getattr(outcome, "text", None) or ""])


def is_silent(text: str) -> bool:
    return KEY not in text and URL_KEY not in text


BAD = f"no such key: {KEY} (https://api.example/?key={URL_KEY})"
ANSWERS = {
    "401": reply(401, BAD.encode(), content_type="text/plain", www_authenticate=f'Bearer error="{KEY}"'),
    "403": reply(403, json.dumps({"error": {"message": BAD, "errors": [{"reason": "quotaExceeded"}]}}).encode()),
    "422": reply(422, json.dumps({"error": {"code": "SUBSCRIPTION_TOKEN_INVALID", "detail": BAD}}).encode()),
    "429": reply(429, json.dumps({"detail": {"error": BAD}}).encode(), retry_after="60"),
    "500": reply(500, f"<html><title>{BAD}</title></html>".encode(), content_type="text/html"),
    "an error as a success": as_json({"error": {"message": BAD}}),
    "something else": reply(200, BAD.encode(), content_type="text/plain"),
    "no list": as_json({"message": BAD}),
}


@pytest.mark.parametrize("case", sorted(ANSWERS))
@pytest.mark.parametrize("name", NAMES)
async def test_a_failure_does_not_show_the_key_that_the_other_side_repeats(
    name: str, case: str, caplog: pytest.LogCaptureFixture
) -> None:
    async with Site(answer=ANSWERS[case]) as there:
        outcome, everything = await told(name, there, caplog)

    assert isinstance(outcome, Failed)
    assert is_silent(everything)
    assert URL_KEY in there.last.path
    assert KEY in repr(there.last.headers)


@pytest.mark.parametrize("name", NAMES)
async def test_a_result_does_not_show_it_either(name: str, caplog: pytest.LogCaptureFixture) -> None:
    page = {"title": BAD, "name": BAD, "url": f"https://a.example/?key={URL_KEY}", "link": f"https://a.example/{KEY}"}
    page |= {"content": BAD, "description": BAD, "snippet": BAD}
    hit = {"_id": "1", "_score": 1.0, "_source": {"text": BAD, "url": BAD, KEY: BAD}}
    found = {"results": [page], "web": {"results": [page]}, "items": [page], "webPages": {"value": [page]}}
    async with Site(answer=as_json({**found, "data": [page], "hits": {"hits": [hit]}})) as there:
        outcome, everything = await told(name, there, caplog)

    assert outcome.status == "completed"
    assert is_silent(everything)
    assert "no such key: [redacted]" in everything


@pytest.mark.parametrize("name", NAMES)
async def test_a_redirect_takes_no_key_along_and_shows_none(name: str, caplog: pytest.LogCaptureFixture) -> None:
    async with Site(answer=as_json({})) as stranger, Site() as there:
        there.answer = reply(302, location=f"{stranger.url}/elsewhere?key={KEY}&more={URL_KEY}")
        outcome, everything = await told(name, there, caplog)

    assert isinstance(outcome, Failed)
    assert is_silent(everything)
    assert KEY not in repr([received.headers for received in stranger.requests])
    assert stranger.requests == []  # an address inside that nobody wrote down


@pytest.mark.parametrize("name", ["brave", "google", "bing"])
async def test_a_redirect_to_an_address_that_may_be_asked_goes_without_the_key(name: str) -> None:
    async with Site(answer=as_json({})) as stranger, Site() as there:
        there.answer = reply(302, location=f"{stranger.url}/elsewhere")
        facts = {"provider": name, "api_key": KEY, "url": there.url, "engine": "e1"}
        network = NetworkPolicy(allow_hosts=frozenset({f"127.0.0.1:{stranger.port}"}))
        chain = build_search_chain([provider(facts.pop("provider"), **facts)], network)
        with pytest.raises(ToolServerError, match="not a list of results"):
            await chain.providers[0].search("tea", 1)
        await chain.close()

    assert KEY in repr(there.last.headers)
    assert KEY not in repr(stranger.last)


@pytest.mark.parametrize("name", NAMES)
def test_no_provider_shows_its_key_or_its_address(name: str) -> None:
    own = {"opensearch": {"index": "docs"}, "google": {"engine": "e1"}}.get(name, {})
    link = provider(name, api_key=KEY, url=f"https://a.example/?key={URL_KEY}", **own)
    make = build_retrieve_chain if name == "opensearch" else build_search_chain
    readers = [build_scrape_chain([link], NetworkPolicy())] if name == "jina" else []

    shown = [repr(one) for chain in (make([link], NetworkPolicy()), *readers) for one in chain.providers]

    assert is_silent(" ".join(shown))
    assert KEY not in repr(link)
