"""HTTP connections: one SSL context for the process, no proxies from the environment, no silent retries."""

from __future__ import annotations

import ssl
from functools import cache
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import httpx2


@cache
def ssl_context() -> ssl.SSLContext:
    """The context that all connections share; making one takes 20 ms, so it is made once."""
    return ssl.create_default_context()


def http_transport() -> httpx2.AsyncHTTPTransport:
    """A pool of connections."""
    import httpx2  # noqa: PLC0415 - only those who speak HTTP pay for it

    limits = httpx2.Limits(max_connections=200, max_keepalive_connections=100, keepalive_expiry=30.0)
    return httpx2.AsyncHTTPTransport(verify=ssl_context(), retries=0, trust_env=False, limits=limits)
