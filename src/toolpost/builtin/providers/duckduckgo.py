"""DuckDuckGo, which needs no key: its results come as a plain page of HTML."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import parse_qs, urlencode, urlsplit

from toolpost.builtin.html_tree import Element, parse_html
from toolpost.builtin.providers.api import Api
from toolpost.builtin.providers.protocols import SearchResult, SearchResults
from toolpost.contracts.errors import ToolRateLimitError, ToolServerError
from toolpost.web.contents import decoded

if TYPE_CHECKING:
    from collections.abc import Iterator

    from toolpost.builtin.web_access import Web

DUCKDUCKGO_URL = "https://html.duckduckgo.com/html/"
_CHALLENGES = ("anomaly-modal", "anomaly.js")
_OK = 200
_ACCEPTED = 202


@dataclass(frozen=True, slots=True)
class DuckDuckGoSearchProvider:
    """The page for browsers without scripts. It may ask whoever searches much to prove to be a person."""

    web: Web
    url: str = DUCKDUCKGO_URL

    @property
    def name(self) -> str:
        """Who it is."""
        return "duckduckgo"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        answer = await self.web.ask("GET", f"{self.url}?{urlencode({'q': query})}", headers={"Accept": "text/html"})
        page = decoded(answer.body)
        if answer.status == _ACCEPTED or any(mark in page for mark in _CHALLENGES):
            message = "duckduckgo wants a person to answer first; search later, or configure a provider with a key"
            raise ToolRateLimitError(message, code="challenged")
        if answer.status != _OK:
            raise Api(name=self.name, web=self.web, url=self.url).failure(answer)
        results = tuple(_results(parse_html(page)))[:count]
        if not results and "no-results" not in page:
            message = "duckduckgo answered a page that is not one of results; configure another provider"
            raise ToolServerError(message, code="answer_unreadable")
        return SearchResults(query=query, provider=self.name, results=results)

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()


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
    """Where a link leads; it may be wrapped in one that counts clicks."""
    try:
        parts = urlsplit(href)
        wrapped = parse_qs(parts.query).get("uddg") if parts.path == "/l/" else None
    except ValueError:
        return ""
    url = wrapped[0] if wrapped else href
    return url if url.startswith(("http://", "https://")) else ""


def _with_class(element: Element, name: str) -> Iterator[Element]:
    waiting = [element]
    while waiting:
        found = waiting.pop()
        if name in found.attributes.get("class", "").split():
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
