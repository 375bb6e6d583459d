"""MCP servers as a source of tools: every transport, both protocol eras, sessions that stay connected."""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from toolpost.sources.base import Detection, ProbeResponse, Transport, is_graphql_path, is_root, url_below
from toolpost.sources.mcp.options import McpOptions
from toolpost.wire.targets import is_http_url

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.wire.messages import Request

_REFUSALS = frozenset({400, 405, 406})
_PATHS = ("mcp", "sse")


class ModelContextProtocol(Transport):
    """Model Context Protocol over stdio, streamable HTTP, SSE, or with a server object of this process."""

    name = "mcp"
    options = McpOptions
    source_class = "toolpost.sources.mcp.source:McpSource"
    requires = ("fastmcp", "mcp")
    forms = ("command", "url")
    serves_oauth_metadata = True

    def starts_program(self, config: ExternalToolConfig) -> bool:
        return not is_http_url(config.connection) and not config.connection.startswith("memory:")

    def required_program(self, config: ExternalToolConfig) -> str:
        return next(iter(shlex.split(config.connection)), "") if self.starts_program(config) else ""

    def without_elicitation(self, config: ExternalToolConfig) -> ExternalToolConfig:
        return config.with_options(elicitation=False)

    def probes(self, url: str) -> Iterator[Request]:
        from toolpost.wire.messages import Request  # noqa: PLC0415 - only detection needs it

        for path in _PATHS:
            yield Request("GET", url_below(url, path))

    def detect(self, response: ProbeResponse) -> Detection | None:
        """Recognize an event stream, a refusal of a plain GET, or a challenge with resource metadata."""
        if response.method != "GET":
            return None
        because = _evidence(response)
        if because is None:
            return None
        below = "" if response.is_given else urlsplit(response.url).path.rpartition("/")[2]
        certain = not is_root(response.url) and not is_graphql_path(response.url)
        return Detection("an MCP server", because, below, is_certain=certain)


def _evidence(response: ProbeResponse) -> str | None:
    refused = f"it refuses a plain GET with HTTP {response.status}, as MCP servers do"
    if response.headers.get("content-type", "").startswith("text/event-stream"):
        return "it answers with a stream of events"
    if response.status == 401:
        return refused if _is_mcp_challenge(response) else None
    if response.status in _REFUSALS and (b'"jsonrpc"' in response.body or _is_named_mcp(response.url)):
        return refused
    return None


def _is_mcp_challenge(response: ProbeResponse) -> bool:
    """Return whether a 401 is that of an MCP server, which includes the address of its resource metadata."""
    if "resource_metadata" in response.headers.get("www-authenticate", "").lower():
        return True
    return response.is_given and urlsplit(response.url).path.rstrip("/").lower().endswith(_PATHS)


def _is_named_mcp(url: str) -> bool:
    """Return whether an address looks like that of an MCP server, because any server may refuse a GET."""
    parts = urlsplit(url)
    return parts.path.rstrip("/").lower().endswith(_PATHS) or "mcp" in (parts.hostname or "")
