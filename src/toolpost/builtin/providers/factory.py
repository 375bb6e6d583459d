"""Factory of provider chains; a provider's module is imported when the configuration names it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from toolpost.builtin.providers.config import ProviderSettings
from toolpost.builtin.providers.protocols import Chain, RetrieveProvider, ScrapeProvider, SearchProvider
from toolpost.builtin.web_client import TIMEOUT_S, WebClient
from toolpost.contracts.errors import ConfigError
from toolpost.wire.network import NetworkPolicy

Factory = Callable[[ProviderSettings, NetworkPolicy], Any]
_TIME = "timeout_s"
_OURS = frozenset({"web_search", "web_fetch", "retrieve"})


def build_search_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[SearchProvider]:
    """Build the providers that search the web, in the order of the configuration."""
    engines = dict.fromkeys(("brave", "tavily", "google", "bing", "jina", "duckduckgo"), _search_engine)
    return Chain([_build("search the web", {**engines, "mcp": _tool}, link, network) for link in links])


def build_scrape_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[ScrapeProvider]:
    """Build the providers that read pages, in the order of the configuration."""
    readers = {"direct": _page_reader, "jina": _page_reader, "mcp": _tool}
    return Chain([_build("read pages", readers, link, network) for link in links])


def build_retrieve_chain(links: Sequence[ProviderSettings], network: NetworkPolicy) -> Chain[RetrieveProvider]:
    """Build the providers that retrieve documents, in the order of the configuration."""
    stores = dict.fromkeys(("opensearch", "pgvector", "embedded"), _document_store)
    return Chain([_build("retrieve documents", {**stores, "mcp": _tool}, link, network) for link in links])


def share_timeout(links: Sequence[ProviderSettings]) -> list[ProviderSettings]:
    """Divide the timeout of a call among the providers without a `timeout_s`."""
    own_timeouts = [link.timeout_s for link in links if _TIME in link.model_fields_set]
    others = len(links) - len(own_timeouts)
    share = max(TIMEOUT_S - sum(own_timeouts), TIMEOUT_S / len(links)) / max(others, 1)
    return [one if _TIME in one.model_fields_set else one.model_copy(update={_TIME: share}) for one in links]


def _build(purpose: str, factories: Mapping[str, Factory], link: ProviderSettings, network: NetworkPolicy) -> Any:
    factory = factories.get(link.provider)
    if factory is None:
        names = ", ".join(sorted(factories))
        raise ConfigError(f"provider {link.provider!r} cannot {purpose}; those that can: {names}")
    return factory(link, network)


def _web(link: ProviderSettings, network: NetworkPolicy) -> WebClient:
    """Build the client of one provider; an address set by the operator may be private."""
    web = WebClient(network, timeout_s=link.timeout_s)
    return web.for_operator(link.url) if link.url else web


def _search_engine(link: ProviderSettings, network: NetworkPolicy) -> SearchProvider:
    from toolpost.builtin.providers import duckduckgo  # noqa: PLC0415 - when one is named
    from toolpost.builtin.providers import search_engines as engines  # noqa: PLC0415 - the same

    web, key = _web(link, network), link.key
    if link.provider == "google":
        return engines.GoogleSearchProvider(web, key, link.url or engines.GOOGLE_URL, link.engine or "")
    if link.provider == "duckduckgo":
        return duckduckgo.DuckDuckGoSearchProvider(web, link.url or duckduckgo.DUCKDUCKGO_URL)
    kinds: dict[str, tuple[Callable[[WebClient, str, str], SearchProvider], str]] = {
        "brave": (engines.BraveSearchProvider, engines.BRAVE_URL),
        "tavily": (engines.TavilySearchProvider, engines.TAVILY_URL),
        "bing": (engines.BingSearchProvider, engines.BING_URL),
        "jina": (engines.JinaSearchProvider, engines.JINA_SEARCH_URL),
    }
    kind, default_url = kinds[link.provider]
    return kind(web, key, (link.url or default_url).rstrip("/"))


def _page_reader(link: ProviderSettings, network: NetworkPolicy) -> ScrapeProvider:
    from toolpost.builtin.providers import page_readers  # noqa: PLC0415 - when one is named

    if link.provider == "direct":
        return page_readers.DirectPages(WebClient(network, timeout_s=link.timeout_s))
    url = (link.url or page_readers.JINA_READER_URL).rstrip("/")
    return page_readers.JinaReaderProvider(_web(link, network), link.key, url)


def _document_store(link: ProviderSettings, network: NetworkPolicy) -> RetrieveProvider:
    from toolpost.builtin.providers import document_stores as stores  # noqa: PLC0415 - when one is named

    if link.provider == "embedded":
        return stores.EmbeddedRetriever(link.path)
    url, index = link.url or "", link.index or ""
    if link.provider == "opensearch":
        web = _web(link, network)
        return stores.OpenSearchProvider(web=web, url=url, index=index, user=link.user or "", key=link.key)
    named = link.embeddings
    if named is None:
        raise ConfigError("provider 'pgvector' needs embeddings: who turns a question into a vector")
    key = named.api_key.get_secret_value() if named.api_key else ""
    embed = stores.EmbeddingApi(
        web=WebClient(network).for_operator(named.url), url=named.url, model=named.model, key=key
    )
    return stores.PgVectorProvider(url=url, table=index, embed=embed, password=link.key)


def _tool(link: ProviderSettings, network: NetworkPolicy) -> Any:
    from toolpost.builtin.providers.tool_provider import McpProvider  # noqa: PLC0415 - when it is named

    tool = link.tool or ""
    if tool in _OURS:
        raise ConfigError(f"provider 'mcp' calls {tool!r}, which uses providers itself; name a tool of a source")
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
