"""Protocols and result types of providers, and the chain that falls back from one provider to the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

from msgspec import Struct, field
from typing_extensions import TypedDict

from toolpost.contracts.errors import (
    ErrorCategory,
    ToolConnectionError,
    ToolError,
    ToolPermissionError,
    ToolServerError,
)

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping, Sequence

    from toolpost.contracts.context import ToolContext

T = TypeVar("T")

P = TypeVar("P", bound="Provider")
P_co = TypeVar("P_co", bound="Provider", covariant=True)


class SearchResult(TypedDict):
    """One page that was found; `score` is null where the provider gives none."""

    title: str
    url: str
    content: str
    score: float | None


class SearchResults(Struct, frozen=True, kw_only=True):
    """Results of a search, the best first, and the provider they are from."""

    query: str
    provider: str
    results: tuple[SearchResult, ...] = ()


class ScrapedPage(Struct, frozen=True, kw_only=True):
    """A page as Markdown; `url` is its address after redirects."""

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


class RetrievedChunks(Struct, frozen=True, kw_only=True):
    """Chunks that a store returned for a query, the best first."""

    query: str
    provider: str
    chunks: tuple[RetrievedChunk, ...] = ()


class Filters(Struct, frozen=True, kw_only=True):
    """How many chunks to retrieve at most, and the values that their metadata must have."""

    limit: int = 10
    equal: Mapping[str, Any] = field(default_factory=dict[str, Any])


class Provider(Protocol):
    """Common members of all providers."""

    @property
    def name(self) -> str:
        """Name in the configuration, in events and in errors."""
        ...

    async def close(self) -> None:
        """Release connections and files; safe to call twice."""
        ...


class SearchProvider(Provider, Protocol):
    """Searches the web."""

    async def search(self, query: str, count: int) -> SearchResults:
        """Return at most `count` results; raise a ToolError on failure."""
        ...


class ScrapeProvider(Provider, Protocol):
    """Reads pages."""

    async def scrape(self, url: str) -> ScrapedPage:
        """Return the page at a URL."""
        ...


class RetrieveProvider(Provider, Protocol):
    """Retrieves chunks of documents."""

    async def retrieve(self, query: str, filters: Filters) -> RetrievedChunks:
        """Return the chunks that match a query best."""
        ...


class Chain(Generic[P_co]):
    """Providers of one kind, tried in the order of the configuration."""

    def __init__(self, providers: Sequence[P_co]) -> None:
        if not providers:
            raise ValueError("a chain needs at least one provider")
        self.providers = tuple(providers)
        self._asking = 0
        self._is_retired = False

    async def first(self, ask: Callable[[P_co], Awaitable[T]], ctx: ToolContext) -> T:
        """Return the result of the first provider that does not fail; raise all failures as one error.

        Each fallback is an event. A rejection by the guard ends the chain, because it applies to every provider.
        """
        self._asking += 1
        try:
            return await self._first(ask, ctx)
        finally:
            self._asking -= 1
            if self._is_retired and not self._asking:
                await self.close()

    async def _first(self, ask: Callable[[P_co], Awaitable[T]], ctx: ToolContext) -> T:
        failures: list[tuple[P_co, ToolError]] = []
        for provider in self.providers:
            if failures:
                failed_one, error = failures[-1]
                ctx.fell_back(failed_one.name, to=provider.name, error=error)
            try:
                return await ask(_within(provider, ctx))
            except ToolPermissionError:
                raise
            except ToolError as failed:
                failures.append((provider, failed))
        raise _all_failed(failures)

    async def retire(self) -> None:
        """Close every provider once the running calls have ended; other providers have replaced them."""
        self._is_retired = True
        if not self._asking:
            await self.close()

    async def close(self) -> None:
        for provider in self.providers:
            await provider.close()


def _within(provider: P, ctx: ToolContext) -> P:
    """Bind a provider that calls tools, which has a method `within`, to the calls of this context."""
    within: Callable[[ToolContext], P] | None = getattr(provider, "within", None)
    return provider if within is None else within(ctx)


def _all_failed(failures: Sequence[tuple[P, ToolError]]) -> ToolError:
    if len(failures) == 1:
        return failures[0][1]
    details = "; ".join(f"{provider.name}: {error}" for provider, error in failures)
    errors = [error for _, error in failures]
    waits = [error.retry_after_s for error in errors if error.retry_after_s is not None]
    retryable = any(error.is_retryable for error in errors)
    if all(isinstance(error, ToolConnectionError) and not error.sent for error in errors):
        return ToolConnectionError(f"all providers failed: {details}", sent=False, code="all_providers_failed")
    return ToolServerError(
        f"all providers failed: {details}",
        category=ErrorCategory.RETRYABLE_SERVER if retryable else ErrorCategory.NON_RETRYABLE_CLIENT,
        code="all_providers_failed",
        retry_after_s=min(waits, default=None),
    )
