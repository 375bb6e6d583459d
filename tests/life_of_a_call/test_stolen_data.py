"""What a thief gets who has the data folder and not its key, and what comes of rows that are given to somebody else."""

import shutil
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import parse_qsl, urlsplit

import httpx2
import pytest

from tests.life_of_a_call.strict_service import StrictService
from tests.patient_settings import PatientSettings
from toolpost import Completed, Paused, Principal, Settings, Toolbox, ToolContext, tool
from toolpost.auth.consents import StartedSignIn
from toolpost.errors import StoreError

pytestmark = pytest.mark.sqlite

ANN, BOB = "acme:ann", "acme:bob"
ARGUMENT, PASSWORD, ANSWER, RESULT = "canary-argument", "canary-password", "canary-answer", "canary-result"


@tool(side_effects="write")
async def ask(memo: str, password: str, ctx: ToolContext) -> str:
    """Ask a person something, and keep it to oneself."""
    await ctx.pause("await_input", {"memo": memo})
    return RESULT


class Kept(NamedTuple):
    """A data folder with something of everything in it, and what may not be read there."""

    service: StrictService
    folder: Path
    secrets: list[str]

    def box(self, data: str = "data") -> Toolbox:
        settings: dict[str, Any] = {
            "data_dir": self.folder / data,
            "policy": "exploratory",
            "sources": [self.service.source(self.folder)],
            "accounts": {"redirect_uri": "http://127.0.0.1:9/oauth/callback"},
        }
        return Toolbox(tools=[ask], settings=PatientSettings.model_validate(settings))

    def stolen(self) -> Path:
        """A copy of all but the key."""
        return shutil.copytree(self.folder / "data", self.folder / "stolen", ignore=shutil.ignore_patterns("key"))

    def open_question(self) -> str:
        with closing(sqlite3.connect(self.folder / "data" / "toolpost.db")) as db:
            return str(db.execute("SELECT id FROM pending WHERE status = 'open'").fetchone()[0])

    def change(self, sql: str, *values: str) -> None:
        with closing(sqlite3.connect(self.folder / "data" / "toolpost.db")) as db, db:
            assert db.execute(sql, values).rowcount > 0


@pytest.fixture
async def kept(tmp_path: Path) -> AsyncGenerator[Kept]:
    async with StrictService() as service, httpx2.AsyncClient(trust_env=False, timeout=60) as browser:
        kept = Kept(service, tmp_path, [PASSWORD, ANSWER])
        async with kept.box() as box:
            for state in [await sign_in(box, browser), await began(box)]:
                kept.secrets.append(state)
            for answered in (True, False):
                asked = {"memo": ARGUMENT, "password": PASSWORD}
                paused = await box.call("ask", asked, user=ANN, idempotency_key=f"k{answered}")
                assert isinstance(paused, Paused)
                if answered:
                    assert isinstance(await box.answer(paused.pending_id, ANSWER, by=ANN), Completed)
            assert isinstance(await box.call("bank.pay", {"body": {"memo": ARGUMENT}}, user=ANN), Completed)
        kept.secrets.extend((service.grants[0].access, service.grants[0].refresh))
        yield kept


async def began(box: Toolbox) -> str:
    begun = await box.accounts.connect("bank", Principal("acme", "ann"))
    assert isinstance(begun, StartedSignIn)
    return begun.state


async def sign_in(box: Toolbox, browser: httpx2.AsyncClient) -> str:
    begun = await box.accounts.connect("bank", Principal("acme", "ann"))
    assert isinstance(begun, StartedSignIn)
    back = (await browser.get(begun.url)).headers["location"]
    await box.accounts.finish(dict(parse_qsl(urlsplit(back).query)), provider="bank", person=Principal("acme", "ann"))
    return begun.state


async def test_a_thief_reads_no_token_secret_answer_or_state(kept: Kept) -> None:
    files = [path for path in kept.stolen().rglob("*") if path.is_file()]

    data = b"".join(path.read_bytes() for path in files)
    assert [secret for secret in kept.secrets if secret.encode() in data] == []
    assert len(data) > 100_000
    assert len(kept.secrets) == 6


async def test_a_thief_reads_arguments_and_results_only_where_events_tell_them(kept: Kept) -> None:
    with closing(sqlite3.connect(kept.stolen() / "toolpost.db")) as db:
        tables = [name for (name,) in db.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        rows = {name: repr(db.execute(f"SELECT * FROM {name}").fetchall()) for name in tables}

    found = {name for name, text in rows.items() if any(word in text for word in (ARGUMENT, RESULT, *kept.secrets))}
    assert found == {"segments"}
    assert {"pending", "journal", "keys", "tokens"} <= {name for name, text in rows.items() if len(text) > 100}


async def test_a_thief_reads_nothing_of_a_large_result(tmp_path: Path) -> None:
    @tool(side_effects="read")
    async def census() -> list[str]:
        """Everybody's name."""
        return [f"{RESULT} {number}" for number in range(10_000)]

    async with Toolbox(tools=[census], settings=Settings(data_dir=tmp_path / "data", builtins="none")) as box:
        outcome = await box.call("census")
        assert isinstance(outcome, Completed)
        whole = await box.store.artifacts.read(outcome.artifacts[0], tenant=None)

    stored = b"".join(path.read_bytes() for path in (tmp_path / "data").rglob("*") if path.is_file())
    assert whole.count(RESULT.encode()) == 10_000
    assert len(stored) > len(whole)
    assert RESULT.encode() not in stored


async def test_a_thief_cannot_open_it_with_a_key_of_his_own(kept: Kept) -> None:
    kept.stolen()

    with pytest.raises(StoreError, match="cannot be decrypted: it was encrypted with another key"):
        async with kept.box("stolen"):
            pass


@pytest.mark.parametrize(("table", "what"), [("pending", "question"), ("journal", "journal entry")])
async def test_rows_of_calls_that_someone_deletes_are_missed(kept: Kept, table: str, what: str) -> None:
    kept.change(f"DELETE FROM {table}")

    async with kept.box() as box:
        problems = await box.store.events.verify()

    assert len(problems) == 2
    assert all(what in problem and "was removed" in problem for problem in problems)


async def test_an_account_that_was_given_to_another_user_is_of_no_use_to_him(kept: Kept) -> None:
    kept.change("UPDATE tokens SET user = 'bob' WHERE user = 'ann'")

    async with kept.box() as box:
        stolen = await box.call("bank.look", {}, user=BOB)
        lost = await box.call("bank.look", {}, user=ANN)

    assert isinstance(stolen, Paused)  # he is asked for an account of his own
    assert (isinstance(lost, Paused), kept.service.reads) == (True, 0)


async def test_an_account_that_was_put_back_is_of_no_use_either(kept: Kept) -> None:
    kept.change("UPDATE tokens SET version = version + 1 WHERE user = 'ann'")

    async with kept.box() as box:
        outcome = await box.call("bank.look", {}, user=ANN)

    assert isinstance(outcome, Paused)
    assert kept.service.reads == 0


async def test_a_question_that_was_given_to_another_user_cannot_be_answered(kept: Kept) -> None:
    kept.change("UPDATE pending SET user = 'bob' WHERE status = 'open'")

    async with kept.box() as box:
        assert await box.pending.list(by=BOB) == []
        with pytest.raises(StoreError, match="'pending' cannot be decrypted"):
            await box.answer(kept.open_question(), ANSWER, by=BOB)
