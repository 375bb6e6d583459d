"""What a server offers: its tools as they were listed, and for how long that holds."""

from __future__ import annotations

from itertools import chain
from typing import TYPE_CHECKING, Any, NamedTuple

from toolpost.sources.mcp.paging import items_of, list_pages
from toolpost.sources.mcp.tools import ServerTool, sift
from toolpost.sources.mcp.utilities import utility_tools

if TYPE_CHECKING:
    from toolpost.contracts.config import ExternalToolConfig
    from toolpost.sources.mcp.link import Link
    from toolpost.sources.mcp.tools import ToolServer


_LONGEST_TTL_MS = 24 * 3600 * 1000


class Listing(NamedTuple):
    """A server's tools; `ttl_s` is how long the server says that they stay as they are."""

    tools: list[ServerTool]
    problems: list[str]
    ttl_s: float | None
    raw: list[Any]


async def list_tools(link: Link, config: ExternalToolConfig, server: ToolServer, *, remote: bool) -> Listing:
    """List the server's tools, page by page, and add those for its resources and prompts."""
    capabilities = link.session.server_capabilities
    asks = capabilities is None or capabilities.tools is not None or capabilities == type(capabilities)()
    pages = await list_pages(link, "tools/list") if asks else []
    raw = list(chain.from_iterable(items_of(page, "tools") for page in pages))
    tools, problems = sift(raw, config, server, remote=remote)
    if pages and pages[-1].get("nextCursor"):
        problems.append(f"source {config.name!r} lists tools without end; the first {len(raw)} are kept")
    kept = [tool for tool in tools if _carries_headers(link, tool, config, problems)]
    names = {tool.spec.name for tool in kept}
    offered = utility_tools(capabilities, config, server, remote=remote)
    return Listing([*kept, *(tool for tool in offered if tool.spec.name not in names)], problems, _ttl(pages), raw)


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
