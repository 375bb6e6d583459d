"""Providers of the web: search engines by their JSON APIs (DuckDuckGo by its page), and readers of web pages."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import parse_qs, urlsplit

from toolpost.builtin.html_markdown import Element, page_markdown, parse_html
from toolpost.builtin.providers.api import Api, finite_number, first_text, objects, page_address, require_key
from toolpost.builtin.providers.protocols import ScrapedPage, SearchResult, SearchResults
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError, ToolPermissionError, ToolRateLimitError
from toolpost.schema.json_values import is_array, is_object
from toolpost.web.content import decode_text, parse_media_type
from toolpost.wire.network import NetworkPolicy, parse_target

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from toolpost.builtin.web_client import WebClient, WebResponse


BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
GOOGLE_URL = "https://www.googleapis.com/customsearch/v1"
BING_URL = "https://api.bing.microsoft.com/v7.0"
JINA_SEARCH_URL = "https://s.jina.ai"
_EMPHASIS = re.compile(r"</?(?:strong|b|em)>")
_NOTHING_FOUND = "No search results available"
DUCKDUCKGO_URL = "https://html.duckduckgo.com/html/"
_OK = 200
_ACCEPTED = 202
JINA_READER_URL = "https://r.jina.ai"
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain;q=0.9, application/json;q=0.8, */*;q=0.1"
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_READABLE = frozenset({"text", "json", "lines", "yaml", "xml", "form", "events"})
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_HEAD = 4096
_FAILED_THERE = re.compile(r"Target URL returned error (\d{3})")


@dataclass(frozen=True, slots=True)
class _JsonSearch:
    """Common base of the engines: connections, key and address."""

    web: WebClient
    key: str = field(repr=False)
    url: str = field(repr=False)  # an operator may have written a key into it

    async def close(self) -> None:
        await self.web.close()

    def _api(self, name: str, header: str, prefix: str = "", **more: str) -> Api:
        key = require_key(self.key, name)
        headers = {header: f"{prefix}{key}", **more}
        return Api(name=name, web=self.web, url=self.url, headers=headers, secrets=(key,))


class BraveSearchProvider(_JsonSearch):
    """Brave's web search; 20 results at most, and questions of 400 characters and 50 words."""

    __slots__ = ()
    name = "brave"

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "X-Subscription-Token")
        parameters: dict[str, str | int] = {"q": _short(query, words=50), "text_decorations": "false"}
        response = await api.get("/web/search", query={**parameters, "count": min(count, 20)})
        # Without results there is no `web`, but always the question.
        pages = _get_list(api, response, "web", "results", sign="query")
        plain = [
            {
                **page,
                **{name: html.unescape(_EMPHASIS.sub("", first_text(page, name))) for name in ("title", "description")},
            }
            for page in pages
        ]
        return _results(self.name, query, plain, count, content="description")


class TavilySearchProvider(_JsonSearch):
    """Tavily's search for agents; 20 results at most, and questions of 400 characters."""

    __slots__ = ()
    name = "tavily"

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "Authorization", "Bearer ")
        response = await api.post("/search", {"query": _short(query), "max_results": min(count, 20)})
        return _results(self.name, query, _get_list(api, response, "results"), count, content="content")


@dataclass(frozen=True, slots=True)
class GoogleSearchProvider(_JsonSearch):
    """A programmable search engine of Google's; 10 results at most.

    The key goes in the header that all of Google's APIs take, not in the URL, which others may log.
    """

    name = "google"
    engine: str = ""

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "X-Goog-Api-Key")
        response = await api.get("", query={"cx": self.engine, "q": query, "num": min(count, 10)})
        items = _get_list(api, response, "items", sign="searchInformation")
        return _results(self.name, query, items, count, url="link", content="snippet")


class BingSearchProvider(_JsonSearch):
    """The search API of Bing, version 7; Microsoft has ended its own, `url` names one that goes on."""

    __slots__ = ()
    name = "bing"

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "Ocp-Apim-Subscription-Key")
        response = await api.get("/search", query={"q": query, "count": min(count, 50)})
        pages = _get_list(api, response, "webPages", "value", sign="_type")
        return _results(self.name, query, pages, count, title="name", content="snippet")


class JinaSearchProvider(_JsonSearch):
    """Jina's search, without the contents of the pages."""

    __slots__ = ()
    name = "jina"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search the web; Jina answers 422 where nothing is found, which is an empty result here."""
        api = self._api(self.name, "Authorization", "Bearer ", **{"X-Respond-With": "no-content"})
        try:
            response = await api.post("/", {"q": query, "num": count})
        except ToolClientError as refused:
            if refused.status_code != 422 or _NOTHING_FOUND not in refused.message:
                raise
            return SearchResults(query=query, provider=self.name)
        return _results(self.name, query, _get_list(api, response, "data"), count, content="description")


def _get_list(api: Api, response: Any, *path: str, sign: str | None = None) -> list[dict[str, Any]]:
    """Return the list at a path; a response without it must have the member `sign`, which every response has."""
    if sign is not None and is_object(response) and sign in response and path[0] not in response:
        return []
    inside: Any = response
    for key in path:
        inside = inside.get(key) if is_object(inside) else None
    if not is_array(inside):
        raise api.unreadable("something that is no list of results")
    return objects(response, *path)


def _short(query: str, *, chars: int = 400, words: int | None = None) -> str:
    """Cut a query to the length that an engine takes: a longer one is refused whole."""
    parts = query.split()
    if len(query) <= chars and (words is None or len(parts) <= words):
        return query
    short = " ".join(parts[:words])
    return short if len(short) <= chars else short[:chars].rpartition(" ")[0] or short[:chars]


def _results(
    provider: str,
    query: str,
    items: Iterable[Mapping[str, Any]],
    count: int,
    *,
    title: str = "title",
    url: str = "url",
    content: str = "content",
) -> SearchResults:
    """Build results from items; an item without a URL cannot be cited and is left out."""
    results = [
        SearchResult(
            title=first_text(item, title),
            url=first_text(item, url),
            content=first_text(item, content),
            score=finite_number(item, "score"),
        )
        for item in items
    ]
    return SearchResults(query=query, provider=provider, results=tuple(one for one in results if one["url"])[:count])


class _ResultPage(NamedTuple):
    """A parsed page: results, a challenge for people, or an empty list."""

    results: tuple[SearchResult, ...]
    is_challenge: bool
    is_empty: bool


@dataclass(frozen=True, slots=True)
class DuckDuckGoSearchProvider:
    """Searches by the page for browsers without scripts, without a key. Frequent searches get a challenge instead."""

    name = "duckduckgo"
    web: WebClient
    url: str = field(default=DUCKDUCKGO_URL, repr=False)

    async def search(self, query: str, count: int) -> SearchResults:
        api = Api(name=self.name, web=self.web, url=self.url, headers={"Accept": "text/html"})
        response = await api.send("GET", query={"q": query})
        if response.status not in (_OK, _ACCEPTED):
            raise api.failure(response)
        page = await run_cancellable(lambda _: _read_page(decode_text(response.body)))
        if response.status == _ACCEPTED or page.is_challenge:
            message = "duckduckgo wants a person to answer first; search later, or configure a provider with a key"
            raise ToolRateLimitError(message, code="challenged")
        if not page.results and not page.is_empty:
            raise api.unreadable("a page that is not one of results")
        return SearchResults(query=query, provider=self.name, results=page.results[:count])

    async def close(self) -> None:
        await self.web.close()


def _read_page(source: str) -> _ResultPage:
    """Parse a page by its elements, not its words: the words may be those of the query."""
    page = parse_html(source)
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
    """Unwrap the target of a link from the redirect that counts clicks; empty for an advertisement."""
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
    return (inner for inner in element.walk() if name in inner.attributes.get("class", "").split())


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


@dataclass(frozen=True, slots=True)
class DirectPages:
    """Fetches a page through the guard and converts it to Markdown."""

    name = "direct"
    web: WebClient

    async def scrape(self, url: str) -> ScrapedPage:
        """Read a page; a status that is no success is part of the result, no error."""
        response = await self.web.send("GET", url, headers={"Accept": _ACCEPT})
        kind = parse_media_type(response.content_type)
        media = kind.essence or "text/html"
        if media in _PAGES or not kind.essence:
            source = _decode_page(response)
            page = await run_cancellable(lambda _: page_markdown(source, base_url=response.url))
            title, content = page
        elif kind.kind in _READABLE:
            title, content = "", decode_text(response.body, kind.charset)
        else:
            message = (
                f"{response.url} is {kind.essence}, {len(response.body)} bytes, and no page; http_get gets its bytes"
            )
            raise ToolClientError(message, code="not_a_page")
        return ScrapedPage(
            url=response.url, provider=self.name, title=title, content=content, status=response.status, media_type=media
        )

    async def close(self) -> None:
        await self.web.close()


@dataclass(frozen=True, slots=True)
class JinaReaderProvider:
    """Reads pages by Jina's reader, which learns their URLs: only those of public addresses are sent."""

    name = "jina"
    web: WebClient
    key: str = field(default="", repr=False)
    url: str = field(default=JINA_READER_URL, repr=False)

    async def scrape(self, url: str) -> ScrapedPage:
        """Read a page by the reader."""
        await _check_public(url, self.web.network)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        api = Api(name=self.name, web=self.web, url=self.url, headers=headers, secrets=(self.key,) if self.key else ())
        response = await api.post("/", {"url": url})
        data = response.get("data") if is_object(response) else None
        if not is_object(data) or not isinstance(data.get("content"), str):
            raise api.unreadable("without the content of a page")
        # The reader succeeds also where the page did not.
        failed = _FAILED_THERE.match(first_text(data, "warning"))
        return ScrapedPage(
            url=page_address(first_text(data, "url"), url),
            provider=self.name,
            title=first_text(data, "title"),
            content=data["content"],
            status=int(failed[1]) if failed else 200,
            media_type="text/markdown",
        )

    async def close(self) -> None:
        await self.web.close()


async def _check_public(url: str, allowed: NetworkPolicy) -> None:
    """Refuse a private address, even one that the operator allows for direct requests."""
    target = parse_target(url)
    await allowed.resolve(target)
    try:
        await NetworkPolicy().resolve(target)
    except ToolPermissionError as refused:
        reason = str(refused).removeprefix("Permission denied: ")
        raise ToolClientError(f"jina is not told of this URL: {reason}", code="not_public") from None


def _decode_page(response: WebResponse) -> str:
    """Decode a page by the charset of its header, else by that of its meta element."""
    charset = parse_media_type(response.content_type).charset
    if charset is None and (match := _META_CHARSET.search(response.body[:_HEAD])):
        charset = parse_media_type(f"text/html; charset={match[1].decode('ascii')}").charset
    return decode_text(response.body, charset)
