"""Providers that are tools: one of an MCP server, or of any other source, stands in for an engine or a store."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.api import number, objects, text
from toolpost.builtin.providers.protocols import (
    RetrievedChunk,
    RetrievedChunks,
    ScrapedPage,
    SearchResult,
    SearchResults,
)
from toolpost.contracts.errors import ToolClientError, ToolServerError
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.builtin.providers.protocols import Filters
    from toolpost.contracts.sources import Caller

_LISTS = ("results", "items", "data", "chunks", "documents", "web", "hits")
_CONTENT = ("content", "text", "snippet", "description", "body", "markdown")
_URL = ("url", "link", "href", "source", "uri")


@dataclass(frozen=True, slots=True, kw_only=True)
class McpProvider:
    """A tool as a provider; it is called as part of the run that asks, under the same policy.

    The names of its arguments are the usual ones unless others are given: query, count, url, filters.
    """

    tool: str
    query: str = "query"
    count: str | None = None
    url: str = "url"
    filters: str | None = None
    caller: Caller | None = None

    @property
    def name(self) -> str:
        """Who it is."""
        return self.tool

    def within(self, caller: Caller) -> McpProvider:
        """The same provider for the calls of one run."""
        return replace(self, caller=caller)

    async def search(self, query: str, count: int) -> SearchResults:
        """Search with the tool."""
        limit = {self.count: count} if self.count else {}
        found = _items(await self._call({self.query: query, **limit}))
        results = [
            SearchResult(
                title=text(item, "title", "name"),
                url=text(item, *_URL),
                content=text(item, *_CONTENT),
                score=number(item, "score"),
            )
            for item in found
        ]
        return SearchResults(query=query, provider=self.name, results=tuple(results[:count]))

    async def scrape(self, url: str) -> ScrapedPage:
        """Have the tool read a page."""
        found = await self._call({self.url: url})
        page = found if is_object(found) else {"content": _as_text(found)}
        return ScrapedPage(
            url=text(page, "url") or url,
            provider=self.name,
            title=text(page, "title"),
            content=text(page, *_CONTENT),
            media_type="text/markdown",
        )

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """Retrieve with the tool."""
        limit = {self.count: filters.limit} if self.count else {}
        narrowed = {self.filters: dict(filters.equal)} if self.filters else {}
        found = _items(await self._call({self.query: query, **limit, **narrowed}))
        chunks = [
            RetrievedChunk(
                id=text(item, "id", "_id") or str(place),
                text=text(item, *_CONTENT),
                source=text(item, *_URL),
                score=number(item, "score"),
                metadata=item["metadata"] if is_object(item.get("metadata")) else {},
            )
            for place, item in enumerate(found)
        ]
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(chunks[: filters.limit]))

    async def close(self) -> None:
        """The tool belongs to its source."""

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        if self.caller is None:
            raise ToolClientError(f"{self.tool!r} can only be asked in a running call", code="no_caller")
        outcome = await self.caller.call(self.tool, arguments)
        match outcome:
            case Completed(content=content):
                return _parsed(content)
            case Failed(error=error):
                raise error
            case _:
                message = (
                    f"{self.tool!r} waits for a person's answer; a provider must not need one, so allow it by a rule"
                )
                raise ToolClientError(message, code="provider_paused")


def _parsed(content: Any) -> Any:
    """What a tool said; many MCP servers write JSON as text."""
    if not isinstance(content, str) or content.lstrip()[:1] not in ("{", "["):
        return content
    try:
        return json.loads(content)
    except (ValueError, RecursionError):
        return content


def _items(found: Any) -> list[dict[str, Any]]:
    """The list of things in an answer, wherever it is; a text alone is one thing."""
    if is_array(found):
        return [item for item in found if is_object(item)]
    for key in _LISTS:
        if items := objects(found, key) or objects(found, key, "results"):
            return items
    if is_object(found) and any(is_array(found.get(key)) for key in _LISTS):
        return []
    if isinstance(found, str) and found.strip():
        return [{"content": found}]
    raise ToolServerError("the tool answered without a list of results", code="answer_unreadable")


def _as_text(found: Any) -> str:
    return found if isinstance(found, str) else json.dumps(found, ensure_ascii=False)
