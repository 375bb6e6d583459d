"""Presets: MCP servers that can be connected by name, and the packages that provide them."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from types import MappingProxyType
from typing import Literal

from toolpost.auth.providers import with_known_endpoints
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ConfigError
from toolpost.contracts.source_kinds import AuthType, TransportType

POPULAR_MCP_SERVERS: Mapping[str, ExternalToolConfig] = MappingProxyType(
    {
        "github": ExternalToolConfig(
            name="github",
            transport=TransportType.MCP,
            connection="npx -y @modelcontextprotocol/server-github",
            auth_type=AuthType.OAUTH2_USER,
            description="GitHub repositories, issues, pull requests",
        ),
        "filesystem": ExternalToolConfig(
            name="filesystem",
            transport=TransportType.MCP,
            connection="npx -y @modelcontextprotocol/server-filesystem /data",
            auth_type=AuthType.NONE,
            description="Read/write local filesystem",
        ),
        "postgres": ExternalToolConfig(
            name="postgres",
            transport=TransportType.MCP,
            connection="npx -y @modelcontextprotocol/server-postgres",
            env={"DATABASE_URL": "${DATABASE_URL}"},
            auth_type=AuthType.NONE,
            description="Query PostgreSQL databases",
        ),
        "slack": ExternalToolConfig(
            name="slack",
            transport=TransportType.MCP,
            connection="npx -y @modelcontextprotocol/server-slack",
            auth_type=AuthType.OAUTH2_USER,
            description="Slack channels, messages, users",
        ),
        "google-drive": ExternalToolConfig(
            name="google-drive",
            transport=TransportType.MCP,
            connection="npx -y @anthropic/mcp-server-google-drive",
            auth_type=AuthType.OAUTH2_USER,
            description="Google Drive files and folders",
        ),
    }
)


@dataclass(frozen=True, slots=True)
class Package:
    """The package of a preset's server, pinned to a reviewed version.

    Without a version the package is not published, and `advice` says what to do instead. `reads` are the environment
    variables of the server; `variable` is the one that takes a user's token of the service `provider`, requested with
    `scopes`. `arguments` follow the name of the package on the command line.
    """

    name: str
    version: str | None
    _: KW_ONLY
    ecosystem: Literal["npm", "PyPI"] = "npm"
    arguments: str = ""
    reads: tuple[str, ...] = ()
    variable: str = ""
    provider: str = ""
    scopes: tuple[str, ...] = ()
    description: str = ""
    advice: str = ""

    @property
    def absence(self) -> str:
        """The message for a package that is not published, and what to do instead."""
        return f"the package {self.name} is not on {self.ecosystem}; {self.advice}"

    def command(self, arguments: Sequence[str] = ()) -> str:
        """Return the command line that starts exactly this version, with other arguments if given."""
        launcher = "npx -y" if self.ecosystem == "npm" else "uvx"
        return f"{launcher} {self.name}@{self.version} {shlex.join(arguments) or self.arguments}".rstrip()


_FETCHING = frozenset({"npx", "uvx", "bunx"})
# Versions are pinned: a name alone would run whatever its owner, or somebody who takes over the name, publishes next.
_POPULAR_PACKAGES = {
    "github": Package(
        "@modelcontextprotocol/server-github",
        "2025.4.8",
        reads=("GITHUB_PERSONAL_ACCESS_TOKEN",),
        variable="GITHUB_PERSONAL_ACCESS_TOKEN",
        provider="github",
        scopes=("repo",),
    ),
    "filesystem": Package("@modelcontextprotocol/server-filesystem", "2026.8.31", arguments="/data"),
    # This server takes the URL as an argument and does not read the variable itself.
    "postgres": Package(
        "@modelcontextprotocol/server-postgres", "0.6.2", arguments="'${DATABASE_URL}'", reads=("DATABASE_URL",)
    ),
    "slack": Package(
        "@modelcontextprotocol/server-slack",
        "2025.4.25",
        reads=("SLACK_BOT_TOKEN", "SLACK_TEAM_ID", "SLACK_CHANNEL_IDS"),
        variable="SLACK_BOT_TOKEN",
        provider="slack",
        scopes=("channels:history", "channels:read", "chat:write", "reactions:write", "users:read"),
    ),
    "google-drive": Package(
        "@anthropic/mcp-server-google-drive",
        None,
        advice="connect the preset gdrive (@modelcontextprotocol/server-gdrive), or another server by its command "
        "or its URL",
    ),
}
_MORE_PACKAGES = {
    "everything": Package(
        "@modelcontextprotocol/server-everything", "2026.8.31", description="Every feature of MCP, to try things out"
    ),
    "memory": Package(
        "@modelcontextprotocol/server-memory",
        "2026.8.31",
        reads=("MEMORY_FILE_PATH",),
        description="A knowledge graph that is kept between runs",
    ),
    "sequential-thinking": Package(
        "@modelcontextprotocol/server-sequential-thinking", "2026.8.31", description="Notes for thinking step by step"
    ),
    "gdrive": Package(
        "@modelcontextprotocol/server-gdrive",
        "2025.1.14",
        reads=("GDRIVE_CREDENTIALS_PATH", "GDRIVE_OAUTH_PATH"),
        description="Google Drive files, read only",
    ),
    "brave-search": Package(
        "@brave/brave-search-mcp-server", "2.1.4", reads=("BRAVE_API_KEY",), description="Web search by Brave"
    ),
    "tavily": Package("tavily-mcp", "0.2.22", reads=("TAVILY_API_KEY",), description="Web search by Tavily"),
    "firecrawl": Package(
        "firecrawl-mcp",
        "3.22.2",
        reads=("FIRECRAWL_API_KEY", "FIRECRAWL_API_URL"),
        description="Web pages as text, by Firecrawl",
    ),
    "notion": Package(
        "@notionhq/notion-mcp-server",
        "2.5.2",
        reads=("NOTION_TOKEN",),
        variable="NOTION_TOKEN",
        provider="notion",
        description="Notion pages and databases",
    ),
    "context7": Package(
        "@upstash/context7-mcp", "4.1.1", reads=("CONTEXT7_API_KEY",), description="Current documentation of libraries"
    ),
    "playwright": Package("@playwright/mcp", "0.0.83", description="A browser, driven by Playwright"),
    "chrome-devtools": Package("chrome-devtools-mcp", "1.11.0", description="A running Chrome and its tools"),
    "time": Package("mcp-server-time", "2026.10.19", description="The time, here and elsewhere", ecosystem="PyPI"),
    "git": Package("mcp-server-git", "2026.10.19", description="Git repositories on this machine", ecosystem="PyPI"),
    "fetch": Package("mcp-server-fetch", "2026.10.24", description="Web pages as Markdown", ecosystem="PyPI"),
    "duckduckgo": Package("duckduckgo-mcp-server", "0.7.0", description="Web search by DuckDuckGo", ecosystem="PyPI"),
    "arxiv": Package("arxiv-mcp-server", "0.8.2", description="Papers on arXiv", ecosystem="PyPI"),
}

MORE_MCP_SERVERS: Mapping[str, ExternalToolConfig] = MappingProxyType(
    {
        name: ExternalToolConfig(
            name=name, transport=TransportType.MCP, connection=package.command(), description=package.description
        )
        for name, package in _MORE_PACKAGES.items()
    }
)
PACKAGES: Mapping[str, Package] = MappingProxyType({**_POPULAR_PACKAGES, **_MORE_PACKAGES})


def get_preset(name: str) -> ExternalToolConfig:
    """Return the preset of this name; ValueError lists the presets."""
    preset = POPULAR_MCP_SERVERS.get(name) or MORE_MCP_SERVERS.get(name)
    if preset is None:
        raise unknown_preset(name)
    return preset


def unknown_preset(name: str) -> ValueError:
    """Return the error for a name that no preset has."""
    return ValueError(f"Unknown preset: {name}. Available: {list(PACKAGES)}")


def pinned_preset(name: str, arguments: Sequence[str] = ()) -> ExternalToolConfig:
    """Return a preset with the command of its pinned version, and with other arguments if given."""
    config, package = get_preset(name), PACKAGES[name]
    if package.version is None:
        raise ValueError(f'preset "{name}": {package.absence}')
    return config.model_copy(update={"connection": package.command(arguments)})


def with_token_variable(config: ExternalToolConfig) -> ExternalToolConfig:
    """Add to a source with `oauth2_user` what its preset defines for its program.

    That is the variable from which the program reads a user's token, and the endpoints of the sign-in. ConfigError
    for a program of a package that is not published: a launcher would search for it in vain.
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
    if not words or words[0] not in _FETCHING:  # a server that is started by other means is not of a preset
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
