"""Null for an argument that is left out: many models and frameworks send it, and no schema has to admit it."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
from fastmcp import FastMCP

from tests.patient_settings import PatientSettings
from tests.sources.websocket.servers import serving
from tests.wire.site import Site, reply
from toolpost import (
    Completed,
    ExternalToolConfig,
    Failed,
    Toolbox,
    ToolContext,
    ToolNode,
    ToolRegistry,
    tool,
)

SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "most": {"type": "integer"}},
    "required": ["name"],
    "additionalProperties": False,
}
PARAMETERS = [
    {"name": "name", "in": "query", "required": True, "schema": {"type": "string"}},
    {"name": "most", "in": "query", "schema": {"type": "integer"}},
]
API = {
    "openapi": "3.1.0",
    "info": {"title": "Shop", "version": "1"},
    "paths": {"/look": {"get": {"operationId": "look", "parameters": PARAMETERS, "responses": {"200": {}}}}},
}
MANUAL = {
    "utcp_version": "1.0.1",
    "manual_version": "1.0.0",
    "tools": [
        {
            "name": "look",
            "description": "Look.",
            "inputs": SCHEMA,
            "tool_call_template": {"call_template_type": "http", "url": "SITE/look", "http_method": "GET"},
        }
    ],
}
FLOW = {
    "name": "look",
    "inputs": {key: SCHEMA[key] for key in ("properties", "required")},
    "steps": {"one": {"tool": "seen", "arguments": {"given": "${{ inputs }}"}}},
    "outputs": {"given": "${{ steps.one }}"},
}
ARGUMENTS = {"name": "ann", "most": None}


@tool(side_effects="pure")
def seen(given: dict[str, Any]) -> dict[str, Any]:
    """Return what a workflow got."""
    return given


@tool(side_effects="pure")
def native(name: str, most: int = 7) -> dict[str, Any]:
    """Return the arguments."""
    return {"name": name, "most": most}


async def echo(socket: Any) -> None:
    async for message in socket:
        await socket.send(message)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with Site(answer=reply(200, b'{"fine": true}', content_type="application/json")) as opened:
        yield opened


def source(kind: str, folder: Path, address: str, **options: Any) -> ExternalToolConfig:
    """Write what a source of a kind is read from, with one tool, `look`."""
    (folder / "api.json").write_text(json.dumps({**API, "servers": [{"url": address}]}))
    (folder / "manual.json").write_text(json.dumps(MANUAL).replace("SITE", address))
    (folder / "flow.yaml").write_text(json.dumps(FLOW))
    declared = {"side_effects": "read", "input_schema": SCHEMA}
    sources: dict[str, dict[str, Any]] = {
        "http": {"connection": str(folder / "api.json")},
        "utcp": {"connection": str(folder / "manual.json")},
        "workflow": {"connection": str(folder / "flow.yaml")},
        "cli": {
            "connection": "printf",
            "options": {"tools": {"look": {**declared, "args": ["%s,", "{name}", "{most}"], "output": "text"}}},
        },
        "webhook": {
            "connection": address,
            "options": {"kind": "plain", "tools": {"look": {"url": "look", **declared}}},
        },
        "websocket": {"connection": address, "options": {"tools": {"look": declared}}},
        "mcp": {"connection": "memory:server"},
    }
    return ExternalToolConfig(**{"name": "shop", "transport": kind, "required": True, **sources[kind], **options})


def box(config: ExternalToolConfig | None = None, **options: Any) -> Any:
    settings = PatientSettings(
        data_dir=None, policy="exploratory", sources=[] if config is None else [config], **options
    )
    return Toolbox(tools=[native, seen], settings=settings, servers={"shop": server()} if config else {})


def server() -> FastMCP[Any]:
    made: FastMCP[Any] = FastMCP("shop")

    @made.tool
    def look(name: str, most: int = 7) -> dict[str, Any]:
        return {"name": name, "most": most}

    return made


@pytest.mark.parametrize("kind", ["http", "utcp", "webhook"])
async def test_null_is_not_sent_to_an_api(site: Site, tmp_path: Path, kind: str) -> None:
    async with box(source(kind, tmp_path, site.url)) as opened:
        outcome = await opened.call("shop.look", ARGUMENTS)
    assert isinstance(outcome, Completed), outcome
    assert "ann" in f"{site.last.path} {site.last.body!r}"
    assert "most" not in f"{site.last.path} {site.last.body!r}"


@pytest.mark.programs
async def test_null_is_no_word_of_a_command(tmp_path: Path) -> None:
    async with box(source("cli", tmp_path, "")) as opened:
        outcome = await opened.call("shop.look", ARGUMENTS)
    assert outcome.content == "ann,"


async def test_null_is_not_in_a_message(tmp_path: Path) -> None:
    async with serving(echo) as feed, box(source("websocket", tmp_path, feed)) as opened:
        outcome = await opened.call("shop.look", ARGUMENTS)
    assert isinstance(outcome, Completed), outcome
    assert "most" not in str(outcome.content)


@pytest.mark.parametrize(("name", "kind"), [("native", None), ("shop.look", "mcp")])
async def test_null_means_the_default_of_the_tool(tmp_path: Path, name: str, kind: str | None) -> None:
    async with box(source(kind, tmp_path, "") if kind else None) as opened:
        outcome = await opened.call(name, ARGUMENTS)
    assert outcome.content == {"name": "ann", "most": 7}


async def test_null_means_the_same_without_a_toolbox(tmp_path: Path) -> None:
    node = ToolNode(source("mcp", tmp_path, "", trust=True), ToolRegistry(), server=server())
    await node.connect()
    try:
        assert await node.call("look", ARGUMENTS) == {"name": "ann", "most": 7}
    finally:
        await node.close()


async def test_null_is_no_input_of_a_workflow(tmp_path: Path) -> None:
    async with box(source("workflow", tmp_path, "")) as opened:
        outcome = await opened.call("shop.look", ARGUMENTS)
    assert outcome.content == {"given": {"name": "ann"}}


async def test_null_is_left_out_by_a_built_in(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("here")
    async with box(builtins=["read_file"], tools={"allowedPaths": [str(tmp_path)]}) as opened:
        outcome = await opened.call("read_file", {"path": str(tmp_path / "a.txt"), "offset": None, "limit": None})
    assert isinstance(outcome, Completed), outcome
    assert outcome.content["content"] == "here"


@tool(side_effects="pure")
async def nested(order: dict[str, Any], ctx: ToolContext) -> Any:
    """Call another tool with null."""
    inner = await ctx.call("native", order)
    return inner.content if isinstance(inner, Completed) else inner.status


async def test_null_means_the_same_in_a_call_within_a_call() -> None:
    async with Toolbox(tools=[native, nested]) as opened:
        outcome = await opened.call("nested", {"order": ARGUMENTS})
    assert isinstance(outcome, Completed)
    assert outcome.content == {"name": "ann", "most": 7}


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        ({"name": None}, "$.name: expected string, got null"),
        ({"name": "ann", "unknown": None}, '$: unexpected "unknown"'),
        ({"name": "ann", "most": "x"}, "$.most: expected integer"),
    ],
)
async def test_a_required_or_unknown_argument_that_is_null_is_refused(arguments: dict[str, Any], wrong: str) -> None:
    async with box() as opened:
        outcome = await opened.call("native", arguments)
    assert isinstance(outcome, Failed)
    assert wrong in str(outcome.error)


async def test_null_gets_the_default_of_an_override(site: Site, tmp_path: Path) -> None:
    config = source("http", tmp_path, site.url, overrides={"look": {"default": {"name": "bob"}}})
    async with box(config) as opened:
        outcome = await opened.call("shop.look", {"name": None, "most": None})
    assert isinstance(outcome, Completed), outcome
    assert site.last.path.endswith("?name=bob")
