"""Providers that are tools: one of an MCP server, or of any other source, stands in for an engine or a store."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.api import number, page_address, text
from toolpost.builtin.providers.protocols import (
    RetrievedChunk,
    RetrievedChunks,
    ScrapedPage,
    SearchResult,
    SearchResults,
)
from toolpost.builtin.providers.tool_answers import complaint_in, findings, page_of, place, words
from toolpost.builtin.web_access import TIMEOUT_S
from toolpost.contracts.errors import ToolClientError, ToolPermissionError, ToolServerError, ToolTimeoutError
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.schema.jsontypes import is_object
from toolpost.wire.guard import parse_target
from toolpost.wire.network import NetworkPolicy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.builtin.providers.protocols import Filters
    from toolpost.contracts.sources import Caller

_READ = "artifact_read"
_PART = 20_000
_MOST_BYTES = 2_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class McpProvider:
    """A tool as a provider; it is called as part of the run that asks, under the same policy.

    The names of its arguments are the usual ones unless others are given: query, url. How many are wanted and which
    values they must have is told only where the tool has an argument for it.
    """

    tool: str
    query: str = "query"
    count: str | None = None
    url: str = "url"
    filters: str | None = None
    timeout_s: float = TIMEOUT_S
    network: NetworkPolicy = field(default_factory=NetworkPolicy)
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
        results = [
            SearchResult(
                title=text(item, "title", "name"), url=place(item), content=words(item), score=number(item, "score")
            )
            for item in await self._found({self.query: query, **limit})
        ]
        return SearchResults(query=query, provider=self.name, results=tuple(results[:count]))

    async def scrape(self, url: str) -> ScrapedPage:
        """Have the tool read a page. What the guard refuses is not handed to a server that has none."""
        await self.network.resolve(parse_target(url))
        answer = await self._call({self.url: url})
        page = page_of(answer)
        content = words(page)
        if not content.strip():
            raise self._unreadable(answer, "the content of a page")
        return ScrapedPage(
            url=page_address(text(page, "url"), url),
            provider=self.name,
            title=text(page, "title"),
            content=content,
            media_type="text/markdown",
        )

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """Retrieve with the tool."""
        limit = {self.count: filters.limit} if self.count else {}
        narrowed = {self.filters: dict(filters.equal)} if self.filters else {}
        chunks = [
            RetrievedChunk(
                id=text(item, "id", "_id", "name") or str(order),
                text=words(item),
                source=place(item),
                score=number(item, "score"),
                metadata=item["metadata"] if is_object(item.get("metadata")) else {},
            )
            for order, item in enumerate(await self._found({self.query: query, **limit, **narrowed}))
        ]
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(chunks[: filters.limit]))

    async def close(self) -> None:
        """The tool belongs to its source."""

    async def _found(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        answer = await self._call(arguments)
        found = findings(answer)
        if found is None:
            raise self._unreadable(answer, "a list of results")
        return found

    def _unreadable(self, answer: Any, wanted: str) -> ToolServerError:
        said = complaint_in(answer)
        message = f"{self.tool!r} answered without {wanted}{f': {said}' if said else ''}; is it the right tool?"
        return ToolServerError(message, code="answer_unreadable")

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        """What the tool says, within a time that leaves some to the next provider."""
        if self.caller is None:
            raise ToolClientError(f"{self.tool!r} can only be asked in a running call", code="no_caller")
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._whole(await self._completed(self.caller, self.tool, arguments), self.caller)
        except TimeoutError:
            message = f"{self.tool!r}: no answer within {self.timeout_s:g} s"
            raise ToolTimeoutError(message, timeout_ms=self.timeout_s * 1000) from None

    async def _completed(self, caller: Caller, tool: str, arguments: Mapping[str, Any]) -> Completed:
        outcome = await caller.call(tool, arguments)
        match outcome:
            case Completed():
                return outcome
            case Failed(error=ToolPermissionError() as refused):
                # This tool may not be called; that says nothing against the next provider.
                raise ToolClientError(f"{tool!r} is refused: {refused}", code="provider_refused")
            case Failed(error=error):
                raise error
            case _:
                remedy = "allow it by a rule, or give its source trust: true if the server says that it only reads"
                message = f"{tool!r} waits for a person's answer, which no provider may need; {remedy}"
                raise ToolClientError(message, code="provider_paused")

    async def _whole(self, outcome: Completed, caller: Caller) -> Any:
        """The content; one that was too large to be handed on is read where it is kept."""
        content = outcome.content
        if not is_object(content) or "preview" not in content or content.get("artifact_id") not in outcome.artifacts:
            return content
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None and offset < _MOST_BYTES:
            asked = {"artifact_id": content["artifact_id"], "offset": offset, "limit": _PART}
            part = (await self._completed(caller, _READ, asked)).content
            parts.append(part["content"])
            offset = part["next_offset"]
        return "".join(parts)
