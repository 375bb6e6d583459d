"""Rows of tokens and their leases, on disk and in memory."""

import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.stores.conftest import open_store
from tests.stores.token_children import held_by_child, race_for_leases
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import TokenKey
from toolpost.stores.sqlite.store import SQLiteStore

ANN = TokenKey("acme", "ann", "https://issuer.example", "https://api.example", "client-1")
BODY = {"access": "canary-access", "refresh": "canary-refresh", "scopes": ["a"]}


@pytest.mark.programs
async def test_a_lease_whose_process_was_killed_is_known_at_once(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        row = await store.tokens.put(ANN, BODY)
        with held_by_child(tmp_path, row) as victim:
            busy = await store.tokens.take(ANN, row.version, holder="next", lease_s=10)
            victim.kill()
        after = await store.tokens.take(ANN, row.version, holder="next", lease_s=10)

    assert busy is not None
    assert after is not None
    assert (busy.status, busy.holder, after.status) == ("live", "child", "doubtful")


@pytest.mark.programs
async def test_of_racing_processes_exactly_one_takes_each_lease(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for number in range(20):
            await store.tokens.put(ANN._replace(client=str(number)), BODY)
        with ExitStack() as stack:
            won = race_for_leases(stack, tmp_path, 4)

    assert sorted(int(number) for numbers in won for number in numbers) == list(range(20))


async def test_a_stolen_database_yields_no_token(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        row = await store.tokens.put(ANN, BODY)
        await store.tokens.take(ANN, row.version, holder="h", lease_s=10)
        await store.tokens.settle(ANN, row.version, holder="h", body={"access": "canary-next"})
        raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))
    raw += (tmp_path / "toolpost.db").read_bytes()

    assert b"https://issuer.example" in raw
    assert b"canary" not in raw
    assert "canary" not in repr(row)


@pytest.mark.parametrize("column", [*TokenKey._fields, "version"])
async def test_a_row_moved_to_another_identity_or_version_does_not_open(
    sqlite: SQLiteStore, tmp_path: Path, column: str
) -> None:
    row = await sqlite.tokens.put(ANN, BODY)
    value = row.version + 1 if column == "version" else "eve"
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(f"UPDATE tokens SET {column} = ?", (value,))
    key = ANN if column == "version" else ANN._replace(**{column: "eve"})

    with pytest.raises(StoreError, match="encrypted data of 'tokens' cannot be decrypted"):
        await sqlite.tokens.get(key)


async def test_the_body_of_an_older_version_put_back_does_not_open(sqlite: SQLiteStore, tmp_path: Path) -> None:
    await sqlite.tokens.put(ANN, BODY)
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        (older,) = db.execute("SELECT body FROM tokens").fetchone()
    await sqlite.tokens.put(ANN, {"access": "2"})
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("UPDATE tokens SET body = ?", (older,))

    with pytest.raises(StoreError, match="encrypted data of 'tokens' cannot be decrypted"):
        await sqlite.tokens.get(ANN)
