"""Where HTTP connections come from: no proxies from the environment, no silent retries, and extras named if missing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from toolpost.contracts.errors import ConfigError
from toolpost.wire.proxies import proxy_at

if TYPE_CHECKING:
    import httpx2

    from toolpost.wire.network import NetworkPolicy
    from toolpost.wire.transports import HttpTransport

__all__ = ["default_transport", "http_transport"]


def default_transport(proxy: str | None = None) -> HttpTransport:
    """A transport of HTTP/1.1, which every server speaks; through a proxy if one is named."""
    try:
        from toolpost.wire.http1_transport import Http1Transport  # noqa: PLC0415 - an extra
    except ImportError as missing:
        raise ConfigError("HTTP needs httptools; run: pip install 'toolpost[http]'") from missing
    return Http1Transport(proxy=None if proxy is None else proxy_at(proxy))


def http_transport(policy: NetworkPolicy) -> httpx2.AsyncHTTPTransport:
    """Create a transport for an httpx2 client; it connects only to addresses that the policy allows."""
    from toolpost.wire.httpx_transport import GuardedTransport  # noqa: PLC0415 - an extra

    return GuardedTransport(policy)
