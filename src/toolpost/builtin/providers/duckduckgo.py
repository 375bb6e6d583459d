"""DuckDuckGo, searched by its page for browsers without scripts."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

from toolpost.builtin.html_tree import Element, parse_html
from toolpost.builtin.providers.api import Api
from toolpost.builtin.providers.protocols import SearchResult, SearchResults
from toolpost.contracts.errors import ToolRateLimitError
from toolpost.http.content import decode_text

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.builtin.web_client import WebClient

DUCKDUCKGO_URL = "https://html.duckduckgo.com/html/"
_OK = 200
_ACCEPTED = 202


class _ResultPage(NamedTuple):
    """A parsed page: results, a challenge, or an empty list."""

    results: tuple[SearchResult, ...]
    is_challenge: bool
    is_empty: bool


@dataclass(frozen=True, slots=True)
class DuckDuckGoSearchProvider:
    """Searches through the script-free page, without a key. Frequent searches get a challenge."""

    name = "duckduckgo"
    web: WebClient
    url: str = field(default=DUCKDUCKGO_URL, repr=False)

    async def search(self, query: str, count: int) -> SearchResults:
        api = Api(name=self.name, web=self.web, url=self.url, headers={"Accept": "text/html"})
        response = await api.send("GET", query={"q": query})
        if response.status not in (_OK, _ACCEPTED):
            raise api.failure(response)
        page = _read_results(await parse_html(decode_text(response.body)))
        if response.status == _ACCEPTED or page.is_challenge:
            message = "duckduckgo wants a person to answer first; search later, or configure a provider with a key"
            raise ToolRateLimitError(message, code="challenged")
        if not page.results and not page.is_empty:
            raise api.unreadable("a page that is not one of results")
        return SearchResults(query=query, provider=self.name, results=page.results[:count])

    async def close(self) -> None:
        await self.web.close()


def _read_results(page: Element) -> _ResultPage:
    """Recognize a page by its elements, not its words, which may be those of the query."""
    marks = {word for element in page.walk() for word in element.attributes.get("class", "").split()}
    challenge = any(mark.partition("__")[0] == "anomaly-modal" for mark in marks)
    return _ResultPage(tuple(_page_results(page)), challenge, not marks.isdisjoint({"no-results", "result--no-result"}))


def _page_results(page: Element) -> Iterator[SearchResult]:
    for block in _with_class(page, "result"):
        link = next(_with_class(block, "result__a"), None)
        url = _target(link.attributes.get("href", "")) if link else ""
        if link is None or not url or "result--ad" in block.attributes.get("class", ""):
            continue
        snippet = next(_with_class(block, "result__snippet"), None)
        content = _text(snippet) if snippet else ""
        yield SearchResult(title=_text(link), url=url, content=content, score=None)


def _target(href: str) -> str:
    """Unwrap the target of a link from the click-counting redirect; empty for an advertisement."""
    try:
        parts = urlsplit(href)
        wrapped = parse_qs(parts.query).get("uddg") if parts.path == "/l/" else None
    except ValueError:
        return ""
    if parts.path == "/y.js" and (not parts.hostname or parts.hostname.endswith("duckduckgo.com")):
        return ""
    url = wrapped[0] if wrapped else href
    return url if url.startswith(("http://", "https://")) else ""


def _with_class(element: Element, name: str) -> Iterator[Element]:
    return (inner for inner in element.walk() if inner.has_class(name))


def _text(element: Element) -> str:
    parts: list[str] = []
    waiting: list[Element | str] = [element]
    while waiting:
        node = waiting.pop()
        if isinstance(node, str):
            parts.append(node)
        else:
            waiting += reversed(node.children)
    return " ".join("".join(parts).split())
