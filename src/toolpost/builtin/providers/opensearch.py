"""OpenSearch as a store of documents: full-text search with filters."""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from toolpost.builtin.providers.api import Api, number, objects, text
from toolpost.builtin.providers.protocols import RetrievedChunk, RetrievedChunks
from toolpost.schema.jsontypes import is_object

if TYPE_CHECKING:
    from toolpost.builtin.providers.protocols import Filters
    from toolpost.builtin.web_access import Web


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSearchProvider:
    """An index whose documents have a text, and say where they are from in `source`, `url` or `path`."""

    web: Web
    url: str
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
        terms = [{"term": {name: value}} for name, value in filters.equal.items()]
        matching = {"match": {self.text_field: {"query": query}}}
        asked = {"size": filters.limit, "query": {"bool": {"must": [matching], "filter": terms}}}
        found = await self._api().post(f"/{quote(self.index, safe='')}/_search", asked)
        chunks = tuple(self._chunk(hit) for hit in objects(found, "hits", "hits"))
        return RetrievedChunks(query=query, provider=self.name, chunks=chunks)

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
            metadata={name: value for name, value in document.items() if name != self.text_field},
        )

    def _api(self) -> Api:
        headers: dict[str, str] = {}
        if self.user:
            headers["Authorization"] = f"Basic {base64.b64encode(f'{self.user}:{self.key}'.encode()).decode()}"
        elif self.key:
            headers["Authorization"] = f"Bearer {self.key}"
        secrets = (self.key,) if self.key else ()
        return Api(name=self.name, web=self.web, url=self.url.rstrip("/"), headers=headers, secrets=secrets)
