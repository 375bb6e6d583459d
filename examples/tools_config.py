"""A configuration file with timeouts, limits, allowed paths, web search and MCP servers.

Prints:
timeout 30 s, 3 at once, 3 allowed paths
filesystem: npx -y @modelcontextprotocol/server-filesystem /tmp
remote: http://localhost:3000/sse (off)
"""

import asyncio
import os
from pathlib import Path

from toolpost import Settings
from toolpost.configuration.loading import load_settings

FILE = Path(__file__).with_name("config.yml")


def read() -> Settings:
    """Read the file; a variable that is not set is an error."""
    os.environ["WEB_SEARCH_API_KEY"] = "tvly-example"
    return load_settings(FILE).settings


async def main() -> None:
    """Print what the file says."""
    settings = read()
    tools = settings.tools
    print(
        f"timeout {tools.timeout_s:g} s, {tools.max_concurrent} at once, {len(tools.allowed_paths or [])} allowed paths"
    )
    for server in tools.mcp_servers:
        config = server.to_external_config()
        print(f"{config.name}: {config.connection}{'' if config.enabled else ' (off)'}")


if __name__ == "__main__":
    asyncio.run(main())
