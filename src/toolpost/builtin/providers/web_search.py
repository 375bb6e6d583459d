"""Search engines that answer in JSON: Brave, Tavily, Google, Bing and Jina."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from toolpost.builtin.providers.api import Api, keyed, number, objects, text
from toolpost.builtin.providers.protocols import SearchResult, SearchResults

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from toolpost.builtin.web_access import Web

BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
GOOGLE_URL = "https://www.googleapis.com/customsearch/v1"
BING_URL = "https://api.bing.microsoft.com/v7.0"
JINA_SEARCH_URL = "https://s.jina.ai"


@dataclass(frozen=True, slots=True)
class _JsonSearch:
    """What the engines have in common: one web, one key, one address."""

    web: Web
    key: str
    url: str

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.url}>"

    def _api(self, name: str, header: str, prefix: str = "") -> Api:
        key = keyed(self.key, name)
        return Api(name=name, web=self.web, url=self.url, headers={header: f"{prefix}{key}"}, secrets=(key,))


class BraveSearchProvider(_JsonSearch):
    """Brave's web search; 20 results at most."""

    __slots__ = ()
    name = "brave"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "X-Subscription-Token")
        found = await api.get("/web/search", query={"q": query, "count": min(count, 20)})
        return _results(self.name, query, objects(found, "web", "results"), count, content="description")


class TavilySearchProvider(_JsonSearch):
    """Tavily's search for agents; 20 results at most."""

    __slots__ = ()
    name = "tavily"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "Authorization", "Bearer ")
        found = await api.post("/search", {"query": query, "max_results": min(count, 20)})
        return _results(self.name, query, objects(found, "results"), count, content="content")


@dataclass(frozen=True, slots=True, repr=False)
class GoogleSearchProvider(_JsonSearch):
    """A programmable search engine of Google's; 10 results at most. The key goes in a header, not in the URL."""

    engine: str = ""

    @property
    def name(self) -> str:
        """Who it is."""
        return "google"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "X-Goog-Api-Key")
        found = await api.get("", query={"cx": self.engine, "q": query, "num": min(count, 10)})
        return _results(self.name, query, objects(found, "items"), count, url="link", content="snippet")


class BingSearchProvider(_JsonSearch):
    """The search API of Bing, version 7; Microsoft has ended its own, `url` names one that goes on."""

    __slots__ = ()
    name = "bing"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "Ocp-Apim-Subscription-Key")
        found = await api.get("/search", query={"q": query, "count": min(count, 50)})
        pages = objects(found, "webPages", "value")
        return _results(self.name, query, pages, count, title="name", content="snippet")


class JinaSearchProvider(_JsonSearch):
    """Jina's search, without the contents of the pages."""

    __slots__ = ()
    name = "jina"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        key = keyed(self.key, self.name)
        headers = {"Authorization": f"Bearer {key}", "X-Respond-With": "no-content"}
        api = Api(name=self.name, web=self.web, url=self.url, headers=headers, secrets=(key,))
        found = await api.post("/", {"q": query, "num": count})
        return _results(self.name, query, objects(found, "data"), count, content="description")


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
    """The items of an answer as results; those without a URL cannot be pointed at and are left out."""
    found = [
        SearchResult(
            title=text(item, title), url=text(item, url), content=text(item, content), score=number(item, "score")
        )
        for item in items
    ]
    return SearchResults(query=query, provider=provider, results=tuple(one for one in found if one["url"])[:count])
