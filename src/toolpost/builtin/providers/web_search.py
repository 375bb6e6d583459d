"""Search engines that answer in JSON: Brave, Tavily, Google, Bing and Jina."""

from __future__ import annotations

import html
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolpost.builtin.providers.api import Api, keyed, number, objects, text
from toolpost.builtin.providers.protocols import SearchResult, SearchResults
from toolpost.contracts.errors import ToolClientError
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

    from toolpost.builtin.web_access import Web

BRAVE_URL = "https://api.search.brave.com/res/v1"
TAVILY_URL = "https://api.tavily.com"
GOOGLE_URL = "https://www.googleapis.com/customsearch/v1"
BING_URL = "https://api.bing.microsoft.com/v7.0"
JINA_SEARCH_URL = "https://s.jina.ai"
_EMPHASIS = re.compile(r"</?(?:strong|b|em)>")
_NOTHING_FOUND = "No search results available"


@dataclass(frozen=True, slots=True)
class _JsonSearch:
    """What the engines have in common: one web, one key, one address."""

    web: Web
    key: str = field(repr=False)
    url: str = field(repr=False)  # an operator may have written a key into it

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()

    def _api(self, name: str, header: str, prefix: str = "", **more: str) -> Api:
        key = keyed(self.key, name)
        headers = {header: f"{prefix}{key}", **more}
        return Api(name=name, web=self.web, url=self.url, headers=headers, secrets=(key,))


class BraveSearchProvider(_JsonSearch):
    """Brave's web search; 20 results at most, and questions of 400 characters and 50 words."""

    __slots__ = ()
    name = "brave"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "X-Subscription-Token")
        asked: dict[str, str | int] = {"q": _short(query, words=50), "text_decorations": "false"}
        found = await api.get("/web/search", query={**asked, "count": min(count, 20)})
        # Without results there is no `web`, but always the question.
        pages = _listed(api, found, "web", "results", sign="query")
        plain = [{**page, **{name: _unmarked(text(page, name)) for name in ("title", "description")}} for page in pages]
        return _results(self.name, query, plain, count, content="description")


class TavilySearchProvider(_JsonSearch):
    """Tavily's search for agents; 20 results at most, and questions of 400 characters."""

    __slots__ = ()
    name = "tavily"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "Authorization", "Bearer ")
        found = await api.post("/search", {"query": _short(query), "max_results": min(count, 20)})
        return _results(self.name, query, _listed(api, found, "results"), count, content="content")


@dataclass(frozen=True, slots=True)
class GoogleSearchProvider(_JsonSearch):
    """A programmable search engine of Google's; 10 results at most.

    The key goes in the header that all of Google's APIs take, not in the URL, which others may log.
    """

    engine: str = ""

    @property
    def name(self) -> str:
        """Who it is."""
        return "google"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "X-Goog-Api-Key")
        found = await api.get("", query={"cx": self.engine, "q": query, "num": min(count, 10)})
        items = _listed(api, found, "items", sign="searchInformation")
        return _results(self.name, query, items, count, url="link", content="snippet")


class BingSearchProvider(_JsonSearch):
    """The search API of Bing, version 7; Microsoft has ended its own, `url` names one that goes on."""

    __slots__ = ()
    name = "bing"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search."""
        api = self._api(self.name, "Ocp-Apim-Subscription-Key")
        found = await api.get("/search", query={"q": query, "count": min(count, 50)})
        pages = _listed(api, found, "webPages", "value", sign="_type")
        return _results(self.name, query, pages, count, title="name", content="snippet")


class JinaSearchProvider(_JsonSearch):
    """Jina's search, without the contents of the pages."""

    __slots__ = ()
    name = "jina"

    async def search(self, query: str, count: int) -> SearchResults:
        """Search; finding nothing is a failure to Jina, but none to whoever asks."""
        api = self._api(self.name, "Authorization", "Bearer ", **{"X-Respond-With": "no-content"})
        try:
            found = await api.post("/", {"q": query, "num": count})
        except ToolClientError as refused:
            if refused.status_code != 422 or _NOTHING_FOUND not in refused.message:
                raise
            return SearchResults(query=query, provider=self.name)
        return _results(self.name, query, _listed(api, found, "data"), count, content="description")


def _listed(api: Api, found: Any, *path: str, sign: str | None = None) -> list[dict[str, Any]]:
    """The list that an answer has; one without it must at least show by a sign that it is an answer to a search."""
    if sign is not None and is_object(found) and sign in found and path[0] not in found:
        return []
    inside: Any = found
    for key in path:
        inside = inside.get(key) if is_object(inside) else None
    if not is_array(inside):
        raise api.unreadable("something that is no list of results")
    return objects(found, *path)


def _short(query: str, *, chars: int = 400, words: int | None = None) -> str:
    """As much of a question as an engine takes: a longer one is refused whole."""
    parts = query.split()
    if len(query) <= chars and (words is None or len(parts) <= words):
        return query
    short = " ".join(parts[:words])
    return short if len(short) <= chars else short[:chars].rpartition(" ")[0] or short[:chars]


def _unmarked(written: str) -> str:
    """What is written for a page as plain text."""
    return html.unescape(_EMPHASIS.sub("", written))


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
