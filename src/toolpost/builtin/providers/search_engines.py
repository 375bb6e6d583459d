"""Search engines with JSON APIs."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.api import Api, finite_number, first_text, objects, require_key
from toolpost.builtin.providers.protocols import SearchResult, SearchResults
from toolpost.contracts.errors import ToolClientError
from toolpost.schema.json_values import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from toolpost.builtin.web_client import WebClient

BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
GOOGLE_URL = "https://www.googleapis.com/customsearch/v1"
BING_URL = "https://api.bing.microsoft.com/v7.0"
JINA_SEARCH_URL = "https://s.jina.ai"
_EMPHASIS = re.compile(r"</?(?:strong|b|em)>")
_NOTHING_FOUND = "No search results available"


@dataclass(frozen=True, slots=True)
class _JsonSearch:
    """Common base of the engines: connections, key and address."""

    web: WebClient
    key: str = field(repr=False)
    url: str = field(repr=False)  # may contain a key

    async def close(self) -> None:
        await self.web.close()

    def _api(self, name: str, header: str, prefix: str = "", **more: str) -> Api:
        key = require_key(self.key, name)
        headers = {header: f"{prefix}{key}", **more}
        return Api(name=name, web=self.web, url=self.url, headers=headers, secrets=(key,))


class BraveSearchProvider(_JsonSearch):
    """Brave's web search; at most 20 results, and queries of 400 characters and 50 words."""

    __slots__ = ()
    name = "brave"

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "X-Subscription-Token")
        parameters: dict[str, str | int] = {"q": _short(query, words=50), "text_decorations": "false"}
        response = await api.get("/web/search", query={**parameters, "count": min(count, 20)})
        # A response without results lacks `web`, but not the query.
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
    """Tavily's search for agents; at most 20 results, and queries of 400 characters."""

    __slots__ = ()
    name = "tavily"

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "Authorization", "Bearer ")
        response = await api.post("/search", {"query": _short(query), "max_results": min(count, 20)})
        return _results(self.name, query, _get_list(api, response, "results"), count, content="content")


@dataclass(frozen=True, slots=True)
class GoogleSearchProvider(_JsonSearch):
    """A programmable search engine of Google; at most 10 results.

    The key is sent in the header of Google's APIs, not in the URL, which may be logged.
    """

    name = "google"
    engine: str = ""

    async def search(self, query: str, count: int) -> SearchResults:
        api = self._api(self.name, "X-Goog-Api-Key")
        response = await api.get("", query={"cx": self.engine, "q": query, "num": min(count, 10)})
        items = _get_list(api, response, "items", sign="searchInformation")
        return _results(self.name, query, items, count, url="link", content="snippet")


class BingSearchProvider(_JsonSearch):
    """Version 7 of Bing's search API; Microsoft has retired its own, `url` is that of a compatible service."""

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
        """Search the web; Jina responds with 422 if nothing is found, which is an empty result here."""
        api = self._api(self.name, "Authorization", "Bearer ", **{"X-Respond-With": "no-content"})
        try:
            response = await api.post("/", {"q": query, "num": count})
        except ToolClientError as refused:
            if refused.status_code != 422 or _NOTHING_FOUND not in refused.message:
                raise
            return SearchResults(query=query, provider=self.name)
        return _results(self.name, query, _get_list(api, response, "data"), count, content="description")


def _get_list(api: Api, response: Any, *path: str, sign: str | None = None) -> list[dict[str, Any]]:
    """Return the list at a path; a response without it must have the member `sign`."""
    if sign is not None and is_object(response) and sign in response and path[0] not in response:
        return []
    inside: Any = response
    for key in path:
        inside = inside.get(key) if is_object(inside) else None
    if not is_array(inside):
        raise api.unreadable("something that is not a list of results")
    return objects(response, *path)


def _short(query: str, *, chars: int = 400, words: int | None = None) -> str:
    """Cut a query to the engine's maximum length; a longer query would be rejected."""
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
    """Build results from items; items without a URL are dropped because they cannot be cited."""
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
