"""The tools that find things elsewhere: web_search, and retrieve where a store is configured."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolpost.builtin.network import looking
from toolpost.builtin.providers.protocols import Filters, RetrievedChunk, SearchResult
from toolpost.builtin.spelling import either, with_camel_case
from toolpost.catalog.function import FunctionTool
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import ToolCategory
from toolpost.schema.generation import schema_of
from toolpost.schema.hidden_text import visible
from toolpost.web.untrusted import citations, from_outside, one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.builtin.providers.protocols import Chain, RetrieveProvider, SearchProvider, SearchResults

_TIMEOUT_S = 30.0
_LONGEST_CONTENT = 1000
_LONGEST_CHUNK = 4000
_MOST = 20
_OTHER_NAMES = ("count", "max_results", "maxResults")
Query = Annotated[str, Field(min_length=1, max_length=2000, description="What to look for")]


class Found(TypedDict):
    """What a search found, the best first; `provider` is who found it."""

    query: str
    results: list[SearchResult]
    total_results: int
    provider: str


class Retrieved(TypedDict):
    """Pieces of documents, the best first; `source` says where each is from."""

    query: str
    chunks: list[RetrievedChunk]
    provider: str


_FOUND = schema_of(TypeAdapter(Found), "serialization")
_RETRIEVED = schema_of(TypeAdapter(Retrieved), "serialization")


def search_tools(chain: Chain[SearchProvider], *, max_results: int = 10) -> list[FunctionTool]:
    """web_search over a chain of those who search; `max_results` is how many are asked for unless a call says."""

    @looking(_FOUND, timeout_s=_TIMEOUT_S)
    async def web_search(
        query: Query,
        ctx: ToolContext,
        *,
        limit: Annotated[
            int,
            Field(
                ge=1,
                le=_MOST,
                validation_alias=either("limit", *_OTHER_NAMES),
                description="The most results to get",
            ),
        ] = min(max_results, _MOST),
    ) -> ToolOutput:
        """Search the web. Each result has a title, a URL to cite or to read with web_fetch, and a short text."""
        return _found(await chain.first(lambda provider: provider.search(query, limit), ctx))

    return [with_camel_case(web_search, also={"limit": _OTHER_NAMES})]


def retrieve_tools(chain: Chain[RetrieveProvider]) -> list[FunctionTool]:
    """Retrieve over a chain of stores."""

    @looking(_RETRIEVED, timeout_s=_TIMEOUT_S, category=ToolCategory.DATA)
    async def retrieve(
        query: Query,
        ctx: ToolContext,
        *,
        filters: Annotated[dict[str, Any], Field(description="Values that the metadata must have")] = {},  # noqa: B006 - never changed
        limit: Annotated[int, Field(ge=1, le=_MOST, description="The most pieces to get")] = 10,
    ) -> ToolOutput:
        """Find pieces of documents in the stores that the operator configured."""
        wanted = Filters(limit=limit, equal=filters)
        found = await chain.first(lambda provider: provider.retrieve(query, wanted), ctx)
        chunks = [_cleaned_chunk(chunk) for chunk in found.chunks]
        content = Retrieved(query=query, chunks=chunks, provider=found.provider)
        sources = [(chunk["source"] or chunk["id"], chunk["text"], "") for chunk in chunks]
        return _cited(content, sources, origin=found.provider, hidden=0)

    return [retrieve]


def _found(found: SearchResults) -> ToolOutput:
    hidden = sum(visible(f"{one['title']}{one['content']}").hidden for one in found.results)
    results = [_cleaned(one) for one in found.results]
    content = Found(query=found.query, results=results, total_results=len(results), provider=found.provider)
    sources = [(one["url"], one["content"], one["title"]) for one in results]
    return _cited(content, sources, origin=found.provider, hidden=hidden)


def _cited(content: Any, sources: Sequence[tuple[str, str, str]], *, origin: str, hidden: int) -> ToolOutput:
    """Output whose texts are numbered like the sources that they are from."""
    cited = citations((title, url) for url, _, title in sources)
    told = "\n\n".join(f"{one}\n{text}" for one, (_, text, _) in zip(cited, sources, strict=True))
    facts = {"citations": [one._asdict() for one in cited], "hidden_characters": hidden}
    return from_outside(content, origin=origin, told=told or "(nothing was found)", facts=facts)


def _cleaned(result: SearchResult) -> SearchResult:
    return SearchResult(
        title=one_line(result["title"]),
        url=_shown_url(result["url"]),
        content=_short(result["content"], _LONGEST_CONTENT),
        score=result["score"],
    )


def _cleaned_chunk(chunk: RetrievedChunk) -> RetrievedChunk:
    return {**chunk, "text": _short(chunk["text"], _LONGEST_CHUNK), "source": one_line(chunk["source"])}


def _short(text: str, most: int) -> str:
    seen = visible(text).text
    return seen if len(seen) <= most else f"{seen[:most]}…"


def _shown_url(url: str) -> str:
    """A URL that can be cited: of the web, and on one line."""
    line = "".join(visible(url).text.split())
    try:
        return line if urlsplit(line).scheme in ("http", "https") else ""
    except ValueError:
        return ""
