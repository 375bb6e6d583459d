"""Well-known MCP servers by name.

Prints:
github: npx -y @modelcontextprotocol/server-github (oauth2_user)
filesystem: npx -y @modelcontextprotocol/server-filesystem /data (none)
postgres: npx -y @modelcontextprotocol/server-postgres (none)
slack: npx -y @modelcontextprotocol/server-slack (oauth2_user)
google-drive: npx -y @anthropic/mcp-server-google-drive (oauth2_user)
Unknown preset: nowhere
"""

import asyncio

from toolpost.compat.penguiflow.tools import POPULAR_MCP_SERVERS, get_preset


async def main() -> None:
    """List the presets."""
    for name in POPULAR_MCP_SERVERS:
        preset = get_preset(name)
        print(f"{name}: {preset.connection} ({preset.auth_type})")
    try:
        get_preset("nowhere")
    except ValueError as unknown:
        print(str(unknown).partition(".")[0])


if __name__ == "__main__":
    asyncio.run(main())
