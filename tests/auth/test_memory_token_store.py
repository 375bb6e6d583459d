"""Access tokens in memory."""

import pytest

from toolpost.auth.token_stores import InMemoryTokenStore
from toolpost.contracts.storage import TokenStore


@pytest.mark.req("OAUTH-01", "OAUTH-02", "OAUTH-24")
async def test_tokens_are_kept_by_user_and_provider() -> None:
    tokens: TokenStore = InMemoryTokenStore()
    await tokens.store("acme:ann", "github", "one", None)
    await tokens.store("rival:ann", "github", "two", None)
    await tokens.store("acme:ann", "slack", "three", None)

    assert await tokens.get("acme:ann", "github") == "one"
    assert await tokens.get("rival:ann", "github") == "two"
    assert await tokens.get("ann", "github") is None
    await tokens.delete("acme:ann", "github")
    await tokens.delete("acme:ann", "github")
    assert await tokens.get("acme:ann", "github") is None
    assert await tokens.get("acme:ann", "slack") == "three"


@pytest.mark.req("OAUTH-01", "OAUTH-02")
async def test_an_expired_token_is_forgotten_when_it_is_asked_for() -> None:
    now = [1000.0]
    tokens = InMemoryTokenStore(clock=lambda: now[0])
    await tokens.store("ann", "github", "one", 1500.0)
    await tokens.store("ann", "slack", "two", 0.0)

    assert await tokens.get("ann", "github") == "one"
    assert await tokens.get("ann", "slack") is None
    now[0] = 1500.0
    assert await tokens.get("ann", "github") is None
    now[0] = 1000.0
    assert await tokens.get("ann", "github") is None
