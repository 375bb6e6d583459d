"""Where HTTP connections come from: no proxies from the environment, no silent retries, and extras named if missing."""

from __future__ import annotations

from importlib.util import find_spec
from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError
from toolpost.wire.proxies import proxy_at

if TYPE_CHECKING:
    import httpx2

    from toolpost.wire.network import NetworkPolicy
    from toolpost.wire.transports import HttpTransport

__all__ = ["default_transport", "http2_transport", "http_transport"]


def default_transport(proxy: str | None = None) -> HttpTransport:
    """A transport of HTTP/1.1, which every server speaks; through a proxy if one is named."""
    try:
        from toolpost.wire.http1_transport import Http1Transport  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise ConfigError("HTTP needs httptools; run: pip install 'toolpost[http]'") from missing
    return Http1Transport(proxy=None if proxy is None else proxy_at(proxy))


def http2_transport(proxy: str | None = None) -> HttpTransport:
    """A transport that speaks HTTP/2 with servers that offer it; through a proxy if one is named."""
    if not all(map(find_spec, ("httpx2", "h2"))):
        raise ConfigError("HTTP/2 needs httpx2 and h2; run: pip install 'httpx2[http2]'")
    from toolpost.wire.httpx_transport import Httpx2Transport  # noqa: PLC0415 - only those who want it pay for it

    return Httpx2Transport(http2=True, proxy=None if proxy is None else proxy_at(proxy))


def http_transport(policy: NetworkPolicy) -> httpx2.AsyncHTTPTransport:
    """A pool of connections for a client of httpx2; they are only made to addresses that the policy allows."""
    import httpx2  # noqa: PLC0415 - only those who speak HTTP pay for it

    from toolpost.wire.httpx_transport import GuardedTransport  # noqa: PLC0415 - the same

    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100, keepalive_expiry=30.0)
    return GuardedTransport(policy, limits=limits)
