"""Utility tools: list and read the resources of an MCP server, list and fill in its prompts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.config import ExternalToolConfig
from toolpost.contracts.errors import ToolClientError
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec
from toolpost.sources.base import BaseSource
from toolpost.sources.mcp.endpoint import is_remote
from toolpost.sources.mcp.results import parse_result
from toolpost.sources.mcp.session import McpSession
from toolpost.sources.mcp.tools import ServerTool, server_targets

if TYPE_CHECKING:
    from toolpost.contracts.context import ToolContext

_NO_ARGUMENTS: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
_ONE_URI: dict[str, Any] = {
    "type": "object",
    "properties": {"uri": {"type": "string", "description": "The resource's address, as resources_list shows it"}},
    "required": ["uri"],
    "additionalProperties": False,
}
_ONE_PROMPT: dict[str, Any] = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "description": "The prompt's name, as prompts_list shows it"},
        "arguments": {"type": "object", "additionalProperties": {"type": "string"}},
    },
    "required": ["name"],
    "additionalProperties": False,
}
_OFFERED = {
    "resources": (
        ("resources_list", "List the resources of {} and the templates for more.", _NO_ARGUMENTS),
        ("resources_read", "Read one resource of {}.", _ONE_URI),
    ),
    "prompts": (
        ("prompts_list", "List the prompts of {}.", _NO_ARGUMENTS),
        ("prompts_get", "Fill in one prompt of {}.", _ONE_PROMPT),
    ),
}


class UtilityTool(ServerTool):
    """A tool over a server's resources or prompts."""

    __slots__ = ()


def utility_tools(offers: Sequence[str], source: BaseSource) -> list[UtilityTool]:
    """Build the utility tools for the capabilities of the server."""
    config = source.config
    return [
        UtilityTool(_utility_spec(name, text, schema, config), name, source)
        for kind, tools in _OFFERED.items()
        if kind in offers
        for name, text, schema in tools
        if config.includes(name)
    ]


def _utility_spec(name: str, text: str, schema: dict[str, Any], config: ExternalToolConfig) -> ToolSpec:
    remote = is_remote(config)
    return ToolSpec(
        name=f"{config.name}.{name}",
        description=text.format(config.name),
        category=ToolCategory.MCP,
        input_schema=schema,
        side_effects="read",
        safety=SafetyProfile(network=remote, destructive=False, open_world=remote),
        tags=("mcp", config.name),
        source=config.name,
        origin=config.name,
        extra={"source": "mcp", "namespace": config.name, "helper": True},
        target=server_targets(config)(name),
    )


async def run_utility(
    session: McpSession, name: str, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
) -> ToolOutput:
    """Run a utility tool by name."""
    match name:
        case "resources_list":
            resources = await session.list_all("resources/list", "resources")
            templates: list[Any] = []
            with suppress(ToolClientError):  # the server may not know the method
                templates = await session.list_all("resources/templates/list", "resourceTemplates")
            return ToolOutput({"resources": resources, "templates": templates})
        case "resources_read":
            return await read_resource(session, str(arguments["uri"]), context)
        case "prompts_list":
            return ToolOutput({"prompts": await session.list_all("prompts/list", "prompts")})
        case _:
            params = {"name": arguments["name"], "arguments": dict(arguments.get("arguments") or {})}
            raw = await session.request("prompts/get", params)
            return ToolOutput({key: raw[key] for key in ("description", "messages") if key in raw})


async def read_resource(session: McpSession, uri: str, context: Callable[[], ToolContext]) -> ToolOutput:
    """Read a resource; files become artifacts."""
    raw = await session.request("resources/read", {"uri": uri})
    contents = cast("list[Any]", raw.get("contents") or [])
    return await parse_result({"content": [{"type": "resource", "resource": held} for held in contents]}, context)
