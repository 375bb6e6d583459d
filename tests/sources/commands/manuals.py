"""Manuals of commands for these tests, in files and at addresses."""

import json
from pathlib import Path
from typing import Any

from tests.wire.site import Site, reply
from toolpost import ExternalToolConfig


def command(name: str, *commands: str, template: dict[str, Any] | None = None, **fields: Any) -> dict[str, Any]:
    """A tool whose call template is a command."""
    steps = [{"command": one} for one in commands]
    call = {"call_template_type": "cli", "commands": steps, **(template or {})}
    return {"name": name, "description": f"The tool {name}.", "tool_call_template": call, **fields}


def request(name: str, **fields: Any) -> dict[str, Any]:
    """A tool whose call template is a request."""
    call = {"call_template_type": "http", "url": "https://api.example/x"}
    return {"name": name, "description": f"The tool {name}.", "tool_call_template": call, **fields}


def manual(*tools: dict[str, Any]) -> dict[str, Any]:
    return {"utcp_version": "1.0.1", "manual_version": "1.0.0", "tools": list(tools)}


def written(folder: Path, *tools: dict[str, Any]) -> str:
    """A manual in a file."""
    path = folder / "tools.utcp.json"
    path.write_text(json.dumps(manual(*tools)))
    return str(path)


def published(*tools: dict[str, Any]) -> Site:
    """A manual at an address."""
    return Site(reply(body=json.dumps(manual(*tools)).encode(), content_type="application/json"))


def source(
    path: str, tools: dict[str, Any] | None = None, *, options: dict[str, Any] | None = None, **settings: Any
) -> Any:
    """A source that has its tools from a manual."""
    given: dict[str, Any] = {
        "name": "cmd",
        "transport": "cli",
        "options": {"manual": path, "tools": tools or {}, **(options or {})},
        **settings,
    }
    return ExternalToolConfig(**given)
