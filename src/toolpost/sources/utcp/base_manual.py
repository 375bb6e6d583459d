"""The manual of a bare address or command that has none: one tool, which sends to it what it is given."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.sources.utcp.manuals import manual_name, manual_of
from toolpost.sources.utcp.scripts import placeholders
from toolpost.sources.utcp.templates import CommandStep

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.utcp.manuals import Manual

_TOOL = "call"


def base_manual(config: ExternalToolConfig) -> Manual:
    """The inline manual of a connection: a POST to an address, or a command with a place for each argument."""
    connection = config.connection.strip()
    is_address = connection.startswith(("http://", "https://"))
    tool = _request(config, connection) if is_address else _command(config, connection)
    return manual_of({"tools": [tool]}, name=manual_name(config.name), kind="http" if is_address else "cli")


def _request(config: ExternalToolConfig, url: str) -> dict[str, Any]:
    return {
        "name": _TOOL,
        "description": config.description or f"Send a request to {url.partition('?')[0]}.",
        "inputs": {
            "type": "object",
            "properties": {"body": {"description": "What is sent, as JSON"}},
            "description": "Everything beside the body is sent as the query.",
        },
        "tool_call_template": {
            "name": config.name,
            "call_template_type": "http",
            "url": url,
            "http_method": "POST",
            "body_field": "body",
        },
    }


def _command(config: ExternalToolConfig, command: str) -> dict[str, Any]:
    wanted = placeholders([CommandStep(command=command)])
    scalar = {"type": ["string", "number", "boolean"]}
    return {
        "name": _TOOL,
        "description": config.description or f"Run {command.split(maxsplit=1)[0]}.",
        "inputs": {
            "type": "object",
            "properties": dict.fromkeys(wanted, scalar),
            "required": wanted,
            "additionalProperties": False,
        },
        "tool_call_template": {
            "name": config.name,
            "call_template_type": "cli",
            "commands": [{"command": command}],
            "working_dir": config.cwd,
        },
    }
