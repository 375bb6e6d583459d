"""The npm and PyPI packages of presets, pinned to reviewed versions."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Package:
    """The package of a preset's server, pinned to a reviewed version.

    Without a version the package is not published, and `advice` names an alternative. `reads` are the environment
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
        """The message for a package that is not published, with an alternative."""
        return f"the package {self.name} is not on {self.ecosystem}; {self.advice}"

    def command(self, arguments: Sequence[str] = ()) -> str:
        """Return the command line that starts exactly this version, with other arguments if given."""
        launcher = "npx -y" if self.ecosystem == "npm" else "uvx"
        return f"{launcher} {self.name}@{self.version} {shlex.join(arguments) or self.arguments}".rstrip()


# Versions are pinned: a name alone would run any later version, also one of an attacker who takes over the name.
POPULAR_PACKAGES = {
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
MORE_PACKAGES = {
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
