"""Large results are references with a preview on every surface, and published schemas admit them."""

import json
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Literal

import httpx2
import pytest
from fastmcp import Client as FastMCPClient
from fastmcp.client.transports import StreamableHttpTransport
from jsonschema import Draft202012Validator
from mcp.client.client import Client
from mcp.client.streamable_http import streamable_http_client
from pydantic import BaseModel

from tests.gateway.mcp.test_tasks import request
from tests.gateway.serving import Served, served
from toolpost import ToolContext, tool

Era = Literal["auto", "legacy"]
NUMBERS = list(range(40_000))


class Node(BaseModel):
    """A tree."""

    name: str
    children: list["Node"] = []


@tool(side_effects="pure")
async def numbers(count: int) -> list[int]:
    """Count."""
    return NUMBERS[:count]


@tool(side_effects="pure")
async def tree(width: int) -> Node:
    """Return a tree."""
    return Node(name="root", children=[Node(name=f"leaf {number}") for number in range(width)])


@tool(side_effects="pure", output_schema={"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["n"]})
async def chain(length: int) -> Any:
    """Return objects within objects, by a schema that refers to itself."""
    link: dict[str, Any] = {"n": 0}
    for number in range(length):
        link = {"n": number, "next": link}
    return {**link, "text": "x" * length * 1000}


@tool(side_effects="pure")
async def total(a: int) -> int:
    """Return a number."""
    return a


@tool(side_effects="pure")
async def receipt(ctx: ToolContext) -> dict[str, str]:
    """Keep a file and return its id."""
    return {"artifact_id": await ctx.save_artifact(b"paid", media_type="text/plain")}


@asynccontextmanager
async def gateway(folder: Path, **view: Any) -> AsyncGenerator[Served]:
    tools = [numbers, tree, chain, total, receipt]
    views = {"mine": view} if view else {}
    async with served(folder / "data", tools, views=views, view="mine" if view else "all") as gate:
        yield gate


@asynccontextmanager
async def mcp_client(gate: Served, era: Era) -> AsyncGenerator[Client]:
    async with (
        httpx2.AsyncClient(headers=gate.http.headers, timeout=60, trust_env=False) as http,
        Client(streamable_http_client(f"{gate.url}/mcp", http_client=http), mode=era) as client,
    ):
        await client.list_tools()  # by which it knows the schemas that results must match
        yield client


@pytest.mark.parametrize("era", ["auto", "legacy"])
@pytest.mark.parametrize(("name", "given"), [("numbers", {"count": 40_000}), ("tree", {"width": 5000})])
async def test_the_structured_content_of_a_large_result_is_a_reference_that_can_be_read(
    tmp_path: Path, era: Era, name: str, given: dict[str, int]
) -> None:
    async with gateway(tmp_path) as gate, mcp_client(gate, era) as client:
        result = await client.call_tool(name, given)
        reference = result.structured_content or {}
        [whole] = (await client.read_resource(reference["uri"])).contents

    assert {"artifact_id", "uri", "media_type", "size", "preview"} <= reference.keys()
    assert len(json.dumps(reference)) < 2000
    text = whole.model_dump()["text"]
    assert len(text) == reference["size"]
    assert text.startswith(reference["preview"])


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_small_result_is_whole_and_matches_the_same_schema(tmp_path: Path, era: Era) -> None:
    async with gateway(tmp_path) as gate, mcp_client(gate, era) as client:
        listed = {one.name: one.output_schema or {} for one in (await client.list_tools()).tools}
        few = await client.call_tool("numbers", {"count": 3})
        small = await client.call_tool("tree", {"width": 2})
        links = await client.call_tool("chain", {"length": 3})

    assert few.structured_content == {"result": [0, 1, 2]}
    assert [child["name"] for child in (small.structured_content or {})["children"]] == ["leaf 0", "leaf 1"]
    assert (links.structured_content or {})["next"]["n"] == 1
    assert all(listed[name]["type"] == "object" for name in ("numbers", "tree", "chain"))
    assert [len(listed[name]["anyOf"]) for name in ("numbers", "tree", "chain")] == [2, 2, 2]
    assert "anyOf" not in listed["total"]  # a number is never large


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("numbers", {"result": ["one"]}),
        ("tree", {"name": "root", "children": [{"name": 1}]}),
        ("chain", {"n": 1, "next": {"next": {}}}),
        ("tree", {"artifact_id": "art_1"}),
    ],
)
async def test_the_published_schema_refuses_what_is_neither_a_result_nor_a_reference(
    tmp_path: Path, name: str, wrong: Any
) -> None:
    async with gateway(tmp_path) as gate, mcp_client(gate, "auto") as client:
        [schema] = [one.output_schema or {} for one in (await client.list_tools()).tools if one.name == name]

    Draft202012Validator.check_schema(schema)
    assert not Draft202012Validator(schema).is_valid(wrong)


async def test_fastmcp_takes_both(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate:
        headers = {"Authorization": gate.http.headers["Authorization"]}
        async with FastMCPClient(StreamableHttpTransport(f"{gate.url}/mcp", headers=headers)) as client:
            few = await client.call_tool("numbers", {"count": 3})
            many = await client.call_tool("numbers", {"count": 40_000})
            [whole] = await client.read_resource((many.structured_content or {})["uri"])

    assert few.data == {"result": [0, 1, 2]}
    assert len(json.dumps(many.data)) < 2000
    assert json.loads(whole.model_dump()["text"]) == NUMBERS


@pytest.mark.parametrize("era", ["auto", "legacy"])
async def test_a_view_can_send_large_results_whole(tmp_path: Path, era: Era) -> None:
    async with gateway(tmp_path, large_results="whole") as gate, mcp_client(gate, era) as client:
        schemas = [one.output_schema or {} for one in (await client.list_tools()).tools]
        many = await client.call_tool("numbers", {"count": 40_000})

    assert many.structured_content == {"result": NUMBERS}
    assert not any("anyOf" in schema for schema in schemas)


async def test_a_tools_own_result_that_names_an_artifact_stays_as_it_is(tmp_path: Path) -> None:
    async with gateway(tmp_path) as gate, mcp_client(gate, "auto") as client:
        result = await client.call_tool("receipt", {})

    assert (result.structured_content or {}).keys() == {"artifact_id"}


async def test_a_client_that_knows_tasks_a_rest_caller_and_an_agent_get_the_same_reference(tmp_path: Path) -> None:
    call = {"tool": "numbers", "arguments": {"count": 40_000}}
    message = {"messageId": "m1", "role": "ROLE_USER", "parts": [{"data": call}]}
    a2a = {"jsonrpc": "2.0", "id": 1, "method": "SendMessage", "params": {"message": message}}
    async with gateway(tmp_path) as gate:
        body, headers = request("tools/call", name="numbers", arguments=call["arguments"])
        task = (await gate.http.post("/mcp", json=body, headers=headers)).json()["result"]["structuredContent"]
        rest = (await gate.http.post("/api/v1/calls", json=call)).json()["content"]
        agent = (await gate.http.post("/a2a", json=a2a)).json()["result"]["task"]["artifacts"][0]["parts"][0]["data"]

    for reference in (task, rest, agent):
        assert reference["uri"] == f"artifact://{reference['artifact_id']}"
        assert (reference["media_type"], reference["size"]) == (
            "application/json",
            len(json.dumps(NUMBERS).replace(" ", "")),
        )
        assert reference["preview"].startswith("[0,1,2")
