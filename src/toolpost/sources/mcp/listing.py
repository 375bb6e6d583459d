"""What a server offers: its tools as they were listed, and for how long that holds."""

from __future__ import annotations

import asyncio
from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.schema.jsontypes import is_object
from toolpost.sources.mcp.paging import items_of, list_pages
from toolpost.sources.mcp.resources import declared_offers, offers_of, utility_tools
from toolpost.sources.mcp.tools import ServerTool, sift

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.mcp.memory import Listed
    from toolpost.sources.mcp.session import Link
    from toolpost.sources.mcp.tools import ToolServer


_PATIENCE_S = 2.0  # what a server has beside tools is taken on its word where it does not list it soon after them
_LONGEST_TTL_MS = 24 * 3600 * 1000


class Listing(NamedTuple):
    """A server's tools; `ttl_s` is how long the server says that they stay as they are.

    `raw` are the tools that can be offered as the server listed them, `offers` what it has beside tools.
    """

    tools: list[ServerTool]
    problems: list[str]
    ttl_s: float | None
    raw: list[Any]
    offers: list[str]


async def list_tools(link: Link, config: ExternalToolConfig, server: ToolServer, *, remote: bool) -> Listing:
    """List the server's tools, page by page, and add those for its resources and prompts, if it has any."""
    pages, offers = await _asked(link)
    raw = list(chain.from_iterable(items_of(page, "tools") for page in pages))
    tools, problems = await asyncio.to_thread(sift, raw, config, server, remote=remote)
    if pages and pages[-1].get("nextCursor"):
        problems.append(f"source {config.name!r} lists tools without end; the first {len(raw)} are kept")
    kept = [tool for tool in tools if _carries_headers(link, tool, config, problems)]
    names = {tool.remote_name for tool in kept}
    offerable = [one for one in raw if is_object(one) and one.get("name") in names]
    tools_and_more = _beside(kept, offers, config, server, remote=remote)
    return Listing(tools_and_more, problems, _ttl(pages), offerable, offers)


async def _asked(link: Link) -> tuple[list[dict[str, Any]], list[str]]:
    """The pages of tools, and what there is beside tools; the two are asked for at once."""
    capabilities = link.session.server_capabilities
    asks = capabilities is None or capabilities.tools is not None or capabilities == type(capabilities)()
    beside = asyncio.get_running_loop().create_task(offers_of(link))
    try:
        pages = await list_pages(link, "tools/list") if asks else []
        in_time, _ = await asyncio.wait([beside], timeout=_PATIENCE_S)
        return pages, beside.result() if in_time else declared_offers(link)
    finally:
        beside.cancel()
        await asyncio.gather(beside, return_exceptions=True)


def known_tools(
    listed: Listed, config: ExternalToolConfig, server: ToolServer, *, remote: bool
) -> tuple[list[ServerTool], list[str]]:
    """The tools of an earlier listing, and what was left out of them and why."""
    tools, problems = sift(listed.tools, config, server, remote=remote)
    for tool in tools:
        tool.mirrors = True  # no session has looked at its schema yet; the first call on each does
    return _beside(tools, listed.offers, config, server, remote=remote), problems


def _beside(
    tools: list[ServerTool], offers: list[str], config: ExternalToolConfig, server: ToolServer, *, remote: bool
) -> list[ServerTool]:
    """A server's tools, and those for what it has beside them; a tool of its own has precedence."""
    names = {tool.spec.name for tool in tools}
    more = utility_tools(offers, config, server, remote=remote)
    return [*tools, *(tool for tool in more if tool.spec.name not in names)]


def _carries_headers(link: Link, tool: ServerTool, config: ExternalToolConfig, problems: list[str]) -> bool:
    """Whether the headers that a tool asks for can be sent; the protocol forbids offering it otherwise."""
    reason = link.session.learn_headers(tool.remote_name, tool.spec.input_schema)
    tool.mirrors = link.session.mirrors(tool.remote_name)
    if reason is not None:
        problems.append(f"tool {tool.remote_name!r} of source {config.name!r} is set aside: {reason}")
    return reason is None


def _ttl(pages: list[dict[str, Any]]) -> float | None:
    given = [page.get("ttlMs") for page in pages]
    ttls = [min(ttl, _LONGEST_TTL_MS) / 1000 for ttl in given if isinstance(ttl, int | float) and ttl > 0]
    return min(ttls) if ttls else None
