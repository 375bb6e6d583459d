"""Two processes on one PostgreSQL database: artifacts, pruning, erasure, tokens and key rotation at the same time."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.docs.blocks import ROOT
from toolpost.auth.keys import FileCipher
from toolpost.contracts.errors import StoreError
from toolpost.contracts.storage import Retention
from toolpost.stores.pauses import ClaimedPause, PlannerPauses
from toolpost.stores.postgres.store import PostgresStore, open_postgres_store
from toolpost.testing.stores.base import emit
from toolpost.testing.stores.samples import ANN, BOB, artifact, call_ref, event, intent, token_key, whole_run

pytestmark = pytest.mark.programs

NO_ARTIFACTS = Retention(max_artifact_bytes=0)
NO_RUNS = Retention(max_age_s=0.0)
LATER = 1e12


@pytest.fixture
async def pair(postgres_url: str, tmp_path: Path) -> AsyncIterator[tuple[PostgresStore, PostgresStore]]:
    one, two = (open_postgres_store(postgres_url, tmp_path, cipher=FileCipher(tmp_path / "key")) for _ in range(2))
    async with one, two:
        yield one, two


async def test_a_listed_artifact_has_its_content_while_another_process_prunes(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    writer, pruner = pair

    async def prune() -> None:
        for _ in range(15):
            await pruner.prune(NO_ARTIFACTS, now=time.time())

    pruning = asyncio.ensure_future(prune())
    while not pruning.done():
        await writer.artifacts.put(b"the same content every time", artifact())
        for ref in await writer.artifacts.list():
            try:
                assert await writer.artifacts.read(ref.id, tenant=None) == b"the same content every time"
            except (KeyError, StoreError):
                assert await writer.artifacts.info(ref.id, tenant=None) is None  # it was pruned in between
    await pruning
    ref = await writer.artifacts.put(b"the same content every time", artifact())
    assert await pruner.artifacts.read(ref.id, tenant=None) == b"the same content every time"


async def test_runs_that_continue_while_they_are_pruned_keep_whole_chains(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    writer, pruner = pair

    async def write() -> None:
        for number in range(40):
            await emit(writer, *whole_run(f"run_{number % 5}", at=1.0))

    writing = asyncio.ensure_future(write())
    removed = 0
    while not writing.done():
        removed += (await pruner.prune(NO_RUNS, now=time.time()))["runs"]
    await writing

    assert removed > 0
    assert await pruner.events.verify() == []
    assert {run.status for run in await writer.events.runs()} <= {"completed"}


async def test_a_user_is_erased_while_another_process_writes_about_the_user(
    pair: tuple[PostgresStore, PostgresStore],
) -> None:
    writer, eraser = pair

    async def write() -> None:
        for number in range(30):
            who = (ANN, BOB)[number % 2]
            await emit(writer, event(call=call_ref("run_shared", f"call_{number}", who=who), facts={"by": str(ANN)}))

    writing = asyncio.ensure_future(write())
    while not writing.done():
        await eraser.forget(ANN)
    await writing
    await eraser.forget(ANN)

    events = await writer.events.read()
    assert len(events) == 30
    assert str(ANN) not in repr([one.payload for one in events])
    assert {one.user for one in events} == {"", BOB.user}
    assert await writer.events.verify() == []


async def test_one_of_two_processes_refreshes_a_token(pair: tuple[PostgresStore, PostgresStore]) -> None:
    key = token_key()
    for _ in range(10):
        row = await pair[0].tokens.put(key, {"access": "old"})
        taken = await asyncio.gather(
            *(store.tokens.take(key, row.version, holder=str(at), lease_s=60) for at, store in enumerate(pair * 3))
        )
        holders = {stored.holder for stored in taken if stored is not None}
        assert len(holders) == 1


async def test_new_rows_of_one_account_get_different_versions(pair: tuple[PostgresStore, PostgresStore]) -> None:
    for number in range(10):
        key = token_key(client=f"client-{number}")
        rows = await asyncio.gather(*(store.tokens.put(key, {"access": str(at)}) for at, store in enumerate(pair * 4)))
        assert len({row.version for row in rows}) == len(rows)
        stored = await pair[0].tokens.get(key)
        assert stored in rows


async def test_each_event_is_counted_once_by_two_processes(pair: tuple[PostgresStore, PostgresStore]) -> None:
    for number in range(50):
        await emit(pair[number % 2], *whole_run(f"run_{number}", at=1000.0))

    async def count(store: PostgresStore) -> None:
        while await store.metrics.count(limit=7):
            pass

    await asyncio.gather(*(count(store) for store in pair))
    for store in pair:
        await count(store)
    rows = await pair[0].metrics.read("none", tenant=ANN.tenant, width=3600, since=0, until=LATER)

    assert sum(row.calls for row in rows) == 50


async def test_another_process_writes_during_a_key_rotation(pair: tuple[PostgresStore, PostgresStore]) -> None:
    writer, rotator = pair
    for number in range(30):
        await writer.journal.begin(intent(f"call_{number}"))
    row = await writer.tokens.put(token_key(), {"access": "first"})

    rotating = asyncio.ensure_future(rotator.rotate_key(retire=True))
    while not rotating.done():
        swapped = await writer.tokens.swap(token_key(), row.version, {"access": "next"})
        assert swapped is not None
        row = swapped

    assert (await rotating)["unreadable"] == 0
    assert await rotator.tokens.get(token_key()) == row
    assert await rotator.journal.find("call_29", "") is not None


LEASE_S = 1.0
ENVIRONMENT = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), str(ROOT / "src")])}


@pytest.mark.waits
async def test_a_pause_that_a_killed_worker_had_claimed_is_resumed_by_another(
    postgres_url: str, tmp_path: Path
) -> None:
    """No gateway is there to look for processes that have ended."""
    cipher = FileCipher(tmp_path / "key")
    async with open_postgres_store(postgres_url, tmp_path, cipher=cipher, lease_s=LEASE_S) as store:
        pauses = PlannerPauses(store.state)
        token = await pauses.keep({"step": 1})
        arguments = [postgres_url, str(tmp_path), str(LEASE_S), token]
        command = [sys.executable, "-m", "tests.postgres.claimants", *arguments]
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=ROOT, env=ENVIRONMENT
        ) as worker:
            assert worker.stdout is not None
            assert worker.stdout.readline() == b"claimed\n"
            with pytest.raises(KeyError, match="is being resumed"):
                await pauses.claim(token)
            worker.kill()

        async with asyncio.timeout(30):
            while (claimed := await try_claim(pauses, token)) is None:
                pass

    assert (claimed.payload, claimed.steps, claimed.recovered) == ({"step": 1}, [{"step": 2}], True)


async def try_claim(pauses: PlannerPauses, token: str) -> ClaimedPause | None:
    try:
        return await pauses.claim(token)
    except KeyError:
        return None
