"""The tools web_fetch, web_search and retrieve, over chains of providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import urlsplit

from pydantic import Field
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.http_tools import Url, read_tool
from toolpost.builtin.providers import protocols
from toolpost.builtin.web_client import TIMEOUT_S
from toolpost.contracts.spec import ToolCategory
from toolpost.policy.untrusted import mark_untrusted, number_sources, one_line
from toolpost.schema.hidden_text import clean_text

if TYPE_CHECKING:
    from collections.abc import Sequence

    from toolpost.catalog.function import FunctionTool
    from toolpost.contracts.calls import ToolOutput
    from toolpost.contracts.context import ToolContext

CHARS = 20_000
_MOST_CHARS = 100_000
_TIMEOUT_S = 30.0
_LONGEST_CONTENT = 1000
_LONGEST_CHUNK = 4000
_MOST = 20
_OTHER_NAMES = ("count", "max_results", "maxResults")
Query = Annotated[str, Field(min_length=1, max_length=2000, description="The search query")]


class FetchedPage(TypedDict):
    """Part of a page as Markdown; `next_offset` starts the next part, null at the end."""

    url: str
    title: str
    status: int
    content: str
    media_type: str
    offset: int
    total_chars: int
    next_offset: int | None
    provider: str


def web_fetch_tools(
    chain: protocols.Chain[protocols.ScrapeProvider], *, timeout_s: float = TIMEOUT_S
) -> list[FunctionTool]:
    """Return web_fetch over a chain of page readers, which together may take `timeout_s`."""

    @read_tool(FetchedPage, timeout_s=timeout_s, host_argument="url")
    async def web_fetch(
        url: Url,
        ctx: ToolContext,
        *,
        offset: Annotated[int, Field(ge=0, description="The first character to read, from 0")] = 0,
        max_chars: Annotated[
            int,
            Field(
                ge=1, le=_MOST_CHARS, validation_alias=either("max_chars"), description="Maximum number of characters"
            ),
        ] = CHARS,
    ) -> ToolOutput:
        """Read a web page as Markdown, with its links and tables, without scripts and hidden text."""
        page = await chain.first(lambda provider: provider.scrape(url), ctx)
        return _page_output(page, offset, max_chars)

    return [with_camel_case(web_fetch)]


def _page_output(page: protocols.ScrapedPage, offset: int, max_chars: int) -> ToolOutput:
    clean = clean_text(page.content)
    part = clean.text[offset : offset + max_chars]
    end = offset + len(part)
    content = FetchedPage(
        url=page.url,
        title=one_line(page.title),
        status=page.status,
        content=part,
        media_type=page.media_type,
        offset=offset,
        total_chars=len(clean.text),
        next_offset=end if end < len(clean.text) else None,
        provider=page.provider,
    )
    cited = number_sources([(page.title, page.url)])
    more = f"\n\n(characters {offset} to {end} of {len(clean.text)})" if len(part) < len(clean.text) else ""
    return mark_untrusted(
        content,
        origin=page.url,
        model_text=f"{cited[0]}\n\n{part}{more}",
        facts={"citations": [one._asdict() for one in cited], "hidden_characters": clean.hidden},
    )


class WebSearchResult(TypedDict):
    """Search results, best first, and their `provider`."""

    query: str
    results: list[protocols.SearchResult]
    total_results: int
    provider: str


class RetrieveResult(TypedDict):
    """Passages of documents, best first, each with its `source`."""

    query: str
    chunks: list[protocols.RetrievedChunk]
    provider: str


def web_search_tools(chain: protocols.Chain[protocols.SearchProvider], *, max_results: int = 10) -> list[FunctionTool]:
    """Return web_search over a chain of search engines; `max_results` is the default of `limit`."""

    @read_tool(WebSearchResult, timeout_s=_TIMEOUT_S)
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
                description="Maximum number of results",
            ),
        ] = min(max_results, _MOST),
    ) -> ToolOutput:
        """Search the web. Each result has a title, a URL to cite or to read with web_fetch, and an excerpt."""
        return _search_output(await chain.first(lambda provider: provider.search(query, limit), ctx))

    return [with_camel_case(web_search, also={"limit": _OTHER_NAMES})]


def retrieve_tools(chain: protocols.Chain[protocols.RetrieveProvider]) -> list[FunctionTool]:
    """Return retrieve over a chain of document stores."""

    @read_tool(RetrieveResult, timeout_s=_TIMEOUT_S, category=ToolCategory.DATA)
    async def retrieve(
        query: Query,
        ctx: ToolContext,
        *,
        filters: Annotated[dict[str, Any], Field(description="Required metadata values")] = {},  # noqa: B006 - never changed
        limit: Annotated[int, Field(ge=1, le=_MOST, description="Maximum number of passages")] = 10,
    ) -> ToolOutput:
        """Find passages of documents in the stores that the operator configured."""
        conditions = protocols.Filters(limit=limit, equal=filters)
        result = await chain.first(lambda provider: provider.retrieve(query, conditions), ctx)
        chunks: list[protocols.RetrievedChunk] = [
            {**one, "text": _short(one["text"], _LONGEST_CHUNK), "source": one_line(one["source"])}
            for one in result.chunks
        ]
        content = RetrieveResult(query=query, chunks=chunks, provider=result.provider)
        sources = [(chunk["source"] or chunk["id"], chunk["text"], "") for chunk in chunks]
        return _output_with_citations(content, sources, origin=result.provider, hidden=0)

    return [retrieve]


def _search_output(search: protocols.SearchResults) -> ToolOutput:
    hidden = sum(clean_text(f"{one['title']}{one['content']}").hidden for one in search.results)
    results = [_clean_result(one) for one in search.results]
    content = WebSearchResult(query=search.query, results=results, total_results=len(results), provider=search.provider)
    sources = [(one["url"], one["content"], one["title"]) for one in results]
    return _output_with_citations(content, sources, origin=search.provider, hidden=hidden)


def _output_with_citations(
    content: Any, sources: Sequence[tuple[str, str, str]], *, origin: str, hidden: int
) -> ToolOutput:
    """Build output with texts numbered like their sources."""
    cited = number_sources((title, url) for url, _, title in sources)
    model_text = "\n\n".join(f"{one}\n{text}" for one, (_, text, _) in zip(cited, sources, strict=True))
    facts = {"citations": [one._asdict() for one in cited], "hidden_characters": hidden}
    return mark_untrusted(content, origin=origin, model_text=model_text or "(nothing was found)", facts=facts)


def _clean_result(result: protocols.SearchResult) -> protocols.SearchResult:
    return protocols.SearchResult(
        title=one_line(result["title"]),
        url=_shown_url(result["url"]),
        content=_short(result["content"], _LONGEST_CONTENT),
        score=result["score"],
    )


def _short(text: str, most: int) -> str:
    clean = clean_text(text).text
    return clean if len(clean) <= most else f"{clean[:most]}…"


def _shown_url(url: str) -> str:
    """Return a URL that can be cited: http or https, on one line; else an empty string."""
    line = "".join(clean_text(url).text.split())
    try:
        return line if urlsplit(line).scheme in ("http", "https") else ""
    except ValueError:
        return ""
