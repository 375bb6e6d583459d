"""An OAuthManager that begins a sign-in without being awaited."""

import json
from urllib.parse import parse_qs, urlsplit

import pytest

from tests.wire.site import Site, reply
from toolpost.auth import AuthManager
from toolpost.compat.penguiflow.tools import InMemoryTokenStore, OAuthManager, OAuthProviderConfig


def provider(site: str = "https://github.example.com") -> OAuthProviderConfig:
    return OAuthProviderConfig(
        name="github",
        display_name="GitHub",
        auth_url=f"{site}/authorize",
        token_url=f"{site}/token",
        client_id="client",
        client_secret="s3cret",
        redirect_uri="https://app.example.com/callback",
        scopes=["repo", "user"],
    )


def test_a_sign_in_begins_without_being_awaited() -> None:
    manager = OAuthManager({"github": provider()})

    shown = manager.get_auth_request("github", "ann", "trace_1")

    asked = parse_qs(urlsplit(shown["auth_url"]).query)
    assert (shown["display_name"], shown["scopes"]) == ("GitHub", ["repo", "user"])
    assert (asked["client_id"], asked["scope"], asked["state"]) == (["client"], ["repo user"], [shown["state"]])
    assert isinstance(manager, AuthManager)
    assert "s3cret" not in repr(manager)


async def test_its_callback_stores_the_token_and_says_what_to_resume() -> None:
    token = json.dumps({"access_token": "a-token", "token_type": "Bearer"}).encode()
    store = InMemoryTokenStore()
    async with Site(reply(200, token, content_type="application/json")) as site:
        manager = OAuthManager({"github": provider(site.url)}, token_store=store)
        assert await manager.get_token("ann", "github") is None
        state = manager.get_auth_request("github", "ann", "trace_1")["state"]

        assert await manager.handle_callback("code", state) == ("ann", "trace_1")
        assert await manager.get_token("ann", "github") == "a-token"
        with pytest.raises(ValueError, match="Invalid or expired OAuth state"):
            await manager.handle_callback("code", state)

    assert manager.token_store is store
    assert list(manager.providers) == ["github"]


def test_an_unknown_provider_is_named() -> None:
    with pytest.raises(ValueError, match="Unknown OAuth provider: slack"):
        OAuthManager({}).get_auth_request("slack", "ann")


def test_sign_ins_that_expired_are_dropped() -> None:
    now = [1000.0]
    manager = OAuthManager({"github": provider()}, ttl_s=600, clock=lambda: now[0])
    for _ in range(3):
        manager.get_auth_request("github", "ann")
    now[0] += 1300
    manager.get_auth_request("github", "bob")
    assert manager.pending_sign_ins == 1
