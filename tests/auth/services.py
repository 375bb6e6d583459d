"""A service with accounts whose token endpoint says what a test tells it to."""

import json
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from tests.wire.site import Site, reply
from toolpost.auth.oauth_manager import OAuthManager, OAuthProviderConfig

REDIRECT = "https://app.example.org/oauth/callback"
NOW = 1_000_000.0


def provider(token_url: str = "https://id.example.org/token", **changes: Any) -> OAuthProviderConfig:
    known: dict[str, Any] = {
        "name": "github",
        "display_name": "GitHub",
        "auth_url": "https://id.example.org/authorize",
        "token_url": token_url,
        "client_id": "app",
        "client_secret": "canary-client-secret",
        "redirect_uri": REDIRECT,
        "scopes": ["repo", "user"],
    }
    return OAuthProviderConfig(**(known | changes))


def manager(
    site: Site | None = None,
    *,
    clock: Callable[[], float] = lambda: NOW,
    changes: dict[str, Any] | None = None,
    **how: Any,
) -> OAuthManager:
    """A manager for `github`, whose token endpoint is the site."""
    where = "https://id.example.org/token" if site is None else f"{site.url}/token"
    return OAuthManager({"github": provider(where, **(changes or {}))}, clock=clock, **how)


def answer(status: int = 200, **told: Any) -> bytes:
    return reply(status, json.dumps(told).encode(), content_type="application/json")


def token(value: str = "canary-token", **more: Any) -> bytes:
    return answer(access_token=value, token_type="bearer", **more)


def query_of(url: str) -> dict[str, str]:
    pairs = parse_qsl(urlsplit(url).query, keep_blank_values=True, strict_parsing=True)
    assert len(dict(pairs)) == len(pairs), "a parameter stands there twice"
    return dict(pairs)


def form_of(site: Site) -> dict[str, str]:
    """The form that the token endpoint was sent last."""
    return dict(parse_qsl(site.last.body.decode(), strict_parsing=True))
