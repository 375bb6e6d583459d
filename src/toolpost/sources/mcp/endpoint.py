"""Endpoint of an MCP server: a command, an HTTP URL, or an object of this process."""

from __future__ import annotations

import shlex
from typing import Literal, NamedTuple
from urllib.parse import urlsplit

from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType, McpTransport
from toolpost.sources.mcp.options import McpOptions

MEMORY = "memory:"


class CommandEndpoint(NamedTuple):
    """A program that supports MCP over stdin and stdout."""

    argv: tuple[str, ...]


class UrlEndpoint(NamedTuple):
    """An HTTP URL; kind `auto` tries streamable HTTP first and the older SSE transport second."""

    url: str
    kind: Literal["auto", "streamable_http", "sse"]


class MemoryEndpoint(NamedTuple):
    """A server object in this process, named `module:attribute`."""

    target: str


Endpoint = CommandEndpoint | UrlEndpoint | MemoryEndpoint


def parse_endpoint(config: ExternalToolConfig) -> Endpoint:
    """Parse the connection of a source; raise ConfigError when it does not fit the transport."""
    options = config.read_options(McpOptions)
    connection, transport = config.connection.strip(), options.transport
    if transport is McpTransport.AUTO:
        transport = _detect_transport(connection)
    if transport is McpTransport.MEMORY:
        return MemoryEndpoint(connection.removeprefix(MEMORY))
    if transport is McpTransport.STDIO:
        _check_credential(config)
        return CommandEndpoint(_split_command(connection, config.name))
    if _scheme(connection) not in ("http", "https") or not urlsplit(connection).hostname:
        msg = f"source {config.name!r}: options.transport {transport.value} needs an http(s) URL, not {connection!r}"
        raise ConfigError(msg)
    if urlsplit(connection).username is not None:
        msg = f"source {config.name!r}: a URL must not carry a name or password; use auth_type basic"
        raise ConfigError(msg)
    if transport is McpTransport.SSE and options.protocol not in ("auto", "legacy"):
        raise ConfigError(
            f"source {config.name!r}: the SSE transport never carried protocol {options.protocol}; drop one of them"
        )
    kinds: dict[McpTransport, Literal["streamable_http", "sse"]] = {
        McpTransport.STREAMABLE_HTTP: "streamable_http",
        McpTransport.SSE: "sse",
    }
    explicit = options.transport is not McpTransport.AUTO
    return UrlEndpoint(connection, kinds[transport] if explicit else "auto")


def is_remote(config: ExternalToolConfig) -> bool:
    """Return whether a server is reached over the network."""
    return isinstance(parse_endpoint(config), UrlEndpoint)


def describe_server(config: ExternalToolConfig) -> str:
    """Describe the server for people by its command or URL."""
    match parse_endpoint(config):
        case CommandEndpoint(argv):
            return f"the MCP server `{shlex.join(argv)}`"
        case UrlEndpoint(url):
            return f"the MCP server at {url}"
        case MemoryEndpoint(target):
            return f"the MCP server {target} in this process"


def _check_credential(config: ExternalToolConfig) -> None:
    """Reject a credential that a program cannot receive: it reads no headers, only the variable `token_env`."""
    if config.auth_type is AuthType.NONE:
        return
    if config.auth_type not in (AuthType.BEARER, AuthType.OAUTH2_USER):
        raise ConfigError(
            f"source {config.name!r}: a program reads no headers, so auth_type {config.auth_type.value} "
            "cannot reach it; pass the secret in a variable, such as env: {API_KEY: '${API_KEY}'}"
        )
    if not config.auth_config.get("token_env"):
        raise ConfigError(
            f"source {config.name!r}: a program gets its token in a variable; "
            "write the one that it reads into auth_config, such as token_env: GITHUB_PERSONAL_ACCESS_TOKEN"
        )


def _detect_transport(connection: str) -> McpTransport:
    if connection.startswith(MEMORY):
        return McpTransport.MEMORY
    return McpTransport.STREAMABLE_HTTP if _scheme(connection) in ("http", "https") else McpTransport.STDIO


def _scheme(connection: str) -> str:
    head, separator, _ = connection.partition("://")
    return head.lower() if separator and " " not in head else ""


def _split_command(connection: str, source: str) -> tuple[str, ...]:
    """Split a command line as a shell would, without running a shell."""
    if (scheme := _scheme(connection)) and "/" not in scheme:
        raise ConfigError(
            f"source {source!r}: {connection!r} is an address, not a command; leave options.transport out"
        )
    try:
        argv = tuple(shlex.split(connection))
    except ValueError as error:
        raise ConfigError(f"source {source!r}: the command {connection!r} cannot be split: {error}") from error
    if not argv:
        raise ConfigError(f"source {source!r}: the connection is empty; give a command or a URL")
    return argv
