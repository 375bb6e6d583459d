"""The entry for an MCP client that starts `toolpost serve`, from wherever and with whatever PATH."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.cli.program import child_environment
from tests.gateway.running import furnish

pytestmark = pytest.mark.programs


async def test_the_printed_entry_starts_the_server_from_another_folder_without_our_path(tmp_path: Path) -> None:
    home, elsewhere = furnish(tmp_path / "home"), tmp_path / "elsewhere"
    elsewhere.mkdir()
    printed = subprocess.run(
        [sys.executable, "-m", "toolpost", "serve", "--client-config", "--user", "acme:bot"],
        cwd=home,
        env=child_environment(),
        capture_output=True,
        text=True,
        check=True,
    )
    entry = json.loads(printed.stdout)["mcpServers"]["toolpost"]
    server = StdioServerParameters(
        command=entry["command"], args=entry["args"], cwd=elsewhere, env={**child_environment(), "PATH": "/nowhere"}
    )
    async with Client(stdio_client(server), mode="legacy") as client:
        result = await client.call_tool("local__add", {"a": 2, "b": 3})

    assert Path(entry["command"]).is_absolute()
    assert entry["args"][-2:] == ["--user", "acme:bot"]
    assert result.structured_content == {"result": 5}
