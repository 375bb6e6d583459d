"""How long `toolpost up` takes until it serves, with ten sources of which three are dead."""

from __future__ import annotations

import json
import socket
import sys
import tempfile
import time
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from bench.rest.gateways import Gateway, start

if TYPE_CHECKING:
    from collections.abc import Generator

_SERVER = """
import json
import sys

tool = {"name": "echo", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}
about = {"capabilities": {"tools": {}}, "serverInfo": {"name": "echo", "version": "1"}}
for line in sys.stdin:
    asked = json.loads(line)
    if "id" not in asked:
        continue
    results = {
        "initialize": {"protocolVersion": "2025-06-18", **about},
        "tools/list": {"tools": [tool]},
        "tools/call": {"content": [{"type": "text", "text": "here"}]},
        "ping": {},
    }
    result = results.get(asked["method"])
    body = {"error": {"code": -32601, "message": "not here"}} if result is None else {"result": result}
    print(json.dumps({"jsonrpc": "2.0", "id": asked["id"], **body}), flush=True)
"""
_API = {
    "openapi": "3.1.0",
    "info": {"title": "Notes", "version": "1"},
    "servers": [{"url": "http://127.0.0.1:9"}],
    "paths": {"/notes": {"get": {"operationId": "list_notes", "summary": "List notes.", "responses": {}}}},
}
_TOOLS = '''
from toolpost import tool


@tool(side_effects="pure")
async def add(a: int, b: int) -> int:
    """Add two numbers."""
    return a + b
'''


class Started(NamedTuple):
    """How long until `/readyz` answered and until a tool was called, and how the sources stood then."""

    ready_s: float
    called_s: float
    up: int
    down: list[str]


def measure(times: int) -> tuple[list[Started], list[Started]]:
    """Return starts on fresh data folders, and starts on one that knows the sources."""
    first: list[Started] = []
    again: list[Started] = []
    with _silence() as port:
        for _ in range(times):
            with tempfile.TemporaryDirectory(prefix="toolpost-start-") as folder:
                home = _furnish(Path(folder), port)
                first.append(_start(home, until_known=True))
                again.append(_start(home))
    return first, again


def _start(home: Path, *, until_known: bool = False) -> Started:
    began = time.perf_counter()
    gateway = start(home)
    try:
        assert gateway.is_ready()
        ready_s = time.perf_counter() - began
        assert gateway.ask("/calls", {"tool": "local.add", "arguments": {"a": 1, "b": 2}})["content"] == 3
        called_s = time.perf_counter() - began
        sources = gateway.ask("/sources")
        if until_known:
            _await_live(gateway)
        gateway.ask("/calls", {"tool": "server0.echo", "arguments": {}})
        return Started(ready_s, called_s, *_standing(sources))
    finally:
        gateway.kill()


def _await_live(gateway: Gateway) -> None:
    while _standing(gateway.ask("/sources"))[0] < 7:
        time.sleep(0.05)


def _standing(sources: list[dict[str, Any]]) -> tuple[int, list[str]]:
    down = [f"{one['name']} {one['state']}" for one in sources if one["state"] != "up"]
    return len(sources) - len(down), down


def _furnish(home: Path, silent_port: int) -> Path:
    """Write a configuration of seven sources that live and three that are dead, each in another way."""
    (home / "tools.py").write_text(_TOOLS)
    (home / "server.py").write_text(_SERVER)
    (home / "api.json").write_text(json.dumps(_API))
    server = f"{sys.executable} -S {home / 'server.py'}"
    sources = [
        {"name": "local", "transport": "python", "connection": "./tools.py"},
        *({"name": f"server{number}", "transport": "mcp", "connection": server} for number in range(4)),
        *({"name": f"api{number}", "transport": "http", "connection": "./api.json"} for number in range(2)),
        {"name": "refused", "transport": "mcp", "connection": "http://127.0.0.1:9/mcp"},
        {"name": "silent", "transport": "mcp", "connection": f"http://127.0.0.1:{silent_port}/mcp"},
        {"name": "missing", "transport": "mcp", "connection": "/nonexistent/server --stdio"},
    ]
    settings = {"builtins": "none", "sources": sources, "network": {"allow_private": True}}
    (home / "toolpost.yaml").write_text(json.dumps(settings))  # JSON is YAML
    return home


@contextmanager
def _silence() -> Generator[int]:
    """Listen on a port and never answer."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port: int = listening.getsockname()[1]
        yield port
