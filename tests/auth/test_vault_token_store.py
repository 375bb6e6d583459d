"""The vault keeps tokens for those they belong to."""

import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path

import pytest

from tests.auth.grants import KEY, grant, store_of, vault_over
from toolpost.auth.token_stores import VaultTokenStore
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import TokenStore
from toolpost.stores.memory.store import MemoryStore
from toolpost.stores.sqlite.store import SQLiteStore

NOW = [1000.0]
BOB = KEY._replace(user="bob")


@pytest.fixture(params=["sqlite", "memory"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncGenerator[SQLiteStore | MemoryStore]:
    NOW[0] = 1000.0
    async with store_of(request.param, tmp_path, lambda: NOW[0]) as opened:
        yield opened


async def test_tokens_come_back_to_the_one_they_belong_to(store: SQLiteStore | MemoryStore) -> None:
    vault = vault_over(store)
    kept = await vault.keep(KEY, grant())

    assert await vault.find(KEY) == kept
    assert kept.tokens == grant()
    assert await vault.find(BOB) is None
    assert "canary" not in repr(kept)


async def test_an_account_is_removed_only_as_it_was_read(store: SQLiteStore | MemoryStore) -> None:
    vault = vault_over(store)
    first = await vault.keep(KEY, grant(1))
    second = await vault.keep(KEY, grant(2))

    assert await vault.remove(first) is False
    assert await vault.find(KEY) == second
    assert await vault.remove(second) is True
    assert await vault.find(KEY) is None


async def test_whoever_redacts_learns_each_token_once(store: SQLiteStore | MemoryStore) -> None:
    learned: list[set[str]] = []
    vault = vault_over(store, learn=learned.append)
    await vault_over(store).keep(KEY, grant(1))
    for _ in range(3):
        await vault.find(KEY)
    await vault.keep(KEY, grant(2))

    assert learned == [grant(1).secrets, grant(2).secrets]


async def test_an_older_row_put_back_whole_is_not_served(tmp_path: Path) -> None:
    async with store_of("sqlite", tmp_path, lambda: 1000.0) as store:
        vault = vault_over(store)
        await vault.keep(KEY, grant(1))
        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
            older = db.execute("SELECT * FROM tokens").fetchone()
        await vault.keep(KEY, grant(2))
        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
            db.execute(f"INSERT OR REPLACE INTO tokens VALUES ({', '.join('?' * len(older))})", older)

        found = await vault.find(KEY)
        assert found is not None
        assert found.status == "doubtful"
        assert (await vault.keep(KEY, grant(3))).status == "live"


async def test_a_new_consent_counts_even_if_the_clock_was_set_back(store: SQLiteStore | MemoryStore) -> None:
    vault = vault_over(store)
    NOW[0] = 2000.0
    await vault.remove(await vault.keep(KEY, grant(1)))
    NOW[0] = 1000.0

    assert (await vault.keep(KEY, grant(2))).status == "live"
    found = await vault.find(KEY)
    assert found is not None
    assert found.status == "live"


async def test_a_row_moved_to_another_user_is_not_served(tmp_path: Path) -> None:
    async with store_of("sqlite", tmp_path, lambda: 1000.0) as store:
        vault = vault_over(store)
        await vault.keep(KEY, grant())
        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
            db.execute("UPDATE tokens SET user = 'bob'")

        with pytest.raises(StoreError, match="cannot be decrypted"):
            await vault.find(BOB)


@pytest.mark.req("OAUTH-01", "OAUTH-24", "OAUTH-29")
async def test_a_durable_token_store_keeps_access_tokens_by_user_and_provider(store: SQLiteStore | MemoryStore) -> None:
    learned: list[set[str]] = []
    tokens: TokenStore = VaultTokenStore(store.tokens, learn=learned.append, clock=lambda: NOW[0])
    await tokens.store("acme:ann", "github", "canary-1", None)
    await tokens.store("ann", "github", "canary-2", 1500.0)

    assert await tokens.get("acme:ann", "github") == "canary-1"
    assert await tokens.get("local:ann", "github") == "canary-2"
    assert await tokens.get("acme:ann", "slack") is None
    assert {"canary-1"} in learned
    await tokens.delete("acme:ann", "github")
    assert await tokens.get("acme:ann", "github") is None


@pytest.mark.req("OAUTH-01")
async def test_an_expired_token_is_forgotten_when_it_is_asked_for(store: SQLiteStore | MemoryStore) -> None:
    tokens = VaultTokenStore(store.tokens, clock=lambda: NOW[0])
    await tokens.store("acme:ann", "github", "canary-1", 1500.0)
    NOW[0] = 1500.0

    assert await tokens.get("acme:ann", "github") is None
    assert await store.tokens.list() == []
