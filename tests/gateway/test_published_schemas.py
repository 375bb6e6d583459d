"""The schemas that clients of the gateway see: of one type each, as the sources have them, and objects as they are."""

import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from mcp.client.client import Client
from pydantic import BaseModel

from tests.patient_settings import PatientSettings
from toolpost import ExternalToolConfig, Settings, Toolbox, tool
from toolpost.gateway.mcp.server import McpServer

ME = "acme:ann"
API = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {
        "/look": {
            "get": {
                "operationId": "look",
                "parameters": [
                    {"name": "most", "in": "query", "schema": {"type": "integer", "minimum": 1}},
                    {"name": "after", "in": "query", "schema": {"type": ["string", "null"], "maxLength": 9}},
                ],
                "responses": {"200": {}},
            }
        }
    },
}
NULL = {"type": "null"}


class Tree(BaseModel):
    """A tree, which holds itself: pydantic refers to it."""

    name: str
    inner: list["Tree"] = []


@tool(side_effects="pure")
def grow(name: str) -> Tree:
    """Grow a tree."""
    return Tree(name=name, inner=[Tree(name="twig")])


@tool(side_effects="write", destructive=True)
def drop(name: str) -> str:
    """Drop a table."""
    return name


@asynccontextmanager
async def gateway(*sources: ExternalToolConfig, **options: Any) -> AsyncIterator[Client]:
    settings = PatientSettings(data_dir=None, sources=list(sources), **options)
    async with Toolbox(tools=[grow, drop], settings=settings) as box:
        server = McpServer(box, principal=lambda _ctx: ME)
        async with server.publishing(), Client(server.server, mode="legacy") as client:
            yield client


async def listed(client: Client) -> dict[str, Any]:
    return {one.name: one for one in (await client.list_tools()).tools}


async def test_optional_parameters_of_an_api_have_the_type_of_its_document(tmp_path: Path) -> None:
    (tmp_path / "api.json").write_text(json.dumps(API))
    shop = ExternalToolConfig(name="shop", transport="http", connection=str(tmp_path / "api.json"), required=True)
    async with gateway(shop) as client:
        schema = (await listed(client))["shop__look"].input_schema

    assert schema["properties"]["most"] == {"type": "integer", "minimum": 1}
    assert schema["properties"]["after"] == {"anyOf": [{"type": "string", "maxLength": 9}, NULL]}


def untyped(schema: Any, path: str) -> Iterator[str]:
    """The properties without a type, and those with several."""
    if isinstance(schema, dict):
        for name, part in schema.get("properties", {}).items() if "type" in schema else ():
            if not all(isinstance(one.get("type"), str) or "$ref" in one for one in part.get("anyOf", [part])):
                yield f"{path}.{name}"
        for name, part in schema.items():
            yield from untyped(part, f"{path}.{name}")
    elif isinstance(schema, list):
        for part in schema:
            yield from untyped(part, path)


async def test_every_property_of_a_built_in_has_a_type() -> None:
    async with gateway(builtins=["all", "run_command"]) as client:
        tools = await listed(client)

    assert {"json_stringify", "run_command", "pending_wait"} <= tools.keys()
    assert [found for name, one in tools.items() for found in untyped(one.input_schema, name)] == []


async def test_an_object_behind_a_reference_is_not_wrapped() -> None:
    async with gateway() as client:
        schema = (await listed(client))["grow"].output_schema
        result = await client.call_tool("grow", {"name": "oak"})

    assert schema is not None
    assert schema["type"] == "object"
    assert "result" not in schema.get("properties", {})
    assert result.structured_content == {"name": "oak", "inner": [{"name": "twig", "inner": []}]}


async def test_the_tools_of_the_gateway_take_null_as_absent() -> None:
    async with Toolbox(tools=[drop], settings=Settings(data_dir=None)) as box:
        server = McpServer(box, principal=lambda _ctx: ME)
        async with server.publishing(), Client(server.server, mode="legacy") as client:
            paused = await client.call_tool("drop", {"name": "logs"})
            every = await client.call_tool("pending_status", {"pending_id": None})
            assert paused.meta is not None
            pending_id = paused.meta["toolpost/pending_id"]
            await box.approve(pending_id, by="acme:bob")
            done = await client.call_tool("pending_wait", {"pending_id": pending_id, "timeout_s": None})
            refused = await client.call_tool("pending_wait", {"pending_id": None})

    assert "drop" in str(every.content)
    assert done.structured_content == {"result": "logs"}
    assert refused.is_error
