"""Addresses as detection needs them."""

from __future__ import annotations

from urllib.parse import urlsplit, urlunsplit


def is_root(url: str) -> bool:
    """Return whether a URL has no path."""
    return urlsplit(url).path in ("", "/")


def is_graphql_path(url: str) -> bool:
    """Return whether a URL is written as that of a GraphQL endpoint."""
    return urlsplit(url).path.rstrip("/").lower().endswith(("graphql", "gql"))


def url_below(url: str, path: str) -> str:
    """Return the URL of a path below another URL; the query stays."""
    parts = urlsplit(url)
    return urlunsplit(parts._replace(path=f"{parts.path.rstrip('/')}/{path}", fragment=""))
