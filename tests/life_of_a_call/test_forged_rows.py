"""Rows that grant rights, changed by somebody who can write to the database and has no key: refused, and named."""

import hashlib
import logging
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.gateway.serving import Served, served
from toolpost import Completed, Failed, Paused, Settings, Toolbox, ToolContext, tool
from toolpost.contracts.principal import Principal
from toolpost.gateway.caller_keys import create_caller_key, revoke_caller_key

pytestmark = pytest.mark.sqlite

ANN = "acme:ann"
STEP = "rowid = (SELECT {}(rowid) FROM journal WHERE step = 'pay')"
ran: list[str] = []


@tool(side_effects="write", destructive=False)
async def pay(to: str) -> str:
    """Pay somebody."""
    ran.append(to)
    return f"paid {to}"


@tool(side_effects="write", destructive=False)
async def order(to: str, ctx: ToolContext) -> str:
    """Pay once, ask, and say what was paid."""

    async def once() -> str:
        return f"paid {to}"

    paid = await ctx.once("pay", once)
    await ctx.pause("note", prompt="Which note?")
    return paid


def box(folder: Path) -> Toolbox:
    ran.clear()
    return Toolbox(tools=[pay, order], settings=Settings(data_dir=folder))


def change(folder: Path, *statements: str) -> None:
    """Write to the database as somebody does who has no key."""
    with closing(sqlite3.connect(folder / "toolpost.db")) as db, db:
        for statement in statements:
            db.execute(statement)


def swapped(table: str, column: str, where: tuple[str, str]) -> list[str]:
    """Return the statements that swap a value between two rows."""
    one, other = where
    return [
        f"CREATE TEMP TABLE held AS SELECT {column} AS one FROM {table} WHERE {one}",
        f"UPDATE {table} SET {column} = (SELECT {column} FROM {table} WHERE {other}) WHERE {one}",
        f"UPDATE {table} SET {column} = (SELECT one FROM held) WHERE {other}",
    ]


async def status_of(gate: Served, headers: dict[str, str]) -> int:
    return (await gate.http.get("/api/v1/tools", headers=headers)).status_code


@pytest.mark.parametrize(
    "forgery",
    [
        "scopes = 'call answer admin'",
        "scopes = 'answer'",
        "tenant = 'local'",
        "user = 'boss'",
        "expires_at = NULL",
        "expires_at = 99999999999.0",
        "interactive = 1",
        "mac = NULL",
        "mac = x''",
        "mac = (SELECT mac FROM caller_keys WHERE name = 'acme:boss')",
        "id = (SELECT id || '0' FROM caller_keys WHERE name = 'acme:boss')",
    ],
)
async def test_a_key_that_was_given_other_rights_is_unknown_and_named(
    tmp_path: Path, forgery: str, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "data"
    async with served(folder, [pay]) as gate:
        agent, boss = await gate.key("acme:bot", "call", expires_in_s=3600), await gate.key("acme:boss", "answer")
        before = [await status_of(gate, agent), *await gate.box.store.events.verify()]
        with caplog.at_level(logging.ERROR):
            change(folder, f"UPDATE caller_keys SET {forgery} WHERE name = 'acme:bot'")
            refused = await status_of(gate, agent), await status_of(gate, boss)
            listed = [key.name for key in await gate.box.store.caller_keys.list()]
        [problem] = await gate.box.store.events.verify()

    assert before == [200]
    assert (refused, listed) == ((401, 200), ["acme:boss"])
    assert "was changed, or was not created by toolpost" in problem
    if not forgery.startswith("id"):
        assert "is refused" in caplog.text
    async with box(folder) as again:
        assert len(await again.store.events.verify()) == 1


async def test_a_key_that_was_inserted_answers_nothing_and_can_be_revoked(tmp_path: Path) -> None:
    folder, secret = tmp_path / "data", "s" * 43
    digest = hashlib.sha256(secret.encode()).hexdigest()
    async with served(folder, [pay]) as gate:
        columns = "id, name, tenant, user, scopes, digest, created_at, created_by, expires_at, interactive, person, mac"
        values = f"'abc', 'x', 'acme', 'eve', 'answer admin', x'{digest}', 1.0, 'acme:eve', NULL, 0, 0, x'00'"
        change(folder, f"INSERT INTO caller_keys ({columns}) VALUES ({values})")
        refused = await status_of(gate, {"Authorization": f"Bearer tpk_abc_{secret}"})
        problems = await gate.box.store.events.verify()
        others = await gate.box.store.events.verify(tenant="beta")
        removed = await gate.box.store.caller_keys.remove("abc", tenant="acme")
        after = await gate.box.store.events.verify()

    assert refused == 401
    assert problems == ["key 'abc' of acme:eve was changed, or was not created by toolpost; it is refused"]
    assert (others, removed, after) == ([], True, [])


async def test_a_revoked_key_whose_row_is_put_back_is_named(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with box(folder) as opened:
        key, _ = await create_caller_key(opened, "bot", Principal("acme", "bot"), ["call"], by="acme:olga")
        with closing(sqlite3.connect(folder / "toolpost.db")) as db:
            (row,) = db.execute("SELECT * FROM caller_keys").fetchall()
        assert await revoke_caller_key(opened, key.id, by="acme:olga")
        revoked = await opened.store.events.verify()
        with closing(sqlite3.connect(folder / "toolpost.db")) as db, db:
            db.execute(f"INSERT INTO caller_keys VALUES ({', '.join('?' * len(row))})", row)
        [problem] = await opened.store.events.verify()

    assert revoked == []
    assert f"key {key.id!r} of acme:bot was revoked, and its row was put back" in problem


@pytest.mark.parametrize(
    "forgery",
    [
        swapped("keys", "outcome", ("key = 'one'", "key = 'two'")),
        swapped("keys", "arguments_hash", ("key = 'one'", "key = 'two'")),
        ["UPDATE keys SET arguments_hash = (SELECT arguments_hash FROM keys WHERE key = 'two') WHERE key = 'one'"],
        ["UPDATE keys SET call_id = 'call_x' WHERE key = 'one'"],
        ["UPDATE keys SET tool_name = 'order' WHERE key = 'one'"],
    ],
    ids=["outcome", "arguments", "arguments of another", "call", "tool"],
)
async def test_an_outcome_under_an_idempotency_key_that_was_changed_is_not_used(
    tmp_path: Path, forgery: list[str]
) -> None:
    folder = tmp_path / "data"
    async with box(folder) as first:
        for key, to in (("one", "bob"), ("two", "eve")):
            assert isinstance(await first.call("pay", {"to": to}, user=ANN, idempotency_key=key), Completed)
        clean = await first.store.events.verify()
    change(folder, *forgery)
    async with box(folder) as second:
        outcomes: list[Any] = [
            await second.call("pay", {"to": to}, user=ANN, idempotency_key="one") for to in ("bob", "eve")
        ]
        problems = await second.store.events.verify()
        told = await second.store.events.verify(tenant="beta")

    assert clean == []
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert "was changed outside of toolpost" in str(outcomes[0].error)
    assert str(tmp_path) not in str(outcomes[0].error)
    assert ran == []
    assert [one for one in problems if "outcome under an idempotency key of call" in one]
    assert told == []


@pytest.mark.parametrize(
    "forgery",
    [
        swapped("journal", "result", (STEP.format("min"), STEP.format("max"))),
        ["UPDATE journal SET tool_name = 'pay' WHERE step = 'pay'"],
        ["UPDATE journal SET run_id = 'run_x' WHERE step = 'pay'"],
    ],
    ids=["result", "tool", "run"],
)
async def test_a_result_in_the_journal_that_was_changed_is_not_used(tmp_path: Path, forgery: list[str]) -> None:
    folder = tmp_path / "data"
    async with box(folder) as first:
        paused = [await first.call("order", {"to": to}, user=ANN) for to in ("bob", "eve")]
        clean = await first.store.events.verify()
    change(folder, *forgery)
    async with box(folder) as second:
        outcomes: list[Any] = []
        for one in paused:
            assert isinstance(one, Paused)
            outcomes.append(await second.answer(one.pending_id, "hi", by=ANN))
        problems = await second.store.events.verify()

    assert clean == []
    assert [type(outcome) for outcome in outcomes] == [Failed, Failed]
    assert [one for one in problems if "in the journal of call" in one]


async def test_after_a_rotation_that_deletes_the_older_key_all_rows_verify(tmp_path: Path) -> None:
    folder = tmp_path / "data"
    async with served(folder, [pay]) as gate:
        agent = await gate.key("acme:bot", "call")
        await gate.box.call("pay", {"to": "bob"}, user=ANN, idempotency_key="one")
        counts = await gate.box.store.rotate_key(retire=True)
        statuses = [await status_of(gate, agent)]
    async with served(folder, [pay]) as gate:
        statuses.append(await status_of(gate, agent))
        problems = await gate.box.store.events.verify()
        again = await gate.box.call("pay", {"to": "bob"}, user=ANN, idempotency_key="one")

    assert (counts["unreadable"], statuses, problems, again.status) == (0, [200, 200], [], "completed")
