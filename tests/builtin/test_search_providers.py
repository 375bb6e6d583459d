"""Search engines, each against answers of the shapes that it has: results, none, refusals, and what is no answer."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from types import MappingProxyType
from typing import Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.builtin.caller import Caller
from tests.builtin.pages import allowed, as_html, as_json, provider
from tests.builtin.recorded import KEY, ODD, TOO_LARGE, kept, recorded
from tests.wire.site import Site, reply
from toolpost.builtin.providers.factory import build_search_chain
from toolpost.builtin.web_tools import web_search_tools

pytestmark = pytest.mark.programs


class Engine(NamedTuple):
    name: str
    method: str
    path: str
    key_header: str | None
    key: str | None
    options: Mapping[str, Any] = MappingProxyType({})


ENGINES = [
    Engine(
        "brave",
        "GET",
        "/web/search?q=tea+%26+pots&text_decorations=false&count=2",
        "x-subscription-token",
        KEY,
    ),
    Engine("tavily", "POST", "/search", "authorization", f"Bearer {KEY}"),
    Engine("google", "GET", "/?cx=e1&q=tea+%26+pots&num=2", "x-goog-api-key", KEY, {"engine": "e1"}),
    Engine("bing", "GET", "/search?q=tea+%26+pots&count=2", "ocp-apim-subscription-key", KEY),
    Engine("jina", "POST", "/", "authorization", f"Bearer {KEY}"),
    Engine("duckduckgo", "GET", "/?q=tea+%26+pots", None, None),
]
BY_NAME = {engine.name: engine for engine in ENGINES}
ANY = pytest.mark.parametrize("engine", ENGINES, ids=lambda engine: engine.name)


@asynccontextmanager
async def asked(engine: Engine, answer: bytes, *, query: str = "") -> AsyncGenerator[tuple[Caller, Site]]:
    """Whoever asks an engine that always answers so."""
    async with Site(answer=answer) as there:
        url = there.url + ("/" if engine.name in ("google", "duckduckgo") else "") + query
        chain = build_search_chain([provider(engine.name, api_key=KEY, url=url, **engine.options)], allowed())
        try:
            yield Caller(web_search_tools(chain)), there
        finally:
            await chain.close()


@ANY
@pytest.mark.req("PNET-04", "PNET-05", "NPRV-02")
async def test_an_engine_is_asked_its_way_and_read_into_the_same_results(engine: Engine) -> None:
    async with asked(engine, recorded(f"{engine.name}/found")) as (caller, there):
        found = await caller.do("web_search", query="tea & pots", limit=2)

    assert [(one["title"], one["url"], one["content"]) for one in found["results"]] == [
        ("Tea & time", "https://tea.example/", "All about tea, the leaf that wasn't picked"),
        ("Pots", "https://pots.example/", "Pots"),
    ]
    assert (found["provider"], found["total_results"]) == (engine.name, 2)
    assert (there.last.method, there.last.path) == (engine.method, engine.path)
    if engine.key_header:
        assert there.last.all(engine.key_header) == [engine.key]
    assert KEY not in there.last.path


@ANY
async def test_finding_nothing_is_a_result(engine: Engine) -> None:
    async with asked(engine, recorded(f"{engine.name}/nothing")) as (caller, _):
        assert (await caller.do("web_search", query="tea"))["results"] == []


REFUSALS = {
    "wrong_key": ("auth_required", False),
    "wrong_request": ("client_error", False),
    "not_allowed": ("auth_required", False),
    "too_fast": ("rate_limited", True),
    "challenge": ("challenged", True),
}
USED_UP = {"brave": "rate_limited", "tavily": "client_error", "google": "rate_limited", "bing": "rate_limited"}


@pytest.mark.parametrize(
    ("name", "case"),
    [(engine.name, case) for engine in ENGINES for case in kept(engine.name) if case in REFUSALS],
)
async def test_a_refusal_is_distinguished_from_the_others_and_without_the_key(name: str, case: str) -> None:
    async with asked(BY_NAME[name], recorded(f"{name}/{case}")) as (caller, _):
        error = await caller.refused("web_search", query="tea")

    assert (error["error_code"], error["is_retryable"]) == REFUSALS[case]
    assert name in error["message"]
    assert KEY not in json.dumps(error)
    if case == "wrong_key":
        assert f"Check the key of {name} in the configuration" in error["message"]


@pytest.mark.parametrize("name", sorted(USED_UP))
async def test_a_plan_that_is_used_up_is_no_wrong_key(name: str) -> None:
    async with asked(BY_NAME[name], recorded(f"{name}/used_up")) as (caller, _):
        error = await caller.refused("web_search", query="tea")

    assert error["error_code"] == USED_UP[name]
    assert "Check the key" not in error["message"]


@pytest.mark.parametrize(
    ("case", "wait"),
    [
        ("tavily/too_fast", 7),
        ("bing/too_fast", 1),
        ("jina/too_fast", 20),
        ("brave/too_fast", 1),
        ("brave/used_up", 1209600),
        ("bing/used_up", 86400),
        ("google/too_fast", 1),
    ],
)
async def test_a_limit_says_how_long_to_wait(case: str, wait: int) -> None:
    async with asked(BY_NAME[case.partition("/")[0]], recorded(case)) as (caller, _):
        error = await caller.refused("web_search", query="tea")

    assert error["retry_after_seconds"] == wait


@ANY
@pytest.mark.parametrize("odd", sorted(ODD))
async def test_what_is_no_answer_is_an_error_that_names_the_engine(engine: Engine, odd: str) -> None:
    async with asked(engine, ODD[odd], query="?note=canary-in-the-address") as (caller, _):
        error = await caller.refused("web_search", query="tea")

    told_as_such = odd in ("an error", "a status") and engine.name != "duckduckgo"
    assert error["error_code"] == ("server_error" if told_as_such else "answer_unreadable")
    assert error["message"].startswith(f"{engine.name} answered ")
    assert KEY not in json.dumps(error)
    assert "canary-in-the-address" not in json.dumps(error)


@ANY
async def test_an_answer_of_more_than_five_megabytes_is_not_read(engine: Engine) -> None:
    async with asked(engine, TOO_LARGE) as (caller, _):
        error = await caller.refused("web_search", query="tea")

    assert "5,242,880 bytes" in error["message"]
    assert error["is_retryable"] is False


@ANY
@pytest.mark.parametrize("status", [500, 502, 503])
async def test_an_engine_that_fails_may_be_asked_again(engine: Engine, status: int) -> None:
    async with asked(engine, reply(status, b"oops")) as (caller, _):
        error = await caller.refused("web_search", query="tea")

    assert (error["status_code"], error["is_retryable"]) == (status, True)


@pytest.mark.parametrize("name", ["brave", "tavily", "google", "bing", "jina"])
async def test_an_engine_without_its_key_is_not_asked(name: str) -> None:
    engine = {"engine": "e1"} if name == "google" else {}
    chain = build_search_chain([provider(name, **engine)], allowed())

    error = await Caller(web_search_tools(chain)).refused("web_search", query="tea")

    assert error["error_code"] == "key_missing"
    assert "apiKey" in error["message"]


@pytest.mark.parametrize(("name", "words"), [("brave", 50), ("tavily", 80)])
async def test_a_question_is_cut_to_what_the_engine_takes(name: str, words: int) -> None:
    async with asked(BY_NAME[name], recorded(f"{name}/found")) as (caller, there):
        found = await caller.do("web_search", query="four " * 300)

    sent = there.last.body or json.dumps({"query": parse_qs(urlsplit(there.last.path).query)["q"][0]}).encode()
    assert json.loads(sent)["query"].split() == ["four"] * words
    assert found["query"] == "four " * 300


async def test_half_a_character_in_a_question_stops_no_search() -> None:
    async with Site(answer=recorded("brave/found")) as there:
        chain = build_search_chain([provider("brave", api_key=KEY, url=there.url)], allowed())
        found = await chain.providers[0].search("tea \ud83d", 2)
        await chain.close()

    assert len(found.results) == 2
    assert "q=tea+%3F" in there.last.path


async def test_numbers_that_are_none_are_no_scores() -> None:
    page = '{"title": "Tea", "url": "https://tea.example/", "content": "", "score": %s}'
    scores = ["1e999", "1" + "0" * 400, "true", '"0.5"', "0.5"]
    body = f'{{"results": [{", ".join(page % score for score in scores)}]}}'
    async with asked(BY_NAME["tavily"], reply(200, body.encode())) as (caller, _):
        found = await caller.do("web_search", query="tea")

    assert [one["score"] for one in found["results"]] == [None, None, None, None, 0.5]


async def test_words_of_the_search_are_not_taken_for_a_challenge() -> None:
    async with asked(BY_NAME["duckduckgo"], recorded("duckduckgo/found")) as (caller, _):
        found = await caller.do("web_search", query="anomaly-modal no-results")

    assert found["total_results"] == 2


async def test_a_page_of_duckduckgo_without_results_is_no_empty_list() -> None:
    changed = as_html('<input value="no-results anomaly-modal"><main>Something new</main>')
    async with asked(BY_NAME["duckduckgo"], changed) as (caller, _):
        error = await caller.refused("web_search", query="no-results")

    assert error["error_code"] == "answer_unreadable"


async def test_a_key_with_a_line_end_is_sent_without_it() -> None:
    async with Site(answer=recorded("brave/found")) as there:
        chain = build_search_chain([provider("brave", api_key=f"{KEY}\n", url=there.url)], allowed())
        await Caller(web_search_tools(chain)).do("web_search", query="tea")
        await chain.close()

    assert there.last.all("x-subscription-token") == [KEY]


@pytest.mark.req("NINJ-03")
async def test_results_are_numbered_sources_without_anything_hidden() -> None:
    evil = {"results": [{"title": "A\u200b\nB", "url": "https://a.example/", "content": "x\u202ey" * 600}]}
    async with asked(BY_NAME["tavily"], as_json(evil)) as (caller, _):
        result = await caller.ask("web_search", {"query": "tea", "maxResults": 3})

    assert result.result["results"][0]["title"] == "A B"
    assert result.result["results"][0]["content"] == "xy" * 500 + "…"
    assert result.content_text is not None
    assert "[1] A B <https://a.example/>\nxyxy" in result.content_text


@pytest.mark.req("PNET-05")
def test_ten_results_are_asked_for_unless_the_configuration_says_otherwise() -> None:
    chain = build_search_chain([provider("duckduckgo")], allowed())

    defaults = [
        Caller(tools).registry.find("web_search").shown_schema["properties"]["limit"]["default"]
        for tools in (web_search_tools(chain), web_search_tools(chain, max_results=5))
    ]

    assert defaults == [10, 5]
