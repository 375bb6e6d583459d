"""What a provider is: something that searches the web, reads a page, or retrieves from a store of documents."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from typing_extensions import TypedDict

if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Self

    from toolpost.contracts.sources import Caller


class SearchResult(TypedDict):
    """One page that was found; `score` is null where the provider gives none."""

    title: str
    url: str
    content: str
    score: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchResults:
    """What a search found, the best first, and who found it."""

    query: str
    provider: str
    results: tuple[SearchResult, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ScrapedPage:
    """A page as Markdown; `url` is where it was in the end."""

    url: str
    provider: str
    title: str = ""
    content: str = ""
    status: int = 200
    media_type: str = "text/html"


class RetrievedChunk(TypedDict):
    """A piece of a document; `source` is where to look it up."""

    id: str
    text: str
    source: str
    score: float | None
    metadata: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievedChunks:
    """What a store has to say to a question, the best first."""

    query: str
    provider: str
    chunks: tuple[RetrievedChunk, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Filters:
    """How to narrow what is retrieved: how many pieces, and which values their metadata must have."""

    limit: int = 10
    equal: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Provider(Protocol):
    """What all providers have: a name for events and errors, and an end."""

    @property
    def name(self) -> str:
        """Who it is."""
        ...

    async def close(self) -> None:
        """Let go of what it holds; safe to call twice."""
        ...


class SearchProvider(Provider, Protocol):
    """Searches the web."""

    async def search(self, query: str, count: int) -> SearchResults:
        """At most `count` results; a ToolError says why there are none to be had."""
        ...


class ScrapeProvider(Provider, Protocol):
    """Reads pages."""

    async def scrape(self, url: str) -> ScrapedPage:
        """The page at a URL."""
        ...


class RetrieveProvider(Provider, Protocol):
    """Finds pieces of documents."""

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """The pieces that answer a question best."""
        ...


class CallingProvider(Protocol):
    """A provider that calls tools, and so needs whoever may call them for this person."""

    def within(self, caller: Caller) -> Self:
        """The same provider for calls of this caller."""
        ...
