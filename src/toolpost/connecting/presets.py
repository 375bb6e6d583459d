"""Presets: MCP servers that can be connected by name, and the packages that provide them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType

from toolpost.auth.providers import with_known_endpoints
from toolpost.connecting.packages import MORE_PACKAGES, POPULAR_PACKAGES, Package
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType, TransportType

_FETCHING = frozenset({"npx", "uvx", "bunx"})
_MCP = partial(ExternalToolConfig, transport=TransportType.MCP)
PACKAGES: Mapping[str, Package] = MappingProxyType({**POPULAR_PACKAGES, **MORE_PACKAGES})
POPULAR_MCP_SERVERS: Mapping[str, ExternalToolConfig] = MappingProxyType(
    {
        "github": _MCP(
            name="github",
            connection="npx -y @modelcontextprotocol/server-github",
            auth_type=AuthType.OAUTH2_USER,
            description="GitHub repositories, issues, pull requests",
        ),
        "filesystem": _MCP(
            name="filesystem",
            connection="npx -y @modelcontextprotocol/server-filesystem /data",
            description="Read/write local filesystem",
        ),
        "postgres": _MCP(
            name="postgres",
            connection="npx -y @modelcontextprotocol/server-postgres",
            env={"DATABASE_URL": "${DATABASE_URL}"},
            description="Query PostgreSQL databases",
        ),
        "slack": _MCP(
            name="slack",
            connection="npx -y @modelcontextprotocol/server-slack",
            auth_type=AuthType.OAUTH2_USER,
            description="Slack channels, messages, users",
        ),
        "google-drive": _MCP(
            name="google-drive",
            connection="npx -y @anthropic/mcp-server-google-drive",
            auth_type=AuthType.OAUTH2_USER,
            description="Google Drive files and folders",
        ),
    }
)
MORE_MCP_SERVERS: Mapping[str, ExternalToolConfig] = MappingProxyType(
    {
        name: _MCP(name=name, connection=package.command(), description=package.description)
        for name, package in MORE_PACKAGES.items()
    }
)


def get_preset(name: str) -> ExternalToolConfig:
    """Return the preset of this name; ValueError lists the presets."""
    preset = POPULAR_MCP_SERVERS.get(name) or MORE_MCP_SERVERS.get(name)
    if preset is None:
        raise unknown_preset(name)
    return preset


def unknown_preset(name: str) -> ValueError:
    """Return the error for an unknown preset."""
    return ValueError(f"Unknown preset: {name}. Available: {list(PACKAGES)}")


def pinned_preset(name: str, arguments: Sequence[str] = ()) -> ExternalToolConfig:
    """Return a preset with the command of its pinned version, and with other arguments if given."""
    config, package = get_preset(name), PACKAGES[name]
    if package.version is None:
        raise ValueError(f'preset "{name}": {package.absence}')
    return config.model_copy(update={"connection": package.command(arguments)})


def with_token_variable(config: ExternalToolConfig) -> ExternalToolConfig:
    """Add the token variable and the sign-in endpoints of its preset to a source with `oauth2_user`.

    The program reads a user's token from that variable. ConfigError for a package that is not published, which a
    launcher would not find.
    """
    if config.transport is not TransportType.MCP:
        return config
    package = _package_of(config.connection)
    if package is not None and package.version is None:
        raise ConfigError(f"source {config.name!r}: {package.absence}")
    if config.auth_type is not AuthType.OAUTH2_USER or package is None or not package.variable:
        return config
    auth_config = {"token_env": package.variable, **config.auth_config}
    return config.model_copy(update={"auth_config": with_known_endpoints(auth_config, package.provider)})


def _package_of(command: str) -> Package | None:
    try:
        words = shlex.split(command)
    except ValueError:
        return None
    if not words or words[0] not in _FETCHING:  # presets are started by launchers only
        return None
    named = {word[0] + word[1:].partition("@")[0] for word in words if word}
    return next((package for package in PACKAGES.values() if package.name in named), None)


def unpinned_package(command: str) -> str | None:
    """Return the package that a command fetches without a version; None for other commands."""
    words = shlex.split(command)
    package = next((word for word in words[1:] if not word.startswith("-")), None)
    if words[0] not in _FETCHING or package is None or "@" in package[1:] or "==" in package:
        return None
    return package
