"""What another transport speaks better is handed to it: API documents, MCP servers, GraphQL endpoints."""

import asyncio
import json
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests import warm
from tests.sources.utcp.serving import App, in_file, manual, names, source, tool, toolbox
from tests.wire.site import Received, Site, reply
from toolpost import ConfigError, ExternalToolConfig
from toolpost.sources.base import BaseSource, Services
from toolpost.sources.utcp.source import UtcpSource

SERVER = """
from fastmcp import FastMCP

server = FastMCP("small")


@server.tool
def add(a: int, b: int) -> int:
    return a + b


@server.tool
def other() -> str:
    return "other"


server.run(show_banner=False)
"""


@pytest.mark.programs
@pytest.mark.req("UTCP-05")
async def test_an_api_document_at_the_address_becomes_its_operations(app: App) -> None:
    given = {"auth_type": "bearer", "auth_config": {"token": "tok-1"}}
    async with toolbox(source(f"{app.address}/openapi.json", **given)) as box:
        spec = box.registry.find("m.say").spec
        outcome = await box.call("m.say", {"q": "a&b"})

    assert spec.extra["source"] == "openapi"
    assert outcome.content["query"] == {"q": ["a&b"]}
    assert outcome.content["headers"]["authorization"] == "Bearer tok-1"


@pytest.mark.programs
@pytest.mark.parametrize("kind", ["http", "text", "file"])
async def test_so_does_one_that_a_clients_configuration_names(app: App, tmp_path: Path, kind: str) -> None:
    with urlopen(f"{app.address}/openapi.json") as answer:
        text = answer.read().decode()
    (tmp_path / "api.json").write_text(text)
    auth = {"auth_type": "api_key", "api_key": "${KEY}", "var_name": "X-Api-Key"}
    ways = {
        "http": {"url": f"{app.address}/openapi.json"},
        "text": {"content": text, "base_url": app.address},
        "file": {"file_path": "api.json"},
    }
    template = {"name": "api", "call_template_type": kind, "auth_tools": auth, **ways[kind]}
    config = {"manual_call_templates": [template], "variables": {"api_KEY": "k-123"}}
    async with toolbox(source(in_file(tmp_path, config))) as box:
        outcome = await box.call("m.say", {"q": "x"})

    assert outcome.content["headers"]["x-api-key"] == "k-123"


async def test_a_document_behind_the_auth_of_its_template_is_reported(tmp_path: Path) -> None:
    api = json.dumps({"openapi": "3.1.0", "info": {"title": "x", "version": "1"}, "paths": {}}).encode()

    async def answer(received: Received, writer: asyncio.StreamWriter) -> None:
        writer.write(reply(200 if received.all("x-key") else 401, api, content_type="application/json"))

    async with Site(answer) as site:
        auth = {"auth_type": "api_key", "api_key": "k-123", "var_name": "X-Key"}
        template = {"name": "api", "call_template_type": "http", "url": f"{site.url}/api.json", "auth": auth}
        async with toolbox(source(in_file(tmp_path, {"manual_call_templates": [template]}))) as box:
            [state] = box.report

    assert "write them as headers of the source" in str(state.error)


@pytest.mark.programs
async def test_auth_that_is_more_than_headers_is_reported(app: App, tmp_path: Path) -> None:
    template = {
        "name": "api",
        "call_template_type": "http",
        "url": f"{app.address}/openapi.json",
        "auth_tools": app.oauth("s"),
    }
    async with toolbox(source(in_file(tmp_path, {"manual_call_templates": [template]}))) as box:
        assert "auth_config.schemes" in box.problems[0]


def mcp(folder: Path) -> dict[str, Any]:
    (folder / "server.py").write_text(SERVER)
    command, *args = warm.command(folder / "server.py")
    servers = {"small": {"command": command, "args": args}}
    return {"call_template_type": "mcp", "config": {"mcpServers": servers}}


@pytest.mark.programs
@pytest.mark.req("GEN-07")
async def test_an_mcp_server_is_spoken_to_by_our_own_client(tmp_path: Path) -> None:
    config = {"manual_call_templates": [{"name": "small", **mcp(tmp_path)}]}
    async with toolbox(source(in_file(tmp_path, config))) as box:
        found = names(box)
        outcome = await box.call("m.add", {"a": 2, "b": 3})

    assert found >= {"m.add", "m.other"}
    assert outcome.content in (5, {"result": 5})
    assert "utcp_mcp" not in sys.modules


@pytest.mark.programs
async def test_of_a_server_only_the_tools_that_a_manual_names_are_taken(tmp_path: Path) -> None:
    async with toolbox(source(in_file(tmp_path, manual(tool("small.add", mcp(tmp_path)))))) as box:
        assert names(box) == {"m.add"}


@pytest.mark.parametrize("config", [None, {"mcpServers": {}}, {"mcpServers": {"x": {}}}, {"mcpServers": {"x": 1}}])
async def test_a_server_that_cannot_be_reached_is_reported(tmp_path: Path, config: Any) -> None:
    template = {"name": "x", "call_template_type": "mcp", "config": config}
    async with toolbox(source(in_file(tmp_path, {"manual_call_templates": [template]}))) as box:
        [state] = box.report

    assert not state.ok
    assert "call template" in str(state.error)


@pytest.mark.programs
async def test_a_text_with_an_api_document_needs_no_file_of_yours(app: App) -> None:
    with urlopen(f"{app.address}/openapi.json") as answer:
        document = json.load(answer)
    async with toolbox(source(document)) as box:
        outcome = await box.call("m.say", {})

    assert outcome.status == "completed"


class Handed(BaseSource):
    """A source that only keeps what it was made of."""

    closed = False

    async def discover(self) -> list[Any]:
        return []

    async def close(self) -> None:
        self.closed = True


@pytest.mark.parametrize(
    ("template", "transport", "connection", "headers"),
    [
        (
            {
                "call_template_type": "graphql",
                "url": "https://a/graphql",
                "auth": {"auth_type": "basic", "username": "a", "password": "b"},
            },
            "graphql",
            "https://a/graphql",
            {"X-Mine": "1", "Authorization": "Basic YTpi"},
        ),
        (
            {
                "call_template_type": "mcp",
                "config": {
                    "mcpServers": {"s": {"url": "https://a/mcp", "transport": "sse", "headers": {"Authorization": "x"}}}
                },
            },
            "mcp",
            "https://a/mcp",
            {"X-Mine": "1", "Authorization": "x"},
        ),
    ],
    ids=["graphql", "mcp"],
)
async def test_an_endpoint_is_handed_over_with_its_headers(
    tmp_path: Path, template: dict[str, Any], transport: str, connection: str, headers: dict[str, str]
) -> None:
    made: list[Handed] = []

    def make(config: ExternalToolConfig) -> Handed:
        made.append(Handed(config))
        return made[-1]

    path = in_file(tmp_path, {"manual_call_templates": [{"name": "x", **template}]})
    utcp = UtcpSource(source(path, headers={"X-Mine": "1"}), Services(make=make))
    assert await utcp.discover() == []
    await utcp.close()

    [inner] = made
    assert (inner.config.name, inner.config.transport, inner.config.connection) == ("m", transport, connection)
    assert inner.config.headers == headers
    assert inner.closed


async def test_a_source_that_may_make_no_others_says_so(tmp_path: Path) -> None:
    template = {"call_template_type": "mcp", "config": {"mcpServers": {"small": {"command": "never-started"}}}}
    path = in_file(tmp_path, {"manual_call_templates": [{"name": "x", **template}]})
    utcp = UtcpSource(source(path), Services())
    with pytest.raises(ConfigError, match="nothing here supports mcp"):
        await utcp.discover()
    await utcp.close()


def api(app: App) -> dict[str, Any]:
    with urlopen(f"{app.address}/openapi.json") as answer:
        document: dict[str, Any] = json.load(answer)
    return document


@pytest.mark.programs
async def test_two_parts_with_tools_of_one_name_keep_their_own_credentials(app: App, tmp_path: Path) -> None:
    templates = [
        {
            "name": name,
            "call_template_type": "text",
            "content": json.dumps(api(app)),
            "base_url": app.address,
            "auth_tools": {"auth_type": "api_key", "api_key": f"key-of-{name}", "var_name": "X-Api-Key"},
        }
        for name in ("a", "b")
    ]
    async with toolbox(source(in_file(tmp_path, {"manual_call_templates": templates}))) as box:
        outcome = await box.call("m.say", {"q": "x"})

    assert outcome.content["headers"]["x-api-key"] == "key-of-a"


@pytest.mark.programs
async def test_an_api_document_that_came_by_a_socket_is_not_taken(app: App, tmp_path: Path) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1000)
        writer.write(json.dumps(api(app)).encode())
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(serve, "127.0.0.1", 0) as listening:
        port = listening.sockets[0].getsockname()[1]
        template = {"name": "far", "call_template_type": "tcp", "host": "127.0.0.1", "port": port, "timeout": 3000}
        async with toolbox(source(in_file(tmp_path, {"manual_call_templates": [template]}))) as box:
            [state] = box.report

    assert not state.ok
    assert "is not supported by tcp" in str(state.error)


GOOD = tool("good", {"call_template_type": "text", "content": "hi"})


@pytest.mark.parametrize(
    "template",
    [
        {"call_template_type": "mcp", "config": {"mcpServers": {"s": {"url": "http://127.0.0.1:1/mcp"}}}},
        {"call_template_type": "mcp"},
        {"call_template_type": "cli", "commands": [{"command": "echo"}], "env_vars": ["A=1"]},
        {"call_template_type": "tcp", "host": "127.0.0.1", "port": 9, "timeout": "inf"},
        {"call_template_type": "tcp", "host": "127.0.0.1", "port": 9, "message_delimiter": "\\x"},
    ],
    ids=["dead server", "no server", "odd variables", "endless", "odd delimiter"],
)
async def test_one_tool_that_cannot_be_used_takes_no_other_down(template: dict[str, Any]) -> None:
    async with toolbox(source(manual(GOOD, tool("bad", template)), connect_timeout_s=2)) as box:
        assert names(box) == {"m.good"}
        assert len(box.problems) == 1


async def test_nor_does_one_manual_that_cannot_be_reached(tmp_path: Path) -> None:
    templates = [
        {"name": "a", "call_template_type": "text", "content": json.dumps(manual(GOOD))},
        {"name": "b", "call_template_type": "graphql", "url": "http://127.0.0.1:1/${KEY}"},
    ]
    config = {"manual_call_templates": templates, "variables": {"KEY": "s3cret-key"}}
    async with toolbox(source(in_file(tmp_path, config))) as box:
        assert names(box) == {"m.good"}
        assert "transport graphql is skipped" in box.problems[0]
        assert "s3cret" not in box.problems[0]
