"""Makes chains of providers from configuration; what only some need is imported when it is named."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from toolpost.builtin.providers.chain import Chain
from toolpost.builtin.web_access import TIMEOUT_S, Web
from toolpost.contracts.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from toolpost.builtin.providers.config import ProviderSettings
    from toolpost.builtin.providers.protocols import RetrieveProvider, ScrapeProvider, SearchProvider
    from toolpost.wire.network import NetworkPolicy

    Maker = Callable[[ProviderSettings, NetworkPolicy], Any]


def search_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[SearchProvider]:
    """Who searches the web, in this order."""
    return Chain([_made("search the web", _SEARCH, link, network) for link in links])


def scrape_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[ScrapeProvider]:
    """Who reads pages, in this order."""
    return Chain([_made("read pages", _SCRAPE, link, network) for link in links])


def within_total(links: Sequence[ProviderSettings], total_s: float = TIMEOUT_S) -> list[ProviderSettings]:
    """Share the longest that a call may take among those who are not given a time of their own."""
    given = [link.timeout_s for link in links if _TIME in link.model_fields_set]
    others = len(links) - len(given)
    share = max(total_s - sum(given), total_s / len(links)) / max(others, 1)
    return [one if _TIME in one.model_fields_set else one.model_copy(update={_TIME: share}) for one in links]


def retrieve_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[RetrieveProvider]:
    """Who retrieves documents, in this order."""
    return Chain([_made("retrieve documents", _RETRIEVE, link, network) for link in links])


def _made(purpose: str, makers: Mapping[str, Maker], link: ProviderSettings, network: NetworkPolicy) -> Any:
    maker = makers.get(link.provider)
    if maker is None:
        known = ", ".join(sorted(makers))
        raise ConfigError(f"provider {link.provider!r} cannot {purpose}; those that can: {known}")
    return maker(link, network)


def _web(link: ProviderSettings, network: NetworkPolicy) -> Web:
    """Connections for one provider; an address that the operator wrote may be private."""
    web = Web(network, timeout_s=link.timeout_s)
    return web.for_operator(link.url) if link.url else web


def _engine(name: str, link: ProviderSettings, network: NetworkPolicy) -> SearchProvider:
    from toolpost.builtin.providers import web_search as engines  # noqa: PLC0415 - when one is named

    web, key = _web(link, network), link.key
    if name == "google":
        return engines.GoogleSearchProvider(web, key, link.url or engines.GOOGLE_URL, link.engine or "")
    makers: dict[str, tuple[Callable[[Web, str, str], SearchProvider], str]] = {
        "brave": (engines.BraveSearchProvider, engines.BRAVE_URL),
        "tavily": (engines.TavilySearchProvider, engines.TAVILY_URL),
        "bing": (engines.BingSearchProvider, engines.BING_URL),
        "jina": (engines.JinaSearchProvider, engines.JINA_SEARCH_URL),
    }
    kind, usual = makers[name]
    return kind(web, key, (link.url or usual).rstrip("/"))


def _duckduckgo(link: ProviderSettings, network: NetworkPolicy) -> SearchProvider:
    from toolpost.builtin.providers import duckduckgo  # noqa: PLC0415 - when it is named

    return duckduckgo.DuckDuckGoSearchProvider(_web(link, network), link.url or duckduckgo.DUCKDUCKGO_URL)


def _direct(link: ProviderSettings, network: NetworkPolicy) -> ScrapeProvider:
    from toolpost.builtin.providers.pages import DirectPages  # noqa: PLC0415 - when it is named

    return DirectPages(Web(network, timeout_s=link.timeout_s))


def _jina(link: ProviderSettings, network: NetworkPolicy) -> ScrapeProvider:
    from toolpost.builtin.providers import pages  # noqa: PLC0415 - when it is named

    return pages.JinaReaderProvider(_web(link, network), link.key, (link.url or pages.JINA_READER_URL).rstrip("/"))


def _opensearch(link: ProviderSettings, network: NetworkPolicy) -> RetrieveProvider:
    from toolpost.builtin.providers.opensearch import OpenSearchProvider  # noqa: PLC0415 - when it is named

    return OpenSearchProvider(
        web=_web(link, network), url=link.url or "", index=link.index or "", user=link.user or "", key=link.key
    )


def _pgvector(link: ProviderSettings, network: NetworkPolicy) -> RetrieveProvider:
    from toolpost.builtin.providers.embeddings import EmbeddingApi  # noqa: PLC0415 - when it is named
    from toolpost.builtin.providers.pgvector import PgVectorProvider  # noqa: PLC0415 - the same

    named = link.embeddings
    if named is None:
        raise ConfigError("provider 'pgvector' needs embeddings: who turns a question into a vector")
    key = named.api_key.get_secret_value() if named.api_key else ""
    embed = EmbeddingApi(web=Web(network).for_operator(named.url), url=named.url, model=named.model, key=key)
    return PgVectorProvider(url=link.url or "", table=link.index or "", embed=embed, password=link.key)


def _embedded(link: ProviderSettings, _: NetworkPolicy) -> RetrieveProvider:
    from toolpost.builtin.providers.embedded import EmbeddedRetriever  # noqa: PLC0415 - when it is named

    return EmbeddedRetriever(link.path)


def _calling(link: ProviderSettings, network: NetworkPolicy) -> Any:
    from toolpost.builtin.providers.calling import McpProvider  # noqa: PLC0415 - when it is named

    tool = link.tool or ""
    if tool in _OURS:
        raise ConfigError(f"provider 'mcp' calls {tool!r}, which asks providers itself; name a tool of a source")
    names = link.arguments
    return McpProvider(
        tool=tool,
        query=names.get("query", "query"),
        count=names.get("count"),
        url=names.get("url", "url"),
        filters=names.get("filters"),
        timeout_s=link.timeout_s,
        network=network,
    )


_TIME = "timeout_s"
_OURS = frozenset({"web_search", "web_fetch", "retrieve"})
_SEARCH: dict[str, Maker] = {
    **{name: partial(_engine, name) for name in ("brave", "tavily", "google", "bing", "jina")},
    "duckduckgo": _duckduckgo,
    "mcp": _calling,
}
_SCRAPE: dict[str, Maker] = {"direct": _direct, "jina": _jina, "mcp": _calling}
_RETRIEVE: dict[str, Maker] = {
    "opensearch": _opensearch,
    "pgvector": _pgvector,
    "embedded": _embedded,
    "mcp": _calling,
}
