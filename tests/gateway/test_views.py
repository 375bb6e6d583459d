"""Views: clients see the tools of a collection, tag, source or pattern, whole or behind a search, and no others."""

import asyncio
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import pytest
from mcp import MCPError
from mcp.client.client import Client
from mcp.client.subscriptions import listen

from toolpost import ConfigError, Settings, Tool, Toolbox, tool
from toolpost.gateway.mcp.server import McpServer
from toolpost.gateway.views import default_view, make_views

Era = Literal["legacy", "auto"]
ERAS: list[Era] = ["legacy", "auto"]
ME, BOSS = "acme:ann", "acme:bob"
OWN = {"pending_status", "pending_wait"}
THREE = {"search_tools", "describe_tool", "call_tool"}
refunded: list[str] = []


@tool(name="shop.refund_payment", side_effects="external", destructive=True, tags=["money"])
async def refund_payment(charge: str) -> dict[str, str]:
    """Give a customer the money of a charge back."""
    refunded.append(charge)
    return {"refunded": charge}


@tool(name="shop.list_charges", side_effects="read")
async def list_charges(limit: int = 10) -> list[str]:
    """List the charges of today."""
    return ["ch_1", "ch_2"][:limit]


@tool(name="office.water_plants", side_effects="pure", tags=["green"])
async def water_plants() -> str:
    """Water the plants."""
    return "done"


VIEWS: dict[str, Any] = {
    "finder": {"show": "search"},
    "shop": {"tools": ["shop.*"]},
    "shop_finder": {"tools": ["shop.*"], "show": "search"},
    "green": {"tags": ["green"]},
    "named": {"collection": "front"},
    "nowhere": {"sources": ["github"]},
    "bosses": {"principals": ["acme:b*"]},
}


@asynccontextmanager
async def gateway(
    view: str, *, user: str = ME, tools: tuple[Tool, ...] = (), **changes: Any
) -> AsyncGenerator[tuple[Toolbox, McpServer]]:
    given: dict[str, Any] = {
        "data_dir": None,
        "views": VIEWS,
        "collections": {"front": ["*.list_*", "tag:green"]},
        **changes,
    }
    shown = [refund_payment, list_charges, water_plants, *tools]
    async with Toolbox(tools=shown, settings=given) as box:
        server = McpServer(box, principal=lambda _ctx: user, view=default_view(box, view))
        async with server.publishing():
            yield box, server


async def names(client: Client) -> set[str]:
    listed = [one.name for one in (await client.list_tools(cache_mode="refresh")).tools]
    assert len(set(listed)) == len(listed)
    return set(listed) - OWN


@pytest.mark.parametrize(
    ("view", "seen"),
    [
        ("all", {"shop__refund_payment", "shop__list_charges", "office__water_plants"}),
        ("search", THREE),
        ("shop_finder", THREE),
        ("shop", {"shop__refund_payment", "shop__list_charges"}),
        ("green", {"office__water_plants"}),
        ("named", {"shop__list_charges", "office__water_plants"}),
        ("nowhere", set[str]()),
        ("bosses", set[str]()),
    ],
)
async def test_a_client_sees_the_tools_of_its_view(view: str, seen: set[str]) -> None:
    async with gateway(view) as (_, gate), Client(gate.server) as client:
        assert await names(client) == seen


async def refusal(client: Client, name: str) -> str:
    with pytest.raises(MCPError) as refused:
        await client.call_tool(name, {})
    return str(refused.value).replace(name, "NAME")


@pytest.mark.parametrize("era", ERAS)
async def test_a_tool_outside_the_view_answers_as_one_that_does_not_exist(era: Era) -> None:
    async with gateway("shop") as (_, gate), Client(gate.server, mode=era) as client:
        inside = await client.call_tool("shop__list_charges", {"limit": 1})
        outside = [await refusal(client, name) for name in ("office.water_plants", "office__water_plants")]
        missing = [await refusal(client, name) for name in ("office.paint_plants", "office__paint_plants")]
    async with gateway("bosses") as (_, gate), Client(gate.server, mode=era) as client:
        outside.append(await refusal(client, "shop__list_charges"))
        missing.append(await refusal(client, "shop__lost_charges"))

    assert inside.structured_content == {"result": ["ch_1"]}
    assert outside == missing


@pytest.mark.parametrize("era", ERAS)
async def test_an_agent_finds_describes_and_calls_what_it_needs(era: Era) -> None:
    async with gateway("search") as (_, gate), Client(gate.server, mode=era) as client:
        found = await client.call_tool("search_tools", {"query": "charges of today"})
        told = await client.call_tool("describe_tool", {"name": "shop.list_charges"})
        done = await client.call_tool("call_tool", {"name": "shop.list_charges", "arguments": {"limit": 1}})
        wrong = await client.call_tool("call_tool", {"name": "shop.list_charges", "arguments": {"limit": "one"}})
        empty = await client.call_tool("search_tools", {})

    hits: Any = found.structured_content
    best: dict[str, Any] = hits["tools"][0]
    assert best["name"] == "shop.list_charges"
    assert best["input_schema"]["properties"]["limit"]["type"] == "integer"
    assert (told.structured_content or {})["output_schema"]["type"] == "array"
    assert (done.is_error, done.structured_content) == (False, {"result": ["ch_1"]})
    assert (wrong.is_error, "$.limit" in str(wrong.content)) == (True, True)
    assert (empty.is_error, "query" in str(empty.content)) == (True, True)


@pytest.mark.parametrize("era", ERAS)
async def test_what_a_view_leaves_out_is_neither_found_nor_described_nor_called_by_search(era: Era) -> None:
    async with gateway("shop_finder") as (_, gate), Client(gate.server, mode=era) as client:
        found = await client.call_tool("search_tools", {"query": "water the plants"})
        told = await client.call_tool("describe_tool", {"name": "office.water_plants"})
        called = await client.call_tool("call_tool", {"name": "office.water_plants"})
        missing = await client.call_tool("call_tool", {"name": "office.wash_plants"})

    assert "office" not in str(found.structured_content)
    assert (told.is_error, called.is_error) == (True, True)
    assert str(called.content) == str(missing.content).replace("wash", "water")


async def approve_when_asked(box: Toolbox) -> None:
    while not (waiting := await box.pending.list(by=BOSS)):
        await asyncio.sleep(0.01)
    await box.approve(waiting[0].id, by=BOSS)


async def test_a_call_through_a_search_passes_the_policy_and_completes_when_a_person_has_approved() -> None:
    refunded.clear()
    wanted = {"name": "shop.refund_payment", "arguments": {"charge": "ch_1"}}
    async with gateway("search") as (box, gate), Client(gate.server) as client:
        person = asyncio.create_task(approve_when_asked(box))
        result = await client.call_tool("call_tool", wanted)
        await person
        events = await box.events(user=ME)
    async with gateway("search", policy=[{"action": "deny"}]) as (_, gate), Client(gate.server) as client:
        denied = await client.call_tool("call_tool", wanted)

    assert (result.structured_content, refunded) == ({"refunded": "ch_1"}, ["ch_1"])
    assert "shop.refund_payment" in str(events[0].payload)
    assert denied.is_error


async def test_a_view_collects_no_calls_of_tools_that_it_leaves_out() -> None:
    async with gateway("all") as (box, gate), Client(gate.server, mode="legacy") as client:
        told = await client.call_tool("shop__refund_payment", {"charge": "ch_1"})
        pending = {"pending_id": (told.meta or {})["toolpost/pending_id"]}
        own = await client.call_tool("pending_status", pending)
        gate.show(make_views(box, "all")["green"])
        left_out = await client.call_tool("pending_status", pending)
        listed = await client.call_tool("pending_status", {})

    assert "waits for a person" in str(own.content)
    assert (left_out.is_error, "none of your calls is pending as" in str(left_out.content)) == (True, True)
    assert "none of your calls is pending" in str(listed.content)


async def test_clients_hear_of_a_change_only_if_their_view_changed() -> None:
    @tool(name="office.open_windows", side_effects="pure", tags=["green"])
    async def open_windows() -> str:
        """Open the windows."""
        return "open"

    heard: list[str] = []

    async def hear(client: Client, name: str) -> None:
        async with listen(client.session, tools_list_changed=True) as changes:
            listening[name].set()
            async for _change in changes:
                heard.append(name)
                return

    listening = {"shop": asyncio.Event(), "green": asyncio.Event()}
    async with gateway("shop") as (box, shop):
        green = McpServer(box, principal=lambda _ctx: ME, view=default_view(box, "green"))
        async with green.publishing(), Client(shop.server) as first, Client(green.server) as second:
            tasks = [asyncio.create_task(hear(first, "shop")), asyncio.create_task(hear(second, "green"))]
            await asyncio.gather(*(one.wait() for one in listening.values()))
            box.registry.register(open_windows)
            async with asyncio.timeout(10):
                await tasks[1]
            box.registry.unregister("shop.list_charges")
            async with asyncio.timeout(10):
                await tasks[0]
            seen = await names(first), await names(second)

    assert heard == ["green", "shop"]
    assert seen == ({"shop__refund_payment"}, {"office__water_plants", "office__open_windows"})


@tool(name="search_tools", side_effects="pure")
async def search_tools() -> str:
    """Search the shed for a hammer."""
    return "a hammer"


@tool(name="pending_status", side_effects="pure")
async def pending_status() -> str:
    """Tell how many letters wait."""
    return "three letters"


async def test_tools_that_are_named_like_those_of_the_gateway_are_listed_once_and_can_be_called() -> None:
    async with gateway("all", tools=(search_tools, pending_status)) as (box, gate), Client(gate.server) as client:
        await names(client)
        letters = await client.call_tool("pending_status", {})
        gate.show(make_views(box, "all")["search"])
        hammer = await client.call_tool("call_tool", {"name": "search_tools"})

    assert "three letters" in str(letters.content)
    assert "a hammer" in str(hammer.content)


def test_a_view_that_does_not_exist_is_named_with_those_that_do() -> None:
    with pytest.raises(ConfigError, match="must be all, search, shop"):
        Toolbox(settings={"views": {"shop": {}}, "view": "shp"})


async def test_a_collection_that_does_not_exist_is_said() -> None:
    with pytest.raises(ConfigError, match=r"views\.shop\.collection: no collection 'back'"):
        async with gateway("all", views={"shop": {"collection": "back"}}):
            pass


def test_whoever_is_kept_to_a_view_by_the_default_finds_no_view_of_all_tools() -> None:
    views = {"shop": {"tools": ["shop.*"]}}

    assert list(Settings.model_validate({"views": views}).all_views()) == ["all", "search", "shop"]
    assert list(Settings.model_validate({"views": views, "view": "shop"}).all_views()) == ["shop"]


@pytest.mark.programs
async def test_a_server_that_dies_during_a_list_leaves_the_list_whole_until_it_is_back(tmp_path: Path) -> None:
    command = f"{sys.executable} {Path(__file__).with_name('dying_server.py')} {tmp_path}"
    dying = {"name": "srv", "transport": "mcp", "connection": command, "trust": True, "required": True}
    seen: list[set[str]] = []
    async with gateway("all", sources=[dying], lock=None) as (_, gate), Client(gate.server) as client:
        before = await names(client)
        await client.call_tool("srv__grow", {})
        async with asyncio.timeout(60):
            while "srv__bloom" not in (listed := await names(client)):
                seen.append(listed)
                await client.call_tool("shop__list_charges", {})
                await asyncio.sleep(0.02)
        bloom = await client.call_tool("srv__bloom", {})

    assert {"srv__grow", "srv__rest", "shop__list_charges"} <= before
    assert all(listed == before for listed in seen)
    assert "bloom" in str(bloom.content)
