"""Encryption again with the newest key, while the store is in use."""

import asyncio
import sqlite3
from contextlib import closing
from pathlib import Path

import pytest

from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import StoreError
from toolpost.contracts.questions import Answer
from toolpost.contracts.storage import TokenKey
from toolpost.stores.sqlite.store import SQLiteStore, open_sqlite_store
from toolpost.testing.stores.jobs import UNLIMITED, job, schedule
from toolpost.testing.stores.samples import ANN, artifact, intent, key_record, question

KEY = TokenKey("acme", "ann", "https://issuer.example", "", "client")
COLUMNS = [
    ("journal", "call"),
    ("journal", "result"),
    ("pending", "action"),
    ("pending", "answer"),
    ("pending", "outcome"),
    ("keys", "outcome"),
    ("tokens", "body"),
    ("state", "body"),
    ("ledger", "key"),
    ("jobs", "body"),
    ("jobs", "outcome"),
    ("schedules", "arguments"),
]
# Made with a key or a digest of one: there is nothing to open.
MACS = frozenset({"digest", "hash", "last_hash", "same_call", "forgotten", "total", "mac", "key_prefix"})


def opened(folder: Path) -> tuple[SQLiteStore, FileCipher]:
    cipher = FileCipher(folder / "key")
    return open_sqlite_store(folder, cipher=cipher), cipher


async def fill(store: SQLiteStore, count: int = 1) -> None:
    await asyncio.gather(*(store.journal.begin(intent(f"call_{number}")) for number in range(count)))
    await asyncio.gather(*(store.journal.finish(f"call_{number}", "", "the result") for number in range(count)))
    await store.pending.add(question())
    await store.pending.claim("ask_1", Answer(decision="approve"), by="acme:boss", at=1500.0)
    await store.pending.settle("ask_1", "answered", outcome={"status": "completed"})
    await store.idempotency.reserve(ANN, "k|1", key_record())
    await store.idempotency.settle(ANN, "k|1", {"status": "completed"})
    await store.tokens.put(KEY, {"access": "token"})
    await store.state.save_planner_state("the-token", {"step": 1})
    for name in ("run_waits", "run_ends"):
        await store.jobs.add(job(name), limits=UNLIMITED)
    await store.jobs.begin("run:run_ends:0")
    await store.jobs.finish("run:run_ends:0", "failed", outcome={"status": "failed"})
    await store.schedules.put(schedule())
    for data in (b"short", b"long" * 50_000):
        await store.artifacts.put(data, artifact())


async def read_all(store: SQLiteStore) -> list[object]:
    entry, action = await store.journal.find("call_0", ""), await store.pending.get("ask_1")
    held, row = await store.idempotency.reserve(ANN, "k|1", key_record()), await store.tokens.get(KEY)
    assert entry
    assert action
    assert held
    assert row
    kept = [await store.artifacts.read(ref.id, tenant=None) for ref in await store.artifacts.list()]
    ended, planned_calls = await store.jobs.of_run("run_ends", tenant=ANN.tenant), await store.schedules.list()
    assert ended
    planned = await store.state.load_planner_state("the-token")
    return [entry.call, entry.result, action, held.outcome, row, planned, ended.outcome, planned_calls, *kept]


def marks(folder: Path) -> dict[tuple[str, str], set[bytes]]:
    """How what is encrypted begins, by table and column."""
    with closing(sqlite3.connect(folder / "toolpost.db")) as db:
        return {
            (table, column): {
                bytes(body[:9]) for (body,) in db.execute(f"SELECT {column} FROM {table} WHERE {column} IS NOT NULL")
            }
            for table, column in COLUMNS
        }


async def test_every_encrypted_value_gets_the_newest_key_and_says_the_same(tmp_path: Path) -> None:
    store, cipher = opened(tmp_path)
    async with store:
        await fill(store)
        before = await read_all(store)
        older = cipher.keys.newest().id
        counts = await store.rotate_key(retire=True)
        assert cipher.keys.find(older) is None
        assert await read_all(store) == before

    kinds = {"journal": 2, "pending": 3, "keys": 1, "tokens": 1, "state": 1, "ledger": 1, "artifacts": 2}
    kinds |= {"jobs": 2, "schedules": 1}
    assert counts == {**kinds, "unreadable": 0}
    assert marks(tmp_path) == {column: {cipher.prefix()} for column in COLUMNS}


async def test_no_encrypted_column_of_the_schema_is_left_out(tmp_path: Path) -> None:
    store, _ = opened(tmp_path)
    async with store:
        pass
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        blobs = [
            (table, name)
            for table in tables
            for _, name, kind, *_ in db.execute(f"PRAGMA table_info({table})")
            if kind == "BLOB" and name not in MACS
        ]

    assert sorted(blobs) == sorted(COLUMNS)


async def test_a_pass_that_was_interrupted_leaves_nothing_that_does_not_open(tmp_path: Path) -> None:
    store, cipher = opened(tmp_path)
    async with store:
        await fill(store, 700)
        passing = asyncio.ensure_future(store.rotate_key())
        while len(marks(tmp_path)["journal", "call"]) == 1 and not passing.done():
            await asyncio.sleep(0)
        passing.cancel()
        await asyncio.gather(passing, return_exceptions=True)
        halfway = marks(tmp_path)["journal", "call"]
        counts = await store.rotate_key()

    assert len(halfway) == 2
    assert counts["journal"] == 1400
    assert marks(tmp_path)["journal", "call"] == {cipher.prefix()}


async def test_readers_and_writers_of_another_process_continue(tmp_path: Path) -> None:
    (rotating, cipher), (running, _) = opened(tmp_path), opened(tmp_path)
    async with rotating, running:
        await fill(running, 400)
        row = await running.tokens.get(KEY)
        passing = asyncio.ensure_future(rotating.rotate_key())
        written = 0
        while not passing.done():
            assert row is not None
            row = await running.tokens.swap(KEY, row.version, {"access": f"token-{written}"})
            written += 1
            assert await running.journal.find(f"call_{written % 400}", "") is not None
        assert (await passing)["unreadable"] == 0
        assert row is not None
        assert await rotating.tokens.get(KEY) == row

    assert written > 1
    assert marks(tmp_path) == {column: {cipher.prefix()} for column in COLUMNS}


async def test_what_does_not_open_is_counted_and_left(tmp_path: Path) -> None:
    store, cipher = opened(tmp_path)
    async with store:
        await fill(store, 3)
        with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
            db.execute("UPDATE journal SET user = 'eve' WHERE call_id = 'call_1'")
        older = cipher.keys.newest().id
        counts = await store.rotate_key(retire=True)

        assert cipher.keys.find(older) is not None
        assert (counts["journal"], counts["unreadable"]) == (4, 2)
        with pytest.raises(StoreError, match="cannot be decrypted"):
            await store.journal.find("call_1", "")
