"""The tool that reads a page as Markdown: web_fetch, over a chain of providers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from pydantic import Field, TypeAdapter
from typing_extensions import TypedDict

from toolpost.builtin.network import Url, looking
from toolpost.builtin.spelling import either, with_camel_case
from toolpost.builtin.web_access import TIMEOUT_S
from toolpost.catalog.function import FunctionTool
from toolpost.contracts.calls import ToolOutput
from toolpost.contracts.context import ToolContext
from toolpost.schema.generation import schema_of
from toolpost.schema.hidden_text import visible
from toolpost.web.untrusted import citations, from_outside, one_line

if TYPE_CHECKING:
    from toolpost.builtin.providers.protocols import Chain, ScrapedPage, ScrapeProvider

CHARS = 20_000
_MOST_CHARS = 100_000


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


_PAGE = schema_of(TypeAdapter(FetchedPage), "serialization")


def page_tools(chain: Chain[ScrapeProvider], *, timeout_s: float = TIMEOUT_S) -> list[FunctionTool]:
    """The tool of this module over a chain of those who read pages; together they may take `timeout_s`."""

    @looking(_PAGE, timeout_s=timeout_s, host_argument="url")
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
        return _output(page, offset, max_chars)

    return [with_camel_case(web_fetch)]


def _output(page: ScrapedPage, offset: int, max_chars: int) -> ToolOutput:
    seen = visible(page.content)
    part = seen.text[offset : offset + max_chars]
    end = offset + len(part)
    content = FetchedPage(
        url=page.url,
        title=one_line(page.title),
        status=page.status,
        content=part,
        media_type=page.media_type,
        offset=offset,
        total_chars=len(seen.text),
        next_offset=end if end < len(seen.text) else None,
        provider=page.provider,
    )
    cited = citations([(page.title, page.url)])
    more = f"\n\n(characters {offset} to {end} of {len(seen.text)})" if len(part) < len(seen.text) else ""
    return from_outside(
        content,
        origin=page.url,
        told=f"{cited[0]}\n\n{part}{more}",
        facts={"citations": [one._asdict() for one in cited], "hidden_characters": seen.hidden},
    )
