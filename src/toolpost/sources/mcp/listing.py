"""Listing of the tools of an MCP server."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import Any, NamedTuple

from toolpost.contracts.sources import ServerContents
from toolpost.schema.json_values import is_object
from toolpost.sources.base import BaseSource
from toolpost.sources.mcp.contents import declared_kinds, list_contents
from toolpost.sources.mcp.session import McpSession, items_of
from toolpost.sources.mcp.tools import ServerTool, build_tools
from toolpost.sources.mcp.utilities import utility_tools

_MAX_PROBE_WAIT_S = 2.0  # afterwards, the declared capabilities are used instead
_MAX_TTL_MS = 24 * 3600 * 1000


class ToolListing(NamedTuple):
    """The tools of a server; `ttl_s` is how long the server says that they stay valid.

    `raw` are the usable tools as the server listed them. `offers` are the kinds of its other contents, and `contents`
    are these contents, None if listing them takes too long.
    """

    tools: list[ServerTool]
    problems: list[str]
    ttl_s: float | None
    raw: list[Any]
    offers: list[str]
    contents: ServerContents | None


async def list_tools(session: McpSession, source: BaseSource) -> ToolListing:
    """List the server's tools, page by page, and add utility tools for its resources and prompts."""
    pages, contents = await _fetch(session)
    # In a thread: a server may list thousands of tools.
    return await asyncio.to_thread(_read_pages, session, source, pages, contents)


def _read_pages(
    session: McpSession, source: BaseSource, pages: list[dict[str, Any]], contents: ServerContents | None
) -> ToolListing:
    if contents is None:
        offers = declared_kinds(session)
    else:
        found = {"resources": contents.resources or contents.templates, "prompts": contents.prompts}
        offers = [kind for kind, items in found.items() if items]
    raw = list(chain.from_iterable(items_of(page, "tools") for page in pages))
    tools, problems = build_tools(raw, source)
    if pages and pages[-1].get("nextCursor"):
        problems.append(f"source {source.name!r} does not end its list of tools; the first {len(raw)} are kept")
    if session.client_session.modern:
        tools = [tool for tool in tools if _register_headers(session, tool, source.name, problems)]
    if len(tools) < len(raw):
        names = {tool.remote_name for tool in tools}
        raw = [one for one in raw if is_object(one) and one.get("name") in names]
    all_tools = add_utility_tools(tools, offers, source)
    return ToolListing(all_tools, problems, _ttl(pages), raw, offers, contents)


async def _fetch(session: McpSession) -> tuple[list[dict[str, Any]], ServerContents | None]:
    """Request the pages of tools and, concurrently, resources and prompts."""
    capabilities = session.client_session.server_capabilities
    asks = capabilities is None or capabilities.tools is not None or capabilities == type(capabilities)()
    probe = asyncio.get_running_loop().create_task(list_contents(session))
    try:
        pages = await session.list_pages("tools/list") if asks else []
        in_time, _ = await asyncio.wait([probe], timeout=_MAX_PROBE_WAIT_S)
        return pages, probe.result() if in_time else None
    finally:
        probe.cancel()
        await asyncio.gather(probe, return_exceptions=True)


def add_utility_tools(tools: list[ServerTool], offers: list[str], source: BaseSource) -> list[ServerTool]:
    """Add the utility tools; a tool of the server with the same name has precedence."""
    names = {tool.spec.name for tool in tools}
    more = utility_tools(offers, source)
    return [*tools, *(tool for tool in more if tool.spec.name not in names)]


def _register_headers(session: McpSession, tool: ServerTool, source: str, problems: list[str]) -> bool:
    """Register a tool's header arguments; False when they are invalid and the tool must not be offered."""
    reason = session.client_session.register_header_arguments(tool.remote_name, tool.spec.input_schema)
    tool.has_header_arguments = session.client_session.has_header_arguments(tool.remote_name)
    if reason is not None:
        problems.append(f"tool {tool.remote_name!r} of source {source!r} is skipped: {reason}")
    return reason is None


def _ttl(pages: list[dict[str, Any]]) -> float | None:
    values = [page.get("ttlMs") for page in pages]
    ttls = [min(ttl, _MAX_TTL_MS) / 1000 for ttl in values if isinstance(ttl, int | float) and ttl > 0]
    return min(ttls) if ttls else None
