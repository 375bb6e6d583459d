"""Configure the sources that a manual delegates to: OpenAPI documents, GraphQL endpoints and MCP servers."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import McpTransport, TransportType, UtcpMode
from toolpost.schema.json_values import is_array, is_object
from toolpost.sources.utcp.context import origin_of
from toolpost.sources.utcp.options import UtcpOptions
from toolpost.sources.utcp.template_credentials import static_headers
from toolpost.sources.utcp.templates import HttpTemplate, parse_template

_PROTECTED_DOCUMENT = (
    "an API's document is fetched without the auth and headers of its call template; if it needs them, write them as "
    "headers of the source, or save the document to a file"
)


class Delegate(NamedTuple):
    """Configuration of a source to create; `only` are the names of its tools to use, None for all.

    `secrets` are redacted from its errors, `remedy` is appended to them.
    """

    config: ExternalToolConfig
    only: frozenset[str] | None = None
    secrets: tuple[str, ...] = ()
    remedy: str = ""

    def __repr__(self) -> str:
        return f"Delegate({self.config.transport})"


def openapi_delegate(
    config: ExternalToolConfig, location: str, template: Mapping[str, Any] | None = None
) -> tuple[Delegate, list[str]]:
    """Configure the source of an OpenAPI document; also return the problems with its template."""
    fields = template or {}
    problems: list[str] = []
    headers = dict(config.headers)
    if fields.get("auth_tools"):
        added = _auth_headers(fields["auth_tools"])
        headers.update(added or {})
        if added is None:
            problems.append("its auth_tools are not plain headers; set auth_config.schemes of the source instead")
    base_url = config.base_url or fields.get("base_url")
    update = {
        "transport": TransportType.HTTP,
        "utcp_mode": UtcpMode.MANUAL_URL,
        "connection": location,
        "headers": headers,
        "base_url": base_url,
    }
    is_protected = "url" in fields and bool(fields.get("auth") or fields.get("headers"))
    return Delegate(config.model_copy(update=update), remedy=_PROTECTED_DOCUMENT if is_protected else ""), problems


def _auth_headers(auth: Any) -> dict[str, str] | None:
    """Return an auth object as static headers, None where that is impossible."""
    if not is_object(auth):
        return {}
    template = parse_template({"call_template_type": "http", "url": "x", "auth": auth})
    return static_headers(template.auth) if isinstance(template, HttpTemplate) and template.auth is not None else {}


def graphql_delegate(config: ExternalToolConfig, template: Mapping[str, Any]) -> Delegate:
    """Configure the source of a GraphQL endpoint."""
    headers = {**config.headers, **_string_map(template.get("headers")), **(_auth_headers(template.get("auth")) or {})}
    update: dict[str, Any] = {
        "transport": TransportType.GRAPHQL,
        "connection": str(template.get("url")),
        "headers": headers,
    }
    return Delegate(config.model_copy(update={**update, "utcp_mode": UtcpMode.AUTO}))


def _string_map(value: Any) -> dict[str, str]:
    return {str(key): str(item) for key, item in value.items()} if is_object(value) else {}


def mcp_delegates(
    config: ExternalToolConfig, template: Mapping[str, Any], only: frozenset[str] | None = None
) -> Iterator[Delegate]:
    """Configure the sources of the MCP servers that a template lists."""
    mcp = template.get("config")
    servers = mcp.get("mcpServers") if is_object(mcp) else None
    if not is_object(servers) or not servers:
        raise ConfigError("an mcp call template needs config: {mcpServers: {...}}")
    for name, server in servers.items():
        if not is_object(server):
            raise ConfigError(f"the MCP server {name!r} of the call template is not a table")
        yield Delegate(_mcp_config(config, name, server), only)


def _mcp_config(config: ExternalToolConfig, name: str, server: dict[str, Any]) -> ExternalToolConfig:
    update: dict[str, Any] = {"transport": TransportType.MCP, "utcp_mode": UtcpMode.AUTO}
    options = config.read_options(UtcpOptions).mcp
    if isinstance(server.get("command"), str):
        args = server.get("args")
        words = [server["command"], *(map(str, args) if is_array(args) else ())]
        update |= {"connection": shlex.join(words), "env": {**config.env, **_string_map(server.get("env"))}}
        update |= {"cwd": server.get("cwd") or config.cwd}
    elif isinstance(server.get("url"), str):
        update |= {"connection": server["url"], "headers": {**config.headers, **_string_map(server.get("headers"))}}
        if str(server.get("transport") or server.get("type")) == "sse":
            options = {**options, "transport": McpTransport.SSE.value}
    else:
        raise ConfigError(f"the MCP server {name!r} of the call template has neither a command nor a url")
    return config.model_copy(update=update | {"options": options})


def check_remote_servers(delegates: Iterable[Delegate], trusted_origins: frozenset[str]) -> None:
    """Refuse MCP servers of a remote manual that are commands or at origins that the operator did not write."""
    for delegate in delegates:
        connection = delegate.config.connection
        if not connection.startswith(("http://", "https://")):
            raise ConfigError("its MCP server is a command, which a remote manual may not run")
        if (origin := origin_of(connection)) not in trusted_origins:
            raise ConfigError(
                f"its MCP server is at {origin or 'no usable address'}, and a remote manual may only name "
                f"servers at addresses in your configuration; if this is intended, set base_url: {origin} in the source"
            )
