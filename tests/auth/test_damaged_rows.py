"""One row that does not open any more: it is told of, and everybody else goes on."""

import logging
import sqlite3
from collections.abc import AsyncIterator
from contextlib import closing
from pathlib import Path

import pytest

from tests.auth.small_issuer import ANN, BOB, SmallIssuer, connect, source, toolbox
from tests.auth.test_consents_code_exchange import sign_in
from toolpost import Completed, ExternalToolConfig, Paused, Principal
from toolpost.auth.keys import FileCipher
from toolpost.auth.pending_sign_ins import EncryptedSignIns
from toolpost.errors import StoreError
from toolpost.stores.sqlite.store import open_sqlite_store

CARL = "acme:carl"
HARM = {"cipher": b"\x02torn", "version": b"\x09newer", "json": "no bytes at all"}


@pytest.fixture
async def issuer() -> AsyncIterator[SmallIssuer]:
    async with SmallIssuer() as issuer:
        yield issuer


@pytest.fixture
def notes(issuer: SmallIssuer, tmp_path: Path) -> ExternalToolConfig:
    return source("notes", issuer, tmp_path, **issuer.endpoints())


def harm(folder: Path, statement: str, *values: object) -> None:
    with closing(sqlite3.connect(folder / "toolpost.db")) as db, db:
        assert db.execute(statement, values).rowcount > 0


@pytest.mark.parametrize("kind", HARM)
async def test_a_damaged_question_keeps_no_one_else_waiting(
    notes: ExternalToolConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture, kind: str
) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        lost, kept = [await box.call("notes.read", {}, user=user) for user in (CARL, ANN)]
        assert isinstance(lost, Paused)
        assert isinstance(kept, Paused)
    harm(tmp_path / "data", "UPDATE pending SET action = ? WHERE user = 'carl'", HARM[kind])

    with caplog.at_level(logging.WARNING):
        async with toolbox(tmp_path / "data", notes) as box:
            assert [action.id for action in await box.pending.list(by=ANN)] == [kept.pending_id]
            await connect(box, "notes", ANN)
            done = await box.call("notes.read", {}, user=ANN)
            with pytest.raises((StoreError, TypeError)):
                await box.pending.get(lost.pending_id, by=CARL)
    assert isinstance(done, Completed)
    assert caplog.text.count(f"question {lost.pending_id!r} is damaged and skipped") == 1


async def test_a_damaged_question_does_not_keep_others_from_expiring(notes: ExternalToolConfig, tmp_path: Path) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        asked = [await box.call("notes.read", {}, user=user) for user in (CARL, ANN)]
    harm(tmp_path / "data", "UPDATE pending SET expires_at = 1")
    harm(tmp_path / "data", "UPDATE pending SET action = x'02' WHERE user = 'carl'")

    async with toolbox(tmp_path / "data", notes) as box:
        assert isinstance(asked[1], Paused)
        action = await box.pending.get(asked[1].pending_id, by=ANN)
    assert action.status == "expired"
    assert action.outcome is not None
    assert action.outcome["status"] == "failed"


@pytest.mark.req("OAUTH-23")
async def test_a_person_whose_account_does_not_open_is_asked_and_connects_it_again(
    notes: ExternalToolConfig, tmp_path: Path
) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes", ANN)
        await connect(box, "notes", BOB)
    harm(tmp_path / "data", "UPDATE tokens SET body = x'02' WHERE user = 'ann'")

    async with toolbox(tmp_path / "data", notes) as box:
        assert isinstance(await box.call("notes.read", {}, user=ANN), Paused)
        assert [state.status for state in await box.accounts.states(Principal.parse(ANN))] == ["doubtful"]
        assert isinstance(await box.call("notes.read", {}, user=BOB), Completed)
        await connect(box, "notes", ANN)
        assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)


async def test_an_account_that_does_not_open_can_be_forgotten(notes: ExternalToolConfig, tmp_path: Path) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes", ANN)
    harm(tmp_path / "data", "UPDATE tokens SET body = x'02' WHERE user = 'ann'")

    async with toolbox(tmp_path / "data", notes) as box:
        assert await box.accounts.disconnect("notes", Principal.parse(ANN)) is False
        await box.accounts.forget(Principal.parse(ANN))
        assert [state.status for state in await box.accounts.states(Principal.parse(ANN))] == ["missing"]


@pytest.mark.parametrize("kind", ["binding", "ticket", "transaction"])
async def test_what_the_program_keeps_for_itself_may_be_damaged(
    notes: ExternalToolConfig, tmp_path: Path, kind: str
) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes", ANN)
        await box.call("notes.read", {}, user=BOB)
        await box.accounts.connect("notes", Principal.parse(BOB), redirect_uri="http://127.0.0.1:9/callback")
    harm(tmp_path / "data", "UPDATE tokens SET body = x'02' WHERE tenant = '' AND user = ?", kind)

    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes", ANN)
        assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
        await box.accounts.forget(Principal.parse(ANN))
        rows = await box.router.store.tokens.list(tenant="", user=kind)
    assert all(row.body for row in rows)


async def test_damaged_sign_ins_of_a_manager_are_old_ones(tmp_path: Path) -> None:
    async with open_sqlite_store(tmp_path, cipher=FileCipher(tmp_path / "key")) as store:
        waiting = EncryptedSignIns(store.tokens)
        await waiting.put(sign_in("canary-1", expires=2000.0))
        harm(tmp_path, "UPDATE tokens SET body = x'02'")
        await waiting.put(begun := sign_in("canary-2", expires=2000.0))

        assert await waiting.purge(1000.0) == 1
        assert await waiting.find("canary-2") == begun


async def test_a_damaged_intent_does_not_keep_the_box_from_opening(
    notes: ExternalToolConfig, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with toolbox(tmp_path / "data", notes) as box:
        await connect(box, "notes", ANN)
    row = ("call_1", "", "run_1", "notes.read", "acme", "carl", 1.0, "gone", b"\x02torn")
    columns = "call_id, step, run_id, tool_name, tenant, user, at, owner, call"
    harm(tmp_path / "data", f"INSERT INTO journal ({columns}) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", *row)

    with caplog.at_level(logging.WARNING):
        async with toolbox(tmp_path / "data", notes) as box:
            assert isinstance(await box.call("notes.read", {}, user=ANN), Completed)
    assert "the intent of call 'call_1' is damaged and skipped" in caplog.text
