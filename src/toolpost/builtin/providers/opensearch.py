"""OpenSearch as a store of documents: full-text search with filters."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.builtin.providers.api import Api, number, objects, text
from toolpost.builtin.providers.protocols import RetrievedChunk, RetrievedChunks
from toolpost.schema.jsontypes import is_array, is_object

if TYPE_CHECKING:
    from toolpost.builtin.providers.protocols import Filters
    from toolpost.builtin.web_access import Web

_LONGEST_LIST = 50  # a longer one is a vector, which says nothing to a reader


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchProvider:
    """An index whose documents have a text, and say where they are from in `source`, `url` or `path`."""

    web: Web
    url: str = field(repr=False)
    index: str
    user: str = ""
    key: str = field(default="", repr=False)
    text_field: str = "text"

    @property
    def name(self) -> str:
        """Who it is."""
        return "opensearch"

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """The documents that match best."""
        terms = [{"terms" if is_array(value) else "term": {name: value}} for name, value in filters.equal.items()]
        matching = {"match": {self.text_field: {"query": query}}}
        asked = {"size": filters.limit, "query": {"bool": {"must": [matching], "filter": terms}}}
        api = self._api()
        found = await api.post(f"/{quote(self.index, safe='')}/_search", asked)
        hits = found.get("hits") if is_object(found) else None
        if not is_object(hits) or not is_array(hits.get("hits")):
            raise api.unreadable("something that is no list of hits")
        chunks = [self._chunk(hit) for hit in objects(hits, "hits")]
        return RetrievedChunks(query=query, provider=self.name, chunks=tuple(chunks[: filters.limit]))

    async def close(self) -> None:
        """Close the connections."""
        await self.web.close()

    def _chunk(self, hit: dict[str, Any]) -> RetrievedChunk:
        inside = hit.get("_source")
        document: dict[str, Any] = inside if is_object(inside) else {}
        return RetrievedChunk(
            id=text(hit, "_id"),
            text=text(document, self.text_field),
            source=text(document, "source", "url", "path") or f"{self.index}/{text(hit, '_id')}",
            score=number(hit, "_score"),
            metadata={name: value for name, value in document.items() if self._is_fact(name, value)},
        )

    def _is_fact(self, name: str, value: Any) -> bool:
        return name != self.text_field and not (is_array(value) and len(value) > _LONGEST_LIST)

    def _api(self) -> Api:
        headers: dict[str, str] = {}
        if self.user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{self.user}:{self.key}'.encode()).decode()}"
        elif self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        secrets = (self.key,) if self.key else ()
        return Api(name=self.name, web=self.web, url=self.url.rstrip("/"), headers=headers, secrets=secrets)
