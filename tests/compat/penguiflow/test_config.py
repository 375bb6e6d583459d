"""The keys that only penguiflow has, and errors, adapters and presets under its names."""

import asyncio
from typing import Any

import pytest

from tests.wire.site import Site, reply
from toolpost import AuthType
from toolpost.compat.penguiflow import ModelRegistry, tools
from toolpost.compat.penguiflow.tools import adapters, config, errors, presets
from toolpost.compat.penguiflow.tools.config import BinaryDetectionConfig, ExternalToolConfig
from toolpost.contracts.source_kinds import McpTransport
from toolpost.sources.mcp.options import McpOptions

MCP: dict[str, Any] = {"name": "srv", "transport": "mcp", "connection": "https://example.invalid/mcp"}
API = b"""{"openapi": "3.1.0", "info": {"title": "t", "version": "1"},
"paths": {"/me": {"get": {"operationId": "me", "responses": {"200": {"description": "ok"}}}}}}"""


@pytest.mark.parametrize("mode", ["sse", "streamable_http"])
def test_the_mode_of_a_transport_is_the_transport(mode: str) -> None:
    made = ExternalToolConfig(**MCP, mcp_transport_mode=mode)

    assert (made.mcp_transport_mode, made.read_options(McpOptions).transport) == (mode, McpTransport(mode))


def test_the_mode_is_auto_unless_it_is_given() -> None:
    assert ExternalToolConfig(**MCP).read_options(McpOptions).transport is McpTransport.AUTO


async def test_the_old_keys_of_a_cookie_still_send_it() -> None:
    async def answer(received: Any, writer: asyncio.StreamWriter) -> None:
        body = API if received.path == "/openapi.json" else b'"ann"'
        writer.write(reply(200, body, content_type="application/json"))

    async with Site(answer) as site:
        made = ExternalToolConfig(
            name="api",
            transport=config.TransportType.HTTP,
            connection=f"{site.url}/openapi.json",
            base_url=site.url,
            auth_type=AuthType.COOKIE,
            auth_config={"cookie_name": "session", "cookie_value": "s3cret"},
        )
        async with tools.ToolNode(config=made, registry=ModelRegistry()) as node:
            assert await node.call("me", {}) == "ann"

    assert site.last.all("cookie") == ["session=s3cret"]


def test_a_cookie_without_a_value_is_refused() -> None:
    with pytest.raises(ValueError, match=r"COOKIE requires auth_config\.value"):
        ExternalToolConfig(**MCP, auth_type="cookie", auth_config={"cookie_name": "session"})


def test_extraction_begins_with_what_penguiflow_begins_with() -> None:
    made = ExternalToolConfig(**MCP).artifact_extraction

    assert (made.max_inline_size, made.auto_artifact_large_content) == (10_000, True)
    assert made.binary_detection == BinaryDetectionConfig(min_size_for_detection=1000, max_decode_bytes=5_000_000)
    assert made.binary_detection.signatures["JVBERi"] == ("pdf", "application/pdf")
    assert made.resources.inline_text_if_under_chars == 10_000


@pytest.mark.parametrize("module", [tools, adapters, config, errors, presets])
def test_every_name_is_there(module: Any) -> None:
    assert list(module.__all__) == sorted(set(module.__all__))
    assert [name for name in module.__all__ if not hasattr(module, name)] == []


def test_presets_and_errors_are_toolposts_own() -> None:
    assert presets.get_preset("github").connection == "npx -y @modelcontextprotocol/server-github"
    error = adapters.adapt_exception(OSError("refused"), "mcp")
    assert isinstance(error, errors.ToolConnectionError)
    assert error.category == "network"
