"""Rows of tokens and their leases, on disk and in memory."""

import asyncio
import shutil
import sqlite3
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.stores.conftest import NOW, AnyStore, open_store
from tests.stores.token_children import held_by_child, race_for_leases
from toolpost.auth.keys import FileSealer
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import TokenKey
from toolpost.stores.database import MIGRATIONS, migrate
from toolpost.stores.memory import MemoryStore
from toolpost.stores.sqlite import SQLiteStore, open_sqlite_store

ANN = TokenKey("acme", "ann", "https://issuer.example", "https://api.example", "client-1")
BODY = {"access": "canary-access", "refresh": "canary-refresh", "scopes": ["a"]}


async def test_what_was_put_comes_back(store: AnyStore) -> None:
    put = await store.tokens.put(ANN, BODY)

    assert await store.tokens.get(ANN) == put
    assert (put.key, put.status, put.body, put.holder) == (ANN, "live", BODY, "")


@pytest.mark.req("OAUTH-24")
@pytest.mark.parametrize("part", TokenKey._fields)
async def test_each_part_of_the_key_counts(store: AnyStore, part: str) -> None:
    await store.tokens.put(ANN, BODY)
    other = ANN._replace(**{part: "other"})

    assert await store.tokens.get(other) is None
    await store.tokens.put(other, {"access": "theirs"})
    await store.tokens.remove(other)
    assert (await store.tokens.put(ANN, BODY)).body == BODY


async def test_rows_are_listed_by_tenant_and_user(store: AnyStore) -> None:
    keys = [ANN, ANN._replace(user="bob"), ANN._replace(tenant="evil"), ANN._replace(client="client-2")]
    for key in keys:
        await store.tokens.put(key, BODY)

    assert [row.key for row in await store.tokens.list()] == sorted(keys)
    assert [row.key for row in await store.tokens.list(tenant="acme", user="ann")] == [ANN, keys[3]]
    assert [row.key for row in await store.tokens.list(tenant="none")] == []


async def test_an_exchange_needs_the_version_that_stands_there(store: AnyStore) -> None:
    first = await store.tokens.put(ANN, BODY)
    second = await store.tokens.swap(ANN, first.version, {"access": "2"})

    assert second is not None
    assert second.version > first.version
    assert await store.tokens.swap(ANN, first.version, {"access": "3"}) is None
    assert await store.tokens.swap(ANN._replace(user="bob"), 1, {"access": "3"}) is None
    assert await store.tokens.get(ANN) == second


async def test_of_many_exchanges_at_once_exactly_one_succeeds(store: AnyStore) -> None:
    first = await store.tokens.put(ANN, BODY)

    swaps = await asyncio.gather(*(store.tokens.swap(ANN, first.version, {"access": str(n)}) for n in range(30)))

    assert sum(swap is not None for swap in swaps) == 1


async def test_a_row_that_was_removed_and_put_again_has_another_version(tmp_path: Path) -> None:
    now = [NOW]
    on_disk = open_sqlite_store(tmp_path, sealer=FileSealer(tmp_path / "key"), clock=lambda: now[0])
    async with on_disk, MemoryStore(clock=lambda: now[0]) as in_memory:
        for store in (on_disk, in_memory):
            first = await store.tokens.put(ANN, BODY)
            assert await store.tokens.remove(ANN, version=first.version + 1) is False
            assert await store.tokens.remove(ANN, version=first.version) is True
            assert await store.tokens.remove(ANN) is False
            now[0] += 0.001
            assert (await store.tokens.put(ANN, BODY)).version > first.version


async def test_one_of_many_takes_the_lease_and_the_others_see_it(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)

    taken = await asyncio.gather(*(store.tokens.take(ANN, row.version, holder=f"h{n}", lease_s=10) for n in range(30)))

    assert len({each.holder for each in taken if each}) == 1
    assert {each.until for each in taken if each} == {NOW + 10}


async def test_a_lease_is_for_the_version_that_stands_there(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)

    other = await store.tokens.take(ANN, row.version - 1, holder="h", lease_s=10)

    assert other == row
    assert await store.tokens.take(ANN._replace(user="bob"), row.version, holder="h", lease_s=10) is None


async def test_a_lease_ends_with_a_new_body(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)
    await store.tokens.take(ANN, row.version, holder="h", lease_s=10)

    assert await store.tokens.settle(ANN, row.version, holder="other", body={"access": "2"}) is None
    assert await store.tokens.settle(ANN, row.version + 1, holder="h", body={"access": "2"}) is None
    settled = await store.tokens.settle(ANN, row.version, holder="h", body={"access": "2"})

    assert settled is not None
    assert settled == await store.tokens.get(ANN)
    assert (settled.status, settled.holder, settled.body) == ("live", "", {"access": "2"})
    assert settled.version > row.version


async def test_a_lease_that_was_not_used_is_given_back(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)
    await store.tokens.take(ANN, row.version, holder="h", lease_s=10)

    assert await store.tokens.settle(ANN, row.version, holder="h") == row
    taken = await store.tokens.take(ANN, row.version, holder="next", lease_s=10)
    assert taken is not None
    assert taken.holder == "next"


async def test_a_doubtful_row_is_leased_to_nobody_until_it_is_put_anew(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)
    await store.tokens.take(ANN, row.version, holder="h", lease_s=10)
    doubtful = await store.tokens.settle(ANN, row.version, holder="h", status="doubtful")

    assert doubtful is not None
    assert (doubtful.status, doubtful.version, doubtful.holder) == ("doubtful", row.version, "")
    assert await store.tokens.take(ANN, row.version, holder="next", lease_s=10) == doubtful
    assert (await store.tokens.put(ANN, BODY)).status == "live"


async def test_a_revoked_row_keeps_no_tokens(store: AnyStore) -> None:
    row = await store.tokens.put(ANN, BODY)
    await store.tokens.take(ANN, row.version, holder="h", lease_s=10)
    revoked = await store.tokens.settle(ANN, row.version, holder="h", status="revoked")

    assert revoked is not None
    assert revoked == await store.tokens.get(ANN)
    assert (revoked.status, revoked.body) == ("revoked", {})


async def test_a_lease_past_its_time_makes_the_row_doubtful_and_its_holder_may_still_come(tmp_path: Path) -> None:
    now = [NOW]
    on_disk = open_sqlite_store(tmp_path, sealer=FileSealer(tmp_path / "key"), clock=lambda: now[0])
    async with on_disk, MemoryStore(clock=lambda: now[0]) as in_memory:
        for store in (on_disk, in_memory):
            now[0] = NOW
            row = await store.tokens.put(ANN, BODY)
            await store.tokens.take(ANN, row.version, holder="slow", lease_s=10)
            now[0] = NOW + 10
            found = await store.tokens.take(ANN, row.version, holder="next", lease_s=10)
            assert found is not None
            assert (found.status, found.holder) == ("doubtful", "slow")
            late = await store.tokens.settle(ANN, row.version, holder="slow", body={"access": "2"})
            assert late is not None
            assert (late.status, late.body) == ("live", {"access": "2"})


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

    with pytest.raises(StoreError, match="sealed data of 'tokens' does not open"):
        await sqlite.tokens.get(key)


async def test_the_body_of_an_older_version_put_back_does_not_open(sqlite: SQLiteStore, tmp_path: Path) -> None:
    await sqlite.tokens.put(ANN, BODY)
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        (older,) = db.execute("SELECT body FROM tokens").fetchone()
    await sqlite.tokens.put(ANN, {"access": "2"})
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute("UPDATE tokens SET body = ?", (older,))

    with pytest.raises(StoreError, match="sealed data of 'tokens' does not open"):
        await sqlite.tokens.get(ANN)


async def test_an_older_database_gets_its_table(tmp_path: Path) -> None:
    (tmp_path / "first").mkdir()
    shutil.copy(MIGRATIONS / "0001_first.sql", tmp_path / "first")
    with closing(sqlite3.connect(tmp_path / "toolpost.db", isolation_level=None)) as db:
        migrate(db, tmp_path / "toolpost.db", tmp_path / "first")

    async with open_store(tmp_path) as store:
        assert (await store.tokens.put(ANN, BODY)).body == BODY
