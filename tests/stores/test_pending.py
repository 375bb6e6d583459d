"""Questions that wait for a person, on disk and in memory."""

import sqlite3
from contextlib import closing
from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import open_store
from toolpost.contracts.questions import Answer
from toolpost.stores.sqlite.store import SQLiteStore
from toolpost.testing.stores.samples import question

YES = Answer(decision="approve", reason="fine", changes=[{"op": "replace", "path": "/to", "value": "one@example.com"}])


async def test_a_question_that_does_not_open_makes_no_page_shorter(sqlite: SQLiteStore, tmp_path: Path) -> None:
    for number in range(4):
        await sqlite.pending.add(replace(question(f"ask_{number}"), created_at=1000.0 + number))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as database, database:
        database.execute("UPDATE pending SET action = x'00' WHERE id = 'ask_2'")

    first = await sqlite.pending.list(limit=2)

    assert [action.id for action in first] == ["ask_3", "ask_1"]
    assert [action.id for action in await sqlite.pending.list(before="ask_1", limit=2)] == ["ask_0"]


@pytest.mark.parametrize(
    "change", ["status = 'open'", "same_call = (SELECT same_call FROM pending WHERE id = 'ask_2')"]
)
async def test_a_question_that_was_changed_from_outside_is_not_waited_for(tmp_path: Path, change: str) -> None:
    async with open_store(tmp_path) as store:
        await store.pending.add(replace(question(), same_call="same"))
        await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered")
        await store.pending.add(replace(question("ask_2"), same_call="other"))
        await store.pending.claim("ask_2", YES, by="acme:boss", at=1500.0)
        await store.pending.add(replace(question("ask_3"), same_call="third"))
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(f"UPDATE pending SET {change} WHERE id IN ('ask_1', 'ask_3')")

    async with open_store(tmp_path) as store:
        assert await store.pending.find_waiting("same", at=1500.0) is None
        assert await store.pending.find_waiting("other", at=1500.0) is None
