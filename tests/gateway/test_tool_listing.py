"""Lists of tools for clients that show many: summaries, filters, facets, pages, and everything about one tool."""

import gzip
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, served
from toolpost import tool

RULES = [
    {"action": "deny", "tools": ["shop.close"], "reason": "the shop stays open"},
    {"action": "ask", "tags": ["money"], "approvals": {"answerers": ["acme:treasury"], "four_eyes": True}},
    {"action": "allow", "tools": ["shop.*"]},
]


def named(name: str, *tags: str, effects: Any = "read", destructive: bool = False) -> Any:
    @tool(name=name, side_effects=effects, destructive=destructive, tags=list(tags))
    async def work(order: str = "") -> str:
        """Handle an order of the shop."""
        return order

    return work


TOOLS = [
    named("shop.list", "orders"),
    named("shop.refund", "orders", "money", effects="external", destructive=True),
    named("shop.pay", "money", effects="external"),
    named("shop.close", effects="write", destructive=True),
]


@pytest.fixture
async def gate(tmp_path: Path) -> AsyncIterator[Served]:
    async with served(tmp_path / "data", TOOLS, policy=RULES, collections={"cash": ["tag:money"]}) as gate:
        yield gate


async def listed(gate: Served, **query: Any) -> Any:
    return (await gate.http.get("/api/v1/tools", params={"view": "summary", **query})).json()


def names(answer: Any) -> list[str]:
    return [one["name"] for one in answer["items"]]


async def test_a_summary_has_what_a_row_shows_and_no_schemas(gate: Served) -> None:
    refund = next(one for one in (await listed(gate))["items"] if one["name"] == "shop.refund")

    assert refund == {
        "name": "shop.refund",
        "description": "Handle an order of the shop.",
        "source": "",
        "category": "custom",
        "side_effects": "external",
        "destructive": True,
        "tags": ["orders", "money"],
        "deprecated": False,
        "held": False,
        "verdict": "ask",
    }


@pytest.mark.parametrize(
    ("text", "found"),
    [("refu", ["shop.refund"]), ("OP.P", ["shop.pay"]), ("nothing", []), ("shop refund", ["shop.refund"])],
)
async def test_a_word_that_is_not_typed_to_its_end_finds_the_names_that_contain_it(
    gate: Served, text: str, found: list[str]
) -> None:
    assert names(await listed(gate, q=text))[:1] == found


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ({"verdict": "deny"}, ["shop.close"]),
        ({"verdict": "ask", "tag": "orders"}, ["shop.refund"]),
        ({"destructive": "no", "sort": "name"}, ["shop.list", "shop.pay"]),
        ({"side_effects": "read"}, ["shop.list"]),
        ({"held": "yes"}, []),
        ({"q": "order shop", "tag": "money", "sort": "name"}, ["shop.pay", "shop.refund"]),
        ({"collection": "cash", "sort": "name"}, ["shop.pay", "shop.refund"]),
    ],
)
async def test_filters_apply_to_lists_and_to_searches(gate: Served, query: Any, found: list[str]) -> None:
    answer = await listed(gate, **query)

    assert names(answer) == found
    assert answer["total"] == len(found)


async def test_facets_count_without_the_filter_of_their_own_property(gate: Served) -> None:
    answer = await listed(gate, q="order", tag="money", side_effects="external", facets="tag,side_effects,verdict")

    assert sorted(names(answer)) == ["shop.pay", "shop.refund"]
    assert answer["facets"]["tag"] == {"money": 2, "orders": 1}
    assert answer["facets"]["side_effects"] == {"external": 2}
    assert answer["facets"]["verdict"] == {"ask": 2}
    assert (await listed(gate, tag="orders", facets="tag"))["facets"]["tag"] == {"orders": 2, "money": 2}


@pytest.mark.parametrize("query", [{}, {"q": "order"}, {"sort": "name"}, {"sort": "calls"}])
async def test_pages_have_each_tool_once(gate: Served, query: Any) -> None:
    found: list[str] = []
    page: Any = {"next": None}
    while not found or page["next"]:
        cursor = {"cursor": page["next"]} if page["next"] else {}
        page = await listed(gate, limit=1, **query, **cursor)
        found += names(page)
        assert page["total"] >= 4

    assert {"shop.list", "shop.refund", "shop.pay", "shop.close"} <= set(found)
    assert len(found) == len(set(found)) == page["total"]


async def test_only_summaries_have_long_pages(gate: Served) -> None:
    refused = await gate.http.get("/api/v1/tools", params={"limit": 501})

    assert refused.status_code == 400
    assert "view=summary" in refused.json()["detail"]
    assert (await listed(gate, limit=20_000))["next"] is None


async def test_the_etag_does_not_depend_on_how_long_it_took(gate: Served) -> None:
    first = await gate.http.get("/api/v1/tools", params={"view": "summary"})
    again = await gate.http.get(
        "/api/v1/tools", params={"view": "summary"}, headers={"If-None-Match": first.headers["etag"]}
    )

    assert again.status_code == 304


async def test_one_tool_has_its_verdict_definitions_and_counts(gate: Served) -> None:
    await gate.http.post("/api/v1/tools/shop.list", json={"order": "1"})
    shown = (await gate.http.get("/api/v1/tools/shop.refund")).json()
    counted = (await gate.http.get("/api/v1/tools/shop.list")).json()

    assert shown["verdict"] == {
        "action": "ask",
        "reason": "a policy rule says ask",
        "rule": 2,
        "answerers": ["acme:treasury"],
        "four_eyes": True,
    }
    assert (shown["said_by"], shown["held"], shown["pinned_hash"], shown["origin"]) == ("code", None, None, None)
    assert shown["model_name"] == "shop__refund"
    assert shown["definitions"]["openai"]["function"]["name"] == "shop__refund"
    assert shown["definitions"]["anthropic"]["input_schema"] == shown["input_schema"]
    assert shown["definitions"]["mcp"]["annotations"]["destructiveHint"] is True
    assert shown["definitions"]["tokens"] > 10
    assert shown["definitions"]["tokenizer"] == "estimate"
    assert (counted["stats"]["count"], counted["stats"]["failures"]) == (1, 0)


@pytest.mark.req("FRAME-08")
@pytest.mark.parametrize("view", ["full", "summary"])
async def test_a_list_counts_the_tokens_of_all_definitions(gate: Served, view: str) -> None:
    listed = (await gate.http.get("/api/v1/tools", params={"view": view, "tokens": "yes"})).json()
    page = (await gate.http.get("/api/v1/tools", params={"view": view, "tokens": "yes", "limit": 1})).json()
    plain = (await gate.http.get("/api/v1/tools", params={"view": view})).json()

    assert listed["tokens"] == page["tokens"] == sum(tool["tokens"] for tool in listed["items"]) > 10
    assert listed["tokenizer"] == "estimate"
    assert "tokens" not in {*plain, *plain["items"][0]}


async def test_collections_and_tags_are_counted(gate: Served) -> None:
    collections = (await gate.http.get("/api/v1/collections")).json()
    tags = {one["tag"]: one["tools"] for one in (await gate.http.get("/api/v1/tags")).json()}

    assert {"name": "cash", "members": ["tag:money"], "tools": 2} in collections
    assert (tags["money"], tags["orders"]) == (2, 2)


@pytest.mark.req("WEB-17")
async def test_a_long_list_is_small_when_compressed(tmp_path: Path) -> None:
    tools = [named(f"many.tool_{number}", f"tag_{number % 7}") for number in range(2000)]
    async with (
        served(tmp_path / "data", tools) as gate,
        gate.http.stream(
            "GET",
            "/api/v1/tools",
            params={"view": "summary", "limit": 20_000, "facets": "source,tag,side_effects"},
            headers={"Accept-Encoding": "gzip"},
        ) as answer,
    ):
        body = b"".join([part async for part in answer.aiter_raw()])

    assert len(body) < 100_000
    assert len(gzip.decompress(body)) > 200_000
