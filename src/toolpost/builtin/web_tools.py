"""Tools for the network, through the guard: http_get, http_post, http_request, web_fetch, web_search and retrieve."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Sequence
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolpost.builtin.argument_aliases import either, with_camel_case
from toolpost.builtin.providers import protocols
from toolpost.builtin.web_client import TIMEOUT_S, WebClient, WebResponse
from toolpost.catalog.function import FunctionTool, tool
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.contracts.spec import JsonSchema, ToolCategory
from toolpost.schema.hidden_text import clean_text
from toolpost.schema.pydantic_types import schema_of
from toolpost.web.content import decode_text, parse_media_type
from toolpost.web.requests import status_phrase
from toolpost.web.untrusted import mark_untrusted, number_sources, one_line

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"]
Url = Annotated[str, Field(min_length=1, max_length=8192, description="An http or https URL of a public address")]
HeaderFields = Annotated[dict[str, str], Field(description="Header fields to send")]
Body = Annotated[
    str | dict[str, Any] | list[Any] | None,
    Field(description="What to send: a text as it is, anything else as JSON"),
]

TAGS = ("builtin", "network")
_NO_HEADERS: dict[str, str] = {}
CHARS = 20_000
_MOST_CHARS = 100_000
_TIMEOUT_S = 30.0
_LONGEST_CONTENT = 1000
_LONGEST_CHUNK = 4000
_MOST = 20
_OTHER_NAMES = ("count", "max_results", "maxResults")


class HttpResult(TypedDict):
    """An answer, whatever its status; a `body` that is no text is in base64, as `encoding` says."""

    url: str
    method: str
    status: int
    status_text: str
    headers: dict[str, str]
    body: str
    encoding: Literal["text", "base64"]


_HTTP_SCHEMA = schema_of(TypeAdapter(HttpResult), "serialization")


def read_tool(
    output_schema: JsonSchema,
    *,
    timeout_s: float,
    category: ToolCategory = ToolCategory.NETWORK,
    host_argument: str | None = None,
) -> Callable[[Callable[..., Any]], FunctionTool]:
    """Return the decorator of a tool that only reads from the network."""
    return tool(
        side_effects="read",
        network=True,
        open_world=True,
        category=category,
        tags=TAGS,
        timeout_s=timeout_s,
        output_schema=output_schema,
        host_argument=host_argument,
    )


def _send_tool(web: WebClient) -> Callable[[Callable[..., Any]], FunctionTool]:
    return tool(
        side_effects="external",
        open_world=True,
        destructive=True,  # it sends whatever it is given to wherever it is told
        category=ToolCategory.NETWORK,
        tags=TAGS,
        timeout_s=web.timeout_s,
        output_schema=_HTTP_SCHEMA,
        host_argument="url",
    )


def http_tools(web: WebClient) -> list[FunctionTool]:
    """Return the HTTP tools over one guarded client."""
    return [_http_get(web), _http_post(web), _http_request(web)]


def _http_get(web: WebClient) -> FunctionTool:
    @read_tool(_HTTP_SCHEMA, timeout_s=web.timeout_s, host_argument="url")
    async def http_get(url: Url, *, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Get what is at a URL. Any status is an answer; redirects are followed, at most three."""
        return _http_output("GET", await web.send("GET", url, headers=headers))

    return http_get


def _http_post(web: WebClient) -> FunctionTool:
    @_send_tool(web)
    async def http_post(url: Url, *, body: Body = None, headers: HeaderFields = _NO_HEADERS) -> ToolOutput:
        """Post something to a URL, as JSON unless a Content-Type says otherwise. Any status is an answer."""
        return await _send(web, "POST", url, body, headers)

    return http_post


def _http_request(web: WebClient) -> FunctionTool:
    @_send_tool(web)
    async def http_request(
        method: Annotated[Method, Field(description="The HTTP method")],
        url: Url,
        *,
        body: Body = None,
        headers: HeaderFields = _NO_HEADERS,
    ) -> ToolOutput:
        """Send an HTTP request. Any status is an answer; only GET and HEAD follow redirects, at most three."""
        return await _send(web, method, url, body, headers)

    return http_request


async def _send(web: WebClient, method: str, url: str, body: Any, headers: dict[str, str]) -> ToolOutput:
    data, fields = None, headers
    if body is not None:
        text = body if isinstance(body, str) else json.dumps(body, ensure_ascii=False)
        data = text.encode("utf-8", "replace")
        named = any(name.lower() == "content-type" for name in headers)
        fields = headers if named else {**headers, "Content-Type": "application/json"}
    return _http_output(method, await web.send(method, url, headers=fields, body=data))


def _http_output(method: str, response: WebResponse) -> ToolOutput:
    body, encoding = _body_text(response)
    clean = clean_text(body)
    content = HttpResult(
        url=response.url,
        method=method,
        status=response.status,
        status_text=status_phrase(response.status),
        headers=_header_fields(response),
        body=clean.text,
        encoding=encoding,
    )
    return mark_untrusted(
        content, origin=response.url, facts={"status": response.status, "hidden_characters": clean.hidden}
    )


def _body_text(response: WebResponse) -> tuple[str, Literal["text", "base64"]]:
    kind = parse_media_type(response.content_type)
    if kind.kind not in ("binary", "multipart"):
        return decode_text(response.body, kind.charset), "text"
    if not kind.essence and b"\0" not in response.body:
        return decode_text(response.body), "text"
    return base64.b64encode(response.body).decode(), "base64"


def _header_fields(response: WebResponse) -> dict[str, str]:
    """Return header fields by lower-case name; repeated fields are joined (RFC 9110, section 5.3)."""
    fields: dict[str, str] = {}
    for name, value in response.headers:
        key, shown = name.lower(), clean_text(value).text
        fields[key] = f"{fields[key]}, {shown}" if key in fields else shown
    return fields


class FetchedPage(TypedDict):
    """Part of a page as Markdown; `next_offset` is where to go on, null at its end."""

    url: str
    title: str
    status: int
    content: str
    media_type: str
    offset: int
    total_chars: int
    next_offset: int | None
    provider: str


_PAGE_SCHEMA = schema_of(TypeAdapter(FetchedPage), "serialization")


def web_fetch_tools(
    chain: protocols.Chain[protocols.ScrapeProvider], *, timeout_s: float = TIMEOUT_S
) -> list[FunctionTool]:
    """Return web_fetch over a chain of page readers, which together may take `timeout_s`."""

    @read_tool(_PAGE_SCHEMA, timeout_s=timeout_s, host_argument="url")
    async def web_fetch(
        url: Url,
        ctx: ToolContext,
        *,
        offset: Annotated[int, Field(ge=0, description="Where to begin, in characters")] = 0,
        max_chars: Annotated[
            int,
            Field(ge=1, le=_MOST_CHARS, validation_alias=either("max_chars"), description="The most to read"),
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


Query = Annotated[str, Field(min_length=1, max_length=2000, description="What to look for")]


class WebSearchResult(TypedDict):
    """What a search found, the best first; `provider` is who found it."""

    query: str
    results: list[protocols.SearchResult]
    total_results: int
    provider: str


class RetrieveResult(TypedDict):
    """Pieces of documents, the best first; `source` says where each is from."""

    query: str
    chunks: list[protocols.RetrievedChunk]
    provider: str


_SEARCH_SCHEMA = schema_of(TypeAdapter(WebSearchResult), "serialization")
_RETRIEVE_SCHEMA = schema_of(TypeAdapter(RetrieveResult), "serialization")


def web_search_tools(chain: protocols.Chain[protocols.SearchProvider], *, max_results: int = 10) -> list[FunctionTool]:
    """Return web_search over a chain of search engines; `max_results` is the default of `limit`."""

    @read_tool(_SEARCH_SCHEMA, timeout_s=_TIMEOUT_S)
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
        return _search_output(await chain.first(lambda provider: provider.search(query, limit), ctx))

    return [with_camel_case(web_search, also={"limit": _OTHER_NAMES})]


def retrieve_tools(chain: protocols.Chain[protocols.RetrieveProvider]) -> list[FunctionTool]:
    """Return retrieve over a chain of document stores."""

    @read_tool(_RETRIEVE_SCHEMA, timeout_s=_TIMEOUT_S, category=ToolCategory.DATA)
    async def retrieve(
        query: Query,
        ctx: ToolContext,
        *,
        filters: Annotated[dict[str, Any], Field(description="Values that the metadata must have")] = {},  # noqa: B006 - never changed
        limit: Annotated[int, Field(ge=1, le=_MOST, description="The most pieces to get")] = 10,
    ) -> ToolOutput:
        """Find pieces of documents in the stores that the operator configured."""
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
    """Return a URL that can be cited: http or https, on one line; else empty."""
    line = "".join(clean_text(url).text.split())
    try:
        return line if urlsplit(line).scheme in ("http", "https") else ""
    except ValueError:
        return ""
