"""Forgetting a person, on disk and in memory."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.children import child, said
from tests.stores.conftest import AnyStore, open_store
from toolpost.contracts.principal import Principal
from toolpost.stores.pauses import PlannerPauses
from toolpost.testing.stores.erasure import add_records
from toolpost.testing.stores.samples import ANN, BOB, whole_run


async def tell(store: AnyStore, run_id: str, who: Principal, **facts: str) -> None:
    for each in whole_run(run_id, who=who):
        store.events.emit(replace(each, facts={"note": f"secret of {who.user}", **facts}))


async def test_the_token_of_a_forgotten_person_s_pause_resumes_nothing(store: AnyStore) -> None:
    pauses = PlannerPauses(store.state)
    theirs, claimed, resumed, others = [
        await pauses.keep({"user": str(who), "step": 1}) for who in (ANN, ANN, ANN, BOB)
    ]
    await (await pauses.claim(claimed)).save({"step": 2})
    await pauses.take(resumed)

    assert (await store.forget(ANN))["state"] == 5  # a pause; one with a claim and a step; that one was resumed
    for token in (theirs, claimed, resumed):
        with pytest.raises(KeyError, match="unknown"):
            await pauses.take(token)
    assert await pauses.take(others, user=str(BOB)) == {"user": str(BOB), "step": 1}


@pytest.mark.programs
async def test_what_a_dead_process_left_is_forgotten_too(tmp_path: Path) -> None:
    with child("leave", tmp_path) as victim:
        assert said(victim) == "ready"
        victim.kill()

    async with open_store(tmp_path) as store:
        counts = await store.forget(ANN)

    assert {kind: count for kind, count in counts.items() if count} == {"journal": 2, "pending": 1}


async def test_nothing_of_it_is_left_in_the_file(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await add_records(store, ANN)
        await tell(store, "run_more", ANN, url="forgettable.example")
    assert b"forgettable.example" in (tmp_path / "toolpost.db").read_bytes()

    async with open_store(tmp_path) as store:
        await store.forget(ANN)

    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "key"]
    assert not [path for path in files if b"forgettable.example" in path.read_bytes()]
    assert [path.name for path in files] == ["toolpost.db"]


async def test_nothing_of_them_stays_in_the_write_ahead_log_while_others_have_the_store_open(tmp_path: Path) -> None:
    async with open_store(tmp_path) as other, open_store(tmp_path) as store:
        await tell(store, "run_ann", ANN, note="canary-of-ann")
        await other.events.read()
        await store.events.read()
        before = (tmp_path / "toolpost.db-wal").read_bytes()

        await store.forget(ANN)

        after = [path for path in tmp_path.rglob("*") if path.is_file() and b"canary-of-ann" in path.read_bytes()]
    assert b"canary-of-ann" in before
    assert after == []
