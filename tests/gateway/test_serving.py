"""`toolpost serve` and `toolpost up`, as other programs start and reach them."""

import asyncio
import json
import os
import signal
import socket
import stat
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client

from tests.cli.program import child_environment, command

pytestmark = pytest.mark.programs
CONFIG = "builtins: [data_tools]\nsources:\n  - {name: local, transport: python, connection: ./tools.py}\n"
TOOLS = '''
import time
from pathlib import Path

from toolpost import tool

@tool(side_effects="pure")
def nap() -> str:
    """Sleep, and say when that begins."""
    Path(__file__).with_name("begun").touch()
    time.sleep(1)
    return "rested"

@tool(side_effects="pure")
def add(a: int, b: int) -> int:
    """Add two numbers."""
    print("careless authors print")
    return a + b
'''


@pytest.fixture
def home(tmp_path: Path) -> Path:
    (tmp_path / "toolpost.yaml").write_text(CONFIG)
    (tmp_path / "tools.py").write_text(TOOLS)
    return tmp_path


@contextmanager
def gateway(home: Path, *, stopping: bool = False) -> Iterator[tuple[str, subprocess.Popen[str]]]:
    """A running `toolpost up` on a free port, and the address that it printed."""
    started = subprocess.Popen(
        command("up", "--port", "0", "--json"), cwd=home, env=child_environment(), stdout=subprocess.PIPE, text=True
    )
    assert started.stdout is not None
    try:
        yield json.loads(started.stdout.readline())["mcp"], started
    finally:
        if not stopping:
            started.send_signal(signal.SIGTERM)
        started.wait(30)
        started.stdout.close()


@pytest.mark.parametrize("era", ["legacy", "auto"])
async def test_a_client_that_starts_serve_lists_and_calls(home: Path, era: Any) -> None:
    program, *arguments = command("serve")
    server = StdioServerParameters(command=program, args=arguments, cwd=home, env=child_environment())
    async with Client(stdio_client(server), mode=era) as client:
        names = {one.name for one in (await client.list_tools()).tools}
        result = await client.call_tool("local__add", {"a": 2, "b": 3})

    assert {"local__add", "base64_encode"} <= names
    assert result.structured_content == {"result": 5}


async def test_up_serves_whoever_shows_the_token_of_the_data_folder(home: Path) -> None:
    with gateway(home) as (address, _):
        token = home / ".toolpost" / "token"
        headers = {"Authorization": f"Bearer {token.read_text()}"}
        async with httpx2.AsyncClient(headers=headers) as http:
            async with Client(streamable_http_client(address, http_client=http)) as client:
                result = await client.call_tool("local__add", {"a": 2, "b": 3})
            foreign = await http.post(address, json={}, headers={"Host": "evil.example"})
            page = await http.post(address, json={}, headers={"Origin": "http://evil.example"})
            huge = await http.post(address, content=b"x" * 5_000_000)
        async with httpx2.AsyncClient() as http:
            stranger = await http.post(address, json={})
            health = await http.get(address.replace("/mcp", "/healthz"))

    assert result.structured_content == {"result": 5}
    assert [stranger.status_code, health.status_code] == [401, 200]
    assert foreign.status_code in (403, 421)
    assert (page.status_code, huge.status_code) == (403, 413)
    assert stat.S_IMODE(token.stat().st_mode) == 0o600


async def test_up_finishes_the_calls_under_way_and_leaves_with_success(home: Path) -> None:
    with gateway(home, stopping=True) as (address, process):
        http = httpx2.AsyncClient(headers={"Authorization": f"Bearer {(home / '.toolpost' / 'token').read_text()}"})
        async with http, Client(streamable_http_client(address, http_client=http)) as client:
            await client.list_tools()  # a client looks up the output schema when the result comes
            call = asyncio.create_task(client.call_tool("local__nap", {}))
            while not (home / "begun").exists():
                await asyncio.sleep(0.05)
            os.kill(process.pid, signal.SIGTERM)
            result = await call

    assert result.structured_content == {"result": "rested"}
    assert process.returncode == 0


def test_a_port_that_is_taken_is_said(home: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        second = subprocess.run(
            command("up", "--port", port),
            cwd=home,
            env=child_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )

    assert second.returncode == 1
    assert "choose another --port" in second.stderr
