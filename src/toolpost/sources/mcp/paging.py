"""Listings that come in pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from toolpost.schema.jsontypes import is_array

if TYPE_CHECKING:
    from toolpost.sources.mcp.session import Link

_MOST_PAGES = 1000


async def list_pages(link: Link, method: str) -> list[dict[str, Any]]:
    """A listing page by page; the last one still has a cursor when the server would not come to an end."""
    pages: list[dict[str, Any]] = []
    seen: set[str] = set()
    cursor: str | None = None
    while True:
        page = await link.ask(method, {} if cursor is None else {"cursor": cursor})
        pages.append(page)
        cursor = page.get("nextCursor")
        if not isinstance(cursor, str) or not cursor or cursor in seen or len(pages) == _MOST_PAGES:
            return pages
        seen.add(cursor)


async def list_all(link: Link, method: str, key: str) -> list[Any]:
    """Everything in a listing."""
    return [item for page in await list_pages(link, method) for item in items_of(page, key)]


def items_of(page: dict[str, Any], key: str) -> list[Any]:
    """What a page lists; nothing when it is not a list at all."""
    items: Any = page.get(key)
    return items if is_array(items) else []
