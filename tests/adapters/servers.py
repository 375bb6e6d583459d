"""MCP servers that tests of adapters run against."""

import json
import shlex
import sys
from pathlib import Path
from typing import Any

SMALL = Path(__file__).with_name("small_server.py")
OBJECT = {"type": "object"}


def small_server(*tools: dict[str, Any]) -> str:
    """The command of a server with these tools."""
    return shlex.join([sys.executable, "-I", "-S", str(SMALL), json.dumps(tools)])


def described(name: str, /, *, required: tuple[str, ...] = (), read_only: bool = True, **properties: Any) -> Any:
    """A tool as a server lists it."""
    schema = {"type": "object", "properties": properties, "required": list(required)}
    about = f"About {name}."
    return {"name": name, "description": about, "inputSchema": schema, "annotations": {"readOnlyHint": read_only}}
