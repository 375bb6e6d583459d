"""Search engines, each against an answer of the shape that its documentation shows."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, NamedTuple

import pytest

from tests.builtin.caller import Caller
from tests.builtin.pages import allowed, as_html, as_json, provider, site
from tests.wire.site import reply
from toolpost.builtin.providers.making import search_chain
from toolpost.builtin.web_searching import search_tools

BRAVE = {
    "type": "search",
    "query": {"original": "tea", "more_results_available": True},
    "web": {
        "type": "search",
        "results": [
            {
                "title": "Tea",
                "url": "https://tea.example/",
                "description": "All about <strong>tea</strong>",
                "age": "2 days ago",
                "profile": {"name": "Tea"},
            },
            {"title": "Pots", "url": "https://pots.example/", "description": "Pots"},
        ],
    },
}
TAVILY = {
    "query": "tea",
    "answer": None,
    "images": [],
    "results": [
        {"title": "Tea", "url": "https://tea.example/", "content": "All about tea", "score": 0.97, "raw_content": None},
        {"title": "Pots", "url": "https://pots.example/", "content": "Pots", "score": 0.5, "raw_content": None},
    ],
    "response_time": 1.2,
}
GOOGLE = {
    "kind": "customsearch#search",
    "searchInformation": {"totalResults": "2"},
    "items": [
        {"title": "Tea", "link": "https://tea.example/", "displayLink": "tea.example", "snippet": "All about tea"},
        {"title": "Pots", "link": "https://pots.example/", "displayLink": "pots.example", "snippet": "Pots"},
    ],
}
BING = {
    "_type": "SearchResponse",
    "queryContext": {"originalQuery": "tea"},
    "webPages": {
        "totalEstimatedMatches": 2,
        "value": [
            {"id": "#0", "name": "Tea", "url": "https://tea.example/", "snippet": "All about tea"},
            {"id": "#1", "name": "Pots", "url": "https://pots.example/", "snippet": "Pots"},
        ],
    },
}
JINA = {
    "code": 200,
    "status": 20000,
    "data": [
        {"title": "Tea", "url": "https://tea.example/", "description": "All about tea", "content": ""},
        {"title": "Pots", "url": "https://pots.example/", "description": "Pots", "content": ""},
    ],
}
DUCKDUCKGO = """<html><body><div class="serp__results"><div id="links" class="results">
<div class="result results_links result--ad"><h2><a class="result__a" href="https://ad.example/">Buy</a></h2></div>
<div class="result results_links results_links_deep web-result"><div class="links_main links_deep result__body">
<h2 class="result__title"><a rel="nofollow" class="result__a"
 href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftea.example%2F&amp;rut=abc">Tea</a></h2>
<a class="result__snippet" href="//duckduckgo.com/l/?uddg=https%3A%2F%2Ftea.example%2F">All about <b>tea</b></a>
</div></div>
<div class="result results_links"><h2 class="result__title"><a class="result__a" href="https://pots.example/">Pots</a>
</h2><a class="result__snippet">Pots</a></div></div></div></body></html>"""


KEY = "k3y-of-mine-0123"


class Engine(NamedTuple):
    name: str
    answer: bytes
    method: str
    path: str
    key_header: str | None
    key: str | None
    options: Mapping[str, Any] = MappingProxyType({})


ENGINES = [
    Engine("brave", as_json(BRAVE), "GET", "/web/search?q=tea+%26+pots&count=2", "x-subscription-token", KEY),
    Engine("tavily", as_json(TAVILY), "POST", "/search", "authorization", f"Bearer {KEY}"),
    Engine(
        "google",
        as_json(GOOGLE),
        "GET",
        "/?cx=e1&q=tea+%26+pots&num=2",
        "x-goog-api-key",
        KEY,
        {"engine": "e1"},
    ),
    Engine("bing", as_json(BING), "GET", "/search?q=tea+%26+pots&count=2", "ocp-apim-subscription-key", KEY),
    Engine("jina", as_json(JINA), "POST", "/", "authorization", f"Bearer {KEY}"),
    Engine("duckduckgo", as_html(DUCKDUCKGO), "GET", "/?q=tea+%26+pots", None, None),
]
ANY = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


async def asked(engine: Engine, answer: bytes, use: Callable[[Caller, Any], Any]) -> Any:
    """What comes of it when the engine answers so."""
    path = engine.path.partition("?")[0]
    async with site({path: answer}) as there:
        url = there.url + ("/" if engine.name in ("google", "duckduckgo") else "")
        link = provider(engine.name, api_key=KEY, url=url, **engine.options)
        chain = search_chain([link], allowed())
        try:
            return await use(Caller(search_tools(chain)), there)
        finally:
            await chain.close()


@ANY
@pytest.mark.req("PNET-04", "PNET-05", "NPRV-01", "TEST-08", "MISC-20")
async def test_an_engine_is_asked_its_way_and_read_into_the_same_results(engine: Engine) -> None:
    async def use(caller: Caller, there: Any) -> None:
        found = await caller.do("web_search", query="tea & pots", limit=2)

        assert [one["title"] for one in found["results"]] == ["Tea", "Pots"]
        assert [one["url"] for one in found["results"]] == ["https://tea.example/", "https://pots.example/"]
        assert found["results"][1]["content"] == "Pots"
        assert (found["provider"], found["total_results"]) == (engine.name, 2)
        assert (there.last.method, there.last.path) == (engine.method, engine.path)
        if engine.key_header:
            assert there.last.all(engine.key_header) == [engine.key]
        assert KEY not in there.last.path

    await asked(engine, engine.answer, use)


@ANY
@pytest.mark.parametrize(
    ("answer", "code"),
    [
        (reply(429, b"slow down", retry_after="7", content_type="text/plain"), "rate_limited"),
        (reply(401, b'{"message": "bad key " + KEY.encode() + b""}', content_type="application/json"), "auth_required"),
        (reply(500, b"oops"), "server_error"),
        (as_html("<html><body>Sign in</body></html>"), "answer_unreadable"),
        (reply(200, b""), "answer_unreadable"),
    ],
    ids=["429", "401", "500", "a page", "nothing"],
)
async def test_an_engine_that_does_not_answer_is_an_error_without_its_key(
    engine: Engine, answer: bytes, code: str
) -> None:
    async def use(caller: Caller, _: Any) -> None:
        error = await caller.refused("web_search", query="tea")

        assert error["error_code"] == code
        assert engine.name in error["message"]
        assert engine.key is None or KEY not in error["message"]
        if code == "rate_limited":
            assert error["retry_after_seconds"] == 7

    await asked(engine, answer, use)


@ANY
async def test_finding_nothing_is_a_result(engine: Engine) -> None:
    empty = as_html('<div class="no-results">No results.</div>') if engine.name == "duckduckgo" else as_json({})

    async def use(caller: Caller, _: Any) -> None:
        assert (await caller.do("web_search", query="tea"))["results"] == []

    await asked(engine, empty, use)


@pytest.mark.parametrize("name", ["brave", "tavily", "google", "bing", "jina"])
async def test_an_engine_without_its_key_is_not_asked(name: str) -> None:
    engine = {"engine": "e1"} if name == "google" else {}
    chain = search_chain([provider(name, **engine)], allowed())

    error = await Caller(search_tools(chain)).refused("web_search", query="tea")

    assert error["error_code"] == "key_missing"
    assert "apiKey" in error["message"]


async def test_duckduckgo_asking_for_a_person_is_a_limit() -> None:
    async def use(caller: Caller, _: Any) -> None:
        error = await caller.refused("web_search", query="tea")
        assert (error["error_code"], error["is_retryable"]) == ("challenged", True)

    await asked(ENGINES[-1], as_html('<form id="challenge"><div class="anomaly-modal">', 202), use)


@pytest.mark.req("NINJ-03")
async def test_results_are_numbered_sources_without_anything_hidden() -> None:
    evil = {"results": [{"title": "A\u200b\nB", "url": "https://a.example/", "content": "x\u202ey" * 600}]}

    async def use(caller: Caller, _: Any) -> None:
        result = await caller.ask("web_search", {"query": "tea", "maxResults": 3})
        assert result.result["results"][0]["title"] == "A B"
        assert result.result["results"][0]["content"] == "xy" * 500 + "…"
        assert result.content_text is not None
        assert "[1] A B <https://a.example/>\nxyxy" in result.content_text

    await asked(ENGINES[1], as_json(evil), use)


@pytest.mark.req("PNET-05")
def test_ten_results_are_asked_for_unless_the_configuration_says_otherwise() -> None:
    chain = search_chain([provider("duckduckgo")], allowed())

    defaults = [
        Caller(tools).registry.find("web_search").shown_schema["properties"]["limit"]["default"]
        for tools in (search_tools(chain), search_tools(chain, max_results=5))
    ]

    assert defaults == [10, 5]
