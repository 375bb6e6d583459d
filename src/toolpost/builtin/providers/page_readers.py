"""Providers of web pages: fetched through the guard, or read by Jina."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from toolpost.builtin.html_markdown import page_markdown
from toolpost.builtin.html_tree import parse_html
from toolpost.builtin.providers.api import Api, first_text, page_address
from toolpost.builtin.providers.protocols import ScrapedPage
from toolpost.catalog.threads import run_cancellable
from toolpost.contracts.errors import ToolClientError, ToolPermissionError
from toolpost.http.content import decode_text, parse_media_type
from toolpost.schema.json_values import is_object
from toolpost.wire.network import NetworkPolicy
from toolpost.wire.targets import parse_target

if TYPE_CHECKING:
    from toolpost.builtin.web_client import WebClient, WebResponse

JINA_READER_URL = "https://r.jina.ai"
_ACCEPT = "text/html, application/xhtml+xml, text/markdown, text/plain;q=0.9, application/json;q=0.8, */*;q=0.1"
_PAGES = frozenset({"text/html", "application/xhtml+xml"})
_READABLE = frozenset({"text", "json", "lines", "yaml", "xml", "form", "events"})
_META_CHARSET = re.compile(rb"""<meta[^>]{0,200}?charset\s*=\s*["']?\s*([\w-]{1,40})""", re.IGNORECASE)
_HEAD = 4096
_FAILED_THERE = re.compile(r"Target URL returned error (\d{3})")


@dataclass(frozen=True, slots=True)
class DirectPages:
    """Fetches a page through the guard and converts it to Markdown."""

    name = "direct"
    web: WebClient

    async def scrape(self, url: str) -> ScrapedPage:
        """Read a page; a non-2xx status is part of the result, not an error."""
        response = await self.web.send("GET", url, headers={"Accept": _ACCEPT})
        kind = parse_media_type(response.content_type)
        media = kind.essence or "text/html"
        if media in _PAGES or not kind.essence:
            tree = await parse_html(_decode_page(response))
            title, content = await run_cancellable(lambda _: page_markdown(tree, base_url=response.url))
        elif kind.kind in _READABLE:
            title, content = "", decode_text(response.body, kind.charset)
        else:
            message = (
                f"{response.url} is {kind.essence}, {len(response.body)} bytes, not a page; http_get returns its bytes"
            )
            raise ToolClientError(message, code="not_a_page")
        return ScrapedPage(
            url=response.url, provider=self.name, title=title, content=content, status=response.status, media_type=media
        )

    async def close(self) -> None:
        await self.web.close()


@dataclass(frozen=True, slots=True)
class JinaReaderProvider:
    """Reads pages with Jina's reader, which learns their URLs: only public addresses are sent."""

    name = "jina"
    web: WebClient
    key: str = field(default="", repr=False)
    url: str = field(default=JINA_READER_URL, repr=False)

    async def scrape(self, url: str) -> ScrapedPage:
        await _check_public(url, self.web.network)
        headers = {"Authorization": f"Bearer {self.key}"} if self.key else {}
        api = Api(name=self.name, web=self.web, url=self.url, headers=headers, secrets=(self.key,) if self.key else ())
        response = await api.post("/", {"url": url})
        data = response.get("data") if is_object(response) else None
        if not is_object(data) or not isinstance(data.get("content"), str):
            raise api.unreadable("without the content of a page")
        # The reader succeeds even if the page failed.
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
    """Reject a private address, even one that the operator allows for direct requests."""
    target = parse_target(url)
    await allowed.resolve(target)
    try:
        await NetworkPolicy().resolve(target)
    except ToolPermissionError as refused:
        reason = str(refused).removeprefix("Permission denied: ")
        raise ToolClientError(f"this URL is not sent to jina: {reason}", code="not_public") from None


def _decode_page(response: WebResponse) -> str:
    """Decode a page by the charset of its header, else of its meta element."""
    charset = parse_media_type(response.content_type).charset
    if charset is None and (match := _META_CHARSET.search(response.body[:_HEAD])):
        charset = parse_media_type(f"text/html; charset={match[1].decode('ascii')}").charset
    return decode_text(response.body, charset)
