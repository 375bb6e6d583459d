"""The SSL contexts that all connections of the process share: making one takes 20 ms, so each is made once."""

from __future__ import annotations

import ssl
from functools import cache


@cache
def ssl_context() -> ssl.SSLContext:
    """The context of those who speak HTTP/1.1."""
    return _context("http/1.1")


@cache
def http2_ssl_context() -> ssl.SSLContext:
    """The context of those who speak HTTP/2 too: what a context offers, it offers on all its connections."""
    return _context("h2", "http/1.1")


def _context(*protocols: str) -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.set_alpn_protocols(protocols)
    return context
