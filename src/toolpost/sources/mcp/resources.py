"""A server's resources and prompts as tools: listed, read and filled in like any other call."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.errors import ToolClientError, ToolError
from toolpost.contracts.spec import SafetyProfile, ToolCategory, ToolSpec
from toolpost.sources.mcp.paging import items_of, list_all
from toolpost.sources.mcp.results import output_of
from toolpost.sources.mcp.tools import ServerTool, server_targets

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.contracts.context import ToolContext
    from toolpost.sources.mcp.session import Link
    from toolpost.sources.mcp.tools import ToolServer

_NOTHING: dict[str, Any] = {"type": "object", "properties": {}, "additionalProperties": False}
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
        ("resources_list", "List the resources of {} and the templates for more.", _NOTHING),
        ("resources_read", "Read one resource of {}.", _ONE_URI),
    ),
    "prompts": (
        ("prompts_list", "List the prompts of {}.", _NOTHING),
        ("prompts_get", "Fill in one prompt of {}.", _ONE_PROMPT),
    ),
}


_LISTS = {
    "resources": (("resources/list", "resources"), ("resources/templates/list", "resourceTemplates")),
    "prompts": (("prompts/list", "prompts"),),
}


class UtilityTool(ServerTool):
    """A tool of ours over what a server offers beside its tools."""

    __slots__ = ()


def declared_offers(link: Link) -> list[str]:
    """What a server says it may have beside tools."""
    capabilities = link.session.server_capabilities
    return [kind for kind in _OFFERED if getattr(capabilities, kind, None) is not None]


async def offers_of(link: Link) -> list[str]:
    """What a server really has beside tools: of what it declares, that whose lists are not empty."""
    asked = [(kind, method, key) for kind in declared_offers(link) for method, key in _LISTS[kind]]
    found = await asyncio.gather(*(_has_any(link, method, key) for _, method, key in asked))
    return list(dict.fromkeys(kind for (kind, _, _), has in zip(asked, found, strict=True) if has))


async def _has_any(link: Link, method: str, key: str) -> bool:
    """Whether a list has an item; one that the server does not give has none."""
    try:
        page = await link.ask(method, {})
    except ToolError:
        return False
    return bool(items_of(page, key)) or bool(page.get("nextCursor"))


def utility_tools(
    offers: Sequence[str], config: ExternalToolConfig, server: ToolServer, *, remote: bool
) -> list[UtilityTool]:
    """The tools for what the server says it has."""
    return [
        UtilityTool(_spec(name, text, schema, config, remote=remote), name, server)
        for kind, tools in _OFFERED.items()
        if kind in offers
        for name, text, schema in tools
        if config.includes(name)
    ]


def _spec(name: str, text: str, schema: dict[str, Any], config: ExternalToolConfig, *, remote: bool) -> ToolSpec:
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
    link: Link, name: str, arguments: Mapping[str, Any], context: Callable[[], ToolContext]
) -> ToolOutput:
    """Run one of them."""
    match name:
        case "resources_list":
            resources = await list_all(link, "resources/list", "resources")
            return ToolOutput({"resources": resources, "templates": await _templates(link)})
        case "resources_read":
            return await read_resource(link, str(arguments["uri"]), context)
        case "prompts_list":
            return ToolOutput({"prompts": await list_all(link, "prompts/list", "prompts")})
        case _:
            params = {"name": arguments["name"], "arguments": dict(arguments.get("arguments") or {})}
            raw = await link.ask("prompts/get", params)
            return ToolOutput({key: raw[key] for key in ("description", "messages") if key in raw})


async def _templates(link: Link) -> list[Any]:
    """The templates; a server that knows none says that it does not know the question."""
    try:
        return await list_all(link, "resources/templates/list", "resourceTemplates")
    except ToolClientError:
        return []


async def read_resource(link: Link, uri: str, context: Callable[[], ToolContext]) -> ToolOutput:
    """A resource's content; files become artifacts."""
    raw = await link.ask("resources/read", {"uri": uri})
    contents = cast("list[Any]", raw.get("contents") or [])
    return await output_of({"content": [{"type": "resource", "resource": held} for held in contents]}, context)
