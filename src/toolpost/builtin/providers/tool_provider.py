"""Tools as providers: a tool of an MCP server, or of any other source, searches, reads pages or retrieves."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

from msgspec import Struct, field
from msgspec.structs import replace

from toolpost.builtin.providers.api import finite_number, first_text, objects, page_address
from toolpost.builtin.providers.protocols import (
    Filters,
    RetrievedChunk,
    RetrievedChunks,
    ScrapedPage,
    SearchResult,
    SearchResults,
)
from toolpost.builtin.web_client import TIMEOUT_S
from toolpost.contracts.errors import ToolClientError, ToolPermissionError, ToolServerError, ToolTimeoutError
from toolpost.contracts.outcomes import Completed, Failed
from toolpost.schema.json_values import is_array, is_object
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import parse_target

if TYPE_CHECKING:
    from collections.abc import Mapping

    from toolpost.contracts.sources import ToolCaller

_READ = "artifact_read"
_PART = 20_000
_MOST_BYTES = 2_000_000
_LISTS = (
    *("results", "items", "data", "chunks", "documents", "web", "hits", "webPages"),
    *("organic", "organic_results", "entities", "content"),
)
_PATHS = tuple((key, *inner) for inner in ((), ("results",), ("hits",), ("value",)) for key in _LISTS)
_WORDS = ("content", "text", "snippet", "description", "body", "markdown", "summary", "observations")
_PLACES = ("url", "link", "href", "source", "uri")
_LABELS = {
    **dict.fromkeys(("title", "name"), "title"),
    **dict.fromkeys(("url", "link"), "url"),
    **dict.fromkeys(("description", "content", "snippet", "summary", "text"), "content"),
}
_LABEL = re.compile(rf"[\s#*-]*(?:\d+[.)]\s+)?\**({'|'.join(_LABELS)})\**:\**[ \t]*(.*)", re.IGNORECASE)


class McpProvider(Struct, frozen=True, kw_only=True):
    """Calls a tool as a provider, in the run that needs it and under the same policy.

    `query`, `count`, `url` and `filters` name the arguments of the tool; None if the tool has no such argument.
    """

    tool: str
    query: str = "query"
    count: str | None = None
    url: str = "url"
    filters: str | None = None
    timeout_s: float = TIMEOUT_S
    network: NetworkPolicy = field(default_factory=lambda: NetworkPolicy(ip_literals=False))
    caller: ToolCaller | None = None

    @property
    def name(self) -> str:
        return self.tool

    def within(self, caller: ToolCaller) -> McpProvider:
        """Bind the provider to the calls of one run."""
        return replace(self, caller=caller)

    async def search(self, query: str, count: int) -> SearchResults:
        limit = {self.count: count} if self.count else {}
        results = [
            SearchResult(
                title=first_text(item, "title", "name"),
                url=source_of(item),
                content=text_of(item),
                score=finite_number(item, "score"),
            )
            for item in await self._call_for_items({self.query: query, **limit})
        ]
        return SearchResults(query=query, provider=self.name, results=tuple(results[:count]))

    async def scrape(self, url: str) -> ScrapedPage:
        """Read a page with the tool; a URL rejected by the guard is not sent to the tool."""
        await self.network.resolve(parse_target(url))
        result = await self._call({self.url: url})
        page = find_page(result)
        content = text_of(page)
        if not content.strip():
            raise self._unreadable(result, "the content of a page")
        return ScrapedPage(
            url=page_address(first_text(page, "url"), url),
            provider=self.name,
            title=first_text(page, "title"),
            content=content,
            media_type="text/markdown",
        )

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        limit = {self.count: filters.limit} if self.count else {}
        narrowed = {self.filters: dict(filters.equal)} if self.filters else {}
        chunks = [
            RetrievedChunk(
                id=first_text(item, "id", "_id", "name") or str(order),
                text=text_of(item),
                source=source_of(item),
                score=finite_number(item, "score"),
                metadata=item["metadata"] if is_object(item.get("metadata")) else {},
            )
            for order, item in enumerate(await self._call_for_items({self.query: query, **limit, **narrowed}))
        ]
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(chunks[: filters.limit]))

    async def close(self) -> None:
        """Close nothing: the tool belongs to its source."""

    async def _call_for_items(self, arguments: Mapping[str, Any]) -> list[dict[str, Any]]:
        result = await self._call(arguments)
        items = find_items(result)
        if items is None:
            raise self._unreadable(result, "a list of results")
        return items

    def _unreadable(self, result: Any, expected: str) -> ToolServerError:
        error_text = find_error(result)
        message = (
            f"{self.tool!r} answered without {expected}{f': {error_text}' if error_text else ''}; is it the right tool?"
        )
        return ToolServerError(message, code="answer_unreadable")

    async def _call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the tool, within a timeout that leaves time for the next provider."""
        if self.caller is None:
            raise ToolClientError(f"{self.tool!r} can only be used in a running call", code="no_caller")
        try:
            async with asyncio.timeout(self.timeout_s):
                return await self._whole(await self._call_tool(self.caller, self.tool, arguments), self.caller)
        except TimeoutError:
            message = f"{self.tool!r}: no answer within {self.timeout_s:g} s"
            raise ToolTimeoutError(message, timeout_ms=self.timeout_s * 1000) from None

    async def _call_tool(self, caller: ToolCaller, tool: str, arguments: Mapping[str, Any]) -> Completed:
        outcome = await caller.call(tool, arguments)
        match outcome:
            case Completed():
                return outcome
            case Failed(error=ToolPermissionError() as refused):
                # The policy denies this tool, not the next provider.
                raise ToolClientError(f"{tool!r} is refused: {refused}", code="provider_refused")
            case Failed(error=error):
                raise error
            case _:
                remedy = "allow it by a rule, or give its source trust: true if the server says that it only reads"
                message = f"{tool!r} waits for a person's answer, which no provider may need; {remedy}"
                raise ToolClientError(message, code="provider_paused")

    async def _whole(self, outcome: Completed, caller: ToolCaller) -> Any:
        """Return the whole content, read from the artifact if it was stored as one."""
        content = outcome.content
        if not is_object(content) or "preview" not in content or content.get("artifact_id") not in outcome.artifacts:
            return content
        parts: list[str] = []
        offset: int | None = 0
        while offset is not None and offset < _MOST_BYTES:
            arguments = {"artifact_id": content["artifact_id"], "offset": offset, "limit": _PART}
            part = (await self._call_tool(caller, _READ, arguments)).content
            parts.append(part["content"])
            offset = part["next_offset"]
        return "".join(parts)


_decoder = json.JSONDecoder()


def find_items(content: Any) -> list[dict[str, Any]] | None:
    """Find the list of items anywhere in a result; a plain string is one item. None without a list."""
    result = _plain(content)
    if isinstance(result, str):
        return (_parse_labels(result) or [{"content": result}]) if result.strip() else None
    if is_array(result):
        return [item if is_object(item) else {"content": item} for item in result if is_object(item) or _is_text(item)]
    nested = next((items for path in _PATHS if (items := objects(result, *path))), None)
    if nested is not None:
        return nested
    return [] if is_object(result) and any(is_array(result.get(key)) for key in _LISTS) else None


def find_page(content: Any) -> Mapping[str, Any]:
    """Find the members of a page in a result; a plain string is its content."""
    result = _plain(content)
    if is_object(result):
        inner = result.get("data")
        return inner if is_object(inner) else result
    parts = result if is_array(result) else [result]
    return {"content": "\n\n".join(part if isinstance(part, str) else text_of(part) for part in parts)}


def text_of(item: Any) -> str:
    """Return the text of an item: its first member that is a string or a list of strings."""
    for key in _WORDS if is_object(item) else ():
        value = item.get(key)
        if is_array(value):
            value = "\n".join(part if isinstance(part, str) else text_of(part) for part in value)
        if _is_text(value):
            return str(value)
    return ""


def source_of(item: Mapping[str, Any]) -> str:
    """Return the URL or name of the source of an item."""
    return first_text(item, *_PLACES)


def find_error(content: Any) -> str:
    """Find the error message in a result, or an empty string."""
    result = _plain(content)
    if not is_object(result):
        return ""
    error = result.get("error") or result.get("errors")
    text = first_text(error, "message", "detail") if is_object(error) else error
    return text if isinstance(text, str) else ""


def _plain(content: Any) -> Any:
    """Unwrap a result: FastMCP wraps values other than objects, and many servers return JSON as a string."""
    if is_object(content) and len(content) == 1 and "result" in content:
        return _read(content["result"])
    result = _read(content)
    return _plain(result) if result is not content and is_object(result) else result


def _read(content: Any) -> Any:
    """Parse a string that is JSON, or several JSON documents in sequence."""
    if not isinstance(content, str) or content.lstrip()[:1] not in ("{", "["):
        return content
    try:
        documents = _documents(content)
    except (ValueError, RecursionError):
        return content
    return documents[0] if len(documents) == 1 else documents


def _documents(text: str) -> list[Any]:
    documents: list[Any] = []
    at = len(text) - len(text.lstrip())
    while at < len(text):
        document, end = _decoder.raw_decode(text, at)
        documents.append(document)
        at = len(text) - len(text[end:].lstrip())
    return documents


def _parse_labels(text: str) -> list[dict[str, Any]]:
    """Parse items in lines with labels such as `Title:` and `URL:`; empty unless all have a URL."""
    items: list[dict[str, Any]] = []
    last = ""
    for line in text.splitlines():
        label = _LABEL.fullmatch(line)
        if label is not None:
            last = _LABELS[label[1].lower()]
            if not items or last in items[-1]:
                items.append({})
            items[-1][last] = label[2].strip()
        elif last == "content":
            items[-1]["content"] = f"{items[-1]['content']}\n{line.strip()}".rstrip()
    return items if all(str(one.get("url", "")).startswith(("http://", "https://")) for one in items) else []


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and bool(value.strip())
