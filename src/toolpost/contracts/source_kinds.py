"""Transports and authentication types of sources."""

from __future__ import annotations

from enum import StrEnum

TRANSPORTS_GROUP = "toolpost.sources"  # entry points of plug-ins, with the names of their transports


class TransportType(StrEnum):
    """Built-in transports."""

    MCP = "mcp"
    HTTP = "http"
    UTCP = "utcp"
    CLI = "cli"
    WEBSOCKET = "websocket"
    WEBHOOK = "webhook"
    GRAPHQL = "graphql"
    WORKFLOW = "workflow"
    PYTHON = "python"


class AuthType(StrEnum):
    """Authentication types of sources."""

    NONE = "none"
    API_KEY = "api_key"
    BEARER = "bearer"
    COOKIE = "cookie"
    BASIC = "basic"
    OAUTH2_USER = "oauth2_user"


class UtcpMode(StrEnum):
    """How the connection of an HTTP or UTCP source is interpreted."""

    AUTO = "auto"
    MANUAL_URL = "manual_url"
    BASE_URL = "base_url"


class McpTransport(StrEnum):
    """Transports of MCP; `auto` detects one from the connection."""

    AUTO = "auto"
    STDIO = "stdio"
    STREAMABLE_HTTP = "streamable_http"
    SSE = "sse"
    MEMORY = "memory"
