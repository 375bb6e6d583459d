"""DuckDuckGo, which needs no key: its results come as a plain page of HTML."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple
from urllib.parse import parse_qs, urlsplit

from toolpost.builtin.html_tree import Element, parse_html
from toolpost.builtin.providers.api import Api
from toolpost.builtin.providers.protocols import SearchResult, SearchResults
from toolpost.builtin.workers import in_worker
from toolpost.contracts.errors import ToolRateLimitError
from toolpost.web.contents import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.builtin.web_access import Web

DUCKDUCKGO_URL = "https://html.duckduckgo.com/html/"
_OK = 200
_ACCEPTED = 202


class _Page(NamedTuple):
    """What a page turned out to be: results, a riddle for people, or a list that is empty."""

    results: tuple[SearchResult, ...]
    is_challenge: bool
    is_empty: bool


@dataclass(frozen=True, slots=True)
class DuckDuckGoSearchProvider:
    """The page for browsers without scripts. It may ask whoever searches much to prove to be a person."""

    web: Web
    url: str = field(default=DUCKDUCKGO_URL, repr=False)

    @property
    def name(self) -> str:
        """Who it is."""
        return "duckduckgo"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = Api(name=self.name, web=self.web, url=self.url, headers={"Accept": "text/html"})
        answer = await api.ask("GET", query={"q": query})
        if answer.status not in (_OK, _ACCEPTED):
            raise api.failure(answer)
        page = await in_worker(lambda _: _read(decoded(answer.body)))
        if answer.status == _ACCEPTED or page.is_challenge:
            message = "duckduckgo wants a person to answer first; search later, or configure a provider with a key"
            raise ToolRateLimitError(message, code="challenged")
        if not page.results and not page.is_empty:
            raise api.unreadable("a page that is not one of results")
        return SearchResults(query=query, provider=self.name, results=page.results[:count])

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()


def _read(source: str) -> _Page:
    """Told by the elements of the page: its words may be those that were searched for."""
    page = parse_html(source)
    marks = {word for element in _elements(page) for word in element.attributes.get("class", "").split()}
    challenge = any(mark.partition("__")[0] == "anomaly-modal" for mark in marks)
    return _Page(tuple(_results(page)), challenge, not marks.isdisjoint({"no-results", "result--no-result"}))


def _results(page: Element) -> Iterator[SearchResult]:
    for block in _with_class(page, "result"):
        link = next(_with_class(block, "result__a"), None)
        url = _target(link.attributes.get("href", "")) if link else ""
        if link is None or not url or "result--ad" in block.attributes.get("class", ""):
            continue
        snippet = next(_with_class(block, "result__snippet"), None)
        content = _text(snippet) if snippet else ""
        yield SearchResult(title=_text(link), url=url, content=content, score=None)


def _target(href: str) -> str:
    """Where a link leads; it may be wrapped in one that counts clicks, and one that counts payments leads nowhere."""
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
    return (found for found in _elements(element) if name in found.attributes.get("class", "").split())


def _elements(element: Element) -> Iterator[Element]:
    waiting = [element]
    while waiting:
        found = waiting.pop()
        yield found
        waiting += [child for child in reversed(found.children) if isinstance(child, Element)]


def _text(element: Element) -> str:
    parts: list[str] = []
    waiting: list[Element | str] = [element]
    while waiting:
        found = waiting.pop()
        if isinstance(found, str):
            parts.append(found)
        else:
            waiting += reversed(found.children)
    return " ".join("".join(parts).split())
