"""Several processes at one store, and processes that die."""

import asyncio
import sqlite3
import subprocess
import sys
from contextlib import ExitStack, closing
from pathlib import Path

import pytest

from tests.stores.children import child, go, said
from tests.stores.conftest import open_store
from tests.warm import Program
from toolpost.contracts.errors import StoreError
from toolpost.contracts.questions import Answer
from toolpost.contracts.storage import Store
from toolpost.testing.stores.samples import ANN, intent, key_record, question

KILLS = 12


def children(stack: ExitStack, count: int, deed: str, folder: Path) -> list[Program]:
    started = [stack.enter_context(child(deed, folder, str(number))) for number in range(count)]
    assert [said(each) for each in started] == ["ready"] * count
    return started


async def test_it_is_a_store(tmp_path: Path) -> None:
    store: Store = open_store(tmp_path)

    await store.close()


@pytest.mark.programs
async def test_a_killed_writer_leaves_whole_chains_and_loses_nothing_it_was_promised(tmp_path: Path) -> None:
    promised = 0
    for kill in range(KILLS):
        with child("write", tmp_path) as writer:
            told = [int(said(writer)) for _ in range(1 + kill % 4)]
            writer.kill()
            told += [int(line) for line in writer.stdout.read().split("\n")[:-1]]
        promised += told[-1]
        async with open_store(tmp_path) as store:
            assert [await store.events.verify(run_id) for run_id in ("run_a", "run_b", "run_c")] == [[], [], []]
            for run in await store.events.runs():
                assert run.events >= promised
                promised_intent = await store.journal.find(f"call_{told[-1]}", "")
                assert promised_intent is not None
            promised = min(run.events for run in await store.events.runs())


VISIT = "import sqlite3, sys; db = sqlite3.connect(sys.argv[1]); print(*db.execute('SELECT count(*) FROM journal'))"


def visited(folder: Path) -> str:
    """How many intents another program sees, which opens and closes the database."""
    done = [sys.executable, "-I", "-S", "-c", VISIT, str(folder / "toolpost.db")]
    return subprocess.run(done, capture_output=True, text=True, check=True).stdout.strip()


@pytest.mark.programs
async def test_a_second_store_of_the_same_process_does_not_cost_the_first_its_locks(tmp_path: Path) -> None:
    async with open_store(tmp_path) as first:
        await first.journal.begin(intent("call_1"))
        async with open_store(tmp_path):
            pass
        assert visited(tmp_path) == "(1,)"
        await first.journal.begin(intent("call_2"))
        assert visited(tmp_path) == "(2,)"


@pytest.mark.programs
async def test_two_processes_append_to_one_run(tmp_path: Path) -> None:
    with ExitStack() as stack:
        writers = children(stack, 2, "append", tmp_path)
        go(*writers)
        assert [each.wait() for each in writers] == [0, 0]

    async with open_store(tmp_path) as store:
        events = await store.events.read(run_id="run_shared")
        assert [each.seq for each in events] == list(range(1, 601))
        assert {each.payload["by"] for each in events} == {"0", "1"}
        assert await store.events.verify("run_shared") == []


@pytest.mark.programs
async def test_a_fresh_folder_opened_by_many_at_once_opens_for_all(tmp_path: Path) -> None:
    for attempt in range(3):
        with ExitStack() as stack:
            openers = children(stack, 4, "open", tmp_path / str(attempt))
            go(*openers)
            assert [said(each) for each in openers] == ["opened"] * 4


@pytest.mark.programs
async def test_of_racing_answers_in_several_processes_exactly_one_wins_each_question(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        for number in range(20):
            await store.pending.add(question(f"ask_{number}"))
    with ExitStack() as stack:
        claimants = children(stack, 4, "claim", tmp_path)
        go(*claimants)
        won = [said(each).split() for each in claimants]

    assert sorted(int(number) for numbers in won for number in numbers) == list(range(20))


@pytest.mark.programs
async def test_what_a_killed_process_left_is_adopted_once(tmp_path: Path) -> None:
    with child("leave", tmp_path) as victim:
        assert said(victim) == "ready"
        async with open_store(tmp_path) as store:
            assert await store.journal.adopt_orphans() == []
            assert await store.pending.adopt_claims() == []
        victim.kill()

    with ExitStack() as stack:
        adopters = children(stack, 3, "adopt", tmp_path)
        go(*adopters)
        adopted = [name for each in adopters for name in said(each).split()]

    assert sorted(adopted) == ["ask_1", "call_unfinished"]


@pytest.mark.programs
async def test_a_key_reserved_by_a_killed_process_says_so(tmp_path: Path) -> None:
    with child("leave", tmp_path) as victim:
        assert said(victim) == "ready"
        async with open_store(tmp_path) as store:
            assert await store.idempotency.reserve(ANN, "k1", key_record("call_2")) == key_record()
            victim.kill()
            held = await store.idempotency.reserve(ANN, "k1", key_record("call_2"))

    assert held is not None
    assert not held.owner_alive


@pytest.mark.programs
async def test_lock_files_of_the_dead_go_and_what_they_left_is_adopted_all_the_same(tmp_path: Path) -> None:
    with child("leave", tmp_path) as victim:
        assert said(victim) == "ready"
        victim.kill()

    async with open_store(tmp_path) as store:
        await store.journal.adopt_orphans()
        assert [path.stem for path in (tmp_path / "owners").iterdir()] == [store.owner_id]
        assert len(await store.pending.adopt_claims()) == 1
    assert list((tmp_path / "owners").iterdir()) == []


@pytest.mark.programs
async def test_a_program_that_ends_without_closing_loses_nothing(tmp_path: Path) -> None:
    with child("forget", tmp_path) as forgetful:
        assert forgetful.wait() == 0

    async with open_store(tmp_path) as store:
        assert len(await store.events.read(limit=2000)) == 1000


async def test_what_must_be_kept_exactly_is_not_found_in_the_files(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.pending.add(question())
        await store.journal.begin(intent())
        await store.journal.finish("call_1", "", "the-exact-result")
        await store.pending.claim(
            "ask_1", Answer(decision="answer", value="the-exact-answer"), by="acme:boss", at=1500.0
        )
        await store.pending.settle("ask_1", "answered", outcome={"content": "the-exact-outcome"})
        await store.idempotency.reserve(ANN, "k1", key_record())
        await store.idempotency.settle(ANN, "k1", {"content": "the-exact-outcome"})
        raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))

    assert b"mail.send" in raw
    assert b"the-exact" not in raw
    assert b"all@example.com" not in raw


@pytest.mark.parametrize("table", ["journal", "pending", "keys"])
async def test_a_row_moved_to_another_user_does_not_open(tmp_path: Path, table: str) -> None:
    async with open_store(tmp_path) as store:
        await store.pending.add(question())
        await store.journal.begin(intent())
        await store.idempotency.reserve(ANN, "k1", key_record())
        await store.idempotency.settle(ANN, "k1", {"status": "completed"})
    with closing(sqlite3.connect(tmp_path / "toolpost.db")) as db, db:
        db.execute(f"UPDATE {table} SET user = 'eve'")

    async with open_store(tmp_path) as store:
        reading = {
            "journal": store.journal.find("call_1", ""),
            "pending": store.pending.get("ask_1"),
            "keys": store.idempotency.reserve(ANN._replace(user="eve"), "k1", key_record()),
        }
        results = dict(zip(reading, await asyncio.gather(*reading.values(), return_exceptions=True), strict=True))

    failed = {name: str(result) for name, result in results.items() if isinstance(result, StoreError)}
    assert list(failed) == [table]
    assert f"encrypted data of '{table}' cannot be decrypted" in failed[table]
