"""Retention, on disk and in memory."""

import asyncio
import os
from functools import partial
from pathlib import Path

from msgspec.structs import replace

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, EVE, REQUESTED, artifact, call_ref, event, intent, key_record, question, whole_run
from tests.stores.test_state import EVENT
from toolpost.contracts.questions import Answer
from toolpost.contracts.storage import Retention
from toolpost.stores import artifacts
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.sqlite import SQLiteStore

YES = Answer(decision="approve")
OLD, NEW, NOW = 1000.0, 9000.0, 10_000.0
A_WHILE = Retention(max_age_s=5000.0)


async def old_and_new(store: AnyStore) -> None:
    for each in [*whole_run("run_old", at=OLD), *whole_run("run_new", at=NEW)]:
        store.events.emit(each)
    await store.events.flush()


async def test_whole_finished_runs_go_when_they_are_old(store: AnyStore) -> None:
    await old_and_new(store)

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["runs"], removed["events"], type(removed["events"])) == (1, 3, int)
    assert [run.run_id for run in await store.events.runs()] == ["run_new"]
    assert {stored.run_id for stored in await store.events.read()} == {"run_new"}
    assert await store.events.verify() == []


async def test_a_run_goes_alone_where_two_tenants_share_its_name(store: AnyStore) -> None:
    for each in [*whole_run("run_1", at=OLD), *whole_run("run_1", who=EVE, at=NEW)]:
        store.events.emit(each)
    for who in (ANN, EVE):
        await store.journal.begin(intent(f"call_{who.user}", who=who))
        await store.journal.finish(f"call_{who.user}", "", 1)

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["runs"], removed["events"], removed["journal"]) == (1, 3, 1)
    assert await store.journal.find("call_eve", "") is not None
    assert await store.events.run("run_1", tenant="evil") is not None
    assert await store.events.verify() == []


async def test_without_limits_nothing_goes(store: AnyStore) -> None:
    await old_and_new(store)
    await store.artifacts.put(b"x", artifact(at=OLD))

    removed = await store.prune(Retention(), now=NOW)

    assert set(removed.values()) == {0}


async def test_all_that_belongs_to_a_run_goes_with_it(store: AnyStore) -> None:
    await old_and_new(store)
    await store.journal.begin(intent("call_of_run_old", run_id="run_old"))
    await store.journal.finish("call_of_run_old", "", 1)
    await store.pending.add(question(run_id="run_old"))
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    await store.pending.settle("ask_1", "answered", outcome={})
    await store.keys.reserve(ANN, "k1", key_record("call_of_run_old"))

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["journal"], removed["pending"], removed["keys"]) == (1, 1, 1)
    assert await store.journal.find("call_of_run_old", "") is None
    assert await store.pending.get("ask_1") is None


async def test_a_planner_s_memory_goes_with_its_run_and_its_pauses_with_their_time(store: AnyStore) -> None:
    await old_and_new(store)
    for run_id in ("run_old", "run_new"):
        await store.state.save_event(replace(EVENT, run_id=run_id))
    late, timely = [PlannerPauses(store.state, ttl_s=100.0, clock=partial(float, at)) for at in (OLD, NEW)]
    tokens = [await late.keep({"step": 1}), await timely.keep({"step": 2}), await PlannerPauses(store.state).keep({})]

    removed = await store.prune(A_WHILE, now=NOW)

    assert removed["state"] == 2
    assert [len(await store.state.load_history(run)) for run in ("run_old", "run_new")] == [0, 1]
    assert [bool(await store.state.load_planner_state(token)) for token in tokens] == [False, True, True]


async def test_a_pause_that_was_released_stays_in_reach_of_its_token(store: AnyStore) -> None:
    now = [OLD]
    pauses = PlannerPauses(store.state, ttl_s=100.0, clock=lambda: now[0])
    token = await pauses.keep({"step": 1})
    claimed = await pauses.claim(token)
    now[0] = NEW
    await claimed.release({"step": 2})

    assert (await store.prune(A_WHILE, now=NOW))["state"] == 0
    assert await pauses.take(token) == {"step": 2}


async def test_a_run_with_an_open_question_stays_with_its_artifacts(store: AnyStore) -> None:
    await old_and_new(store)
    await store.pending.add(question(run_id="run_old"))
    ref = await store.artifacts.put(b"x", artifact(run_id="run_old", at=OLD))

    open_removed = await store.prune(Retention(max_age_s=5000.0, max_artifact_bytes=0), now=NOW)
    await store.pending.claim("ask_1", YES, by="acme:boss", at=1500.0)
    claimed_removed = await store.prune(Retention(max_age_s=5000.0, max_artifact_bytes=0), now=NOW)

    assert set(open_removed.values()) == set(claimed_removed.values()) == {0}
    assert await store.events.run("run_old") is not None
    assert await store.artifacts.read(ref.id, tenant=None) == b"x"


async def test_a_run_that_is_not_finished_stays(store: AnyStore) -> None:
    store.events.emit(event(REQUESTED, call=call_ref("run_old"), at=OLD))
    for each in whole_run("run_orphaned", at=OLD):
        store.events.emit(each)
    await store.journal.begin(intent(run_id="run_orphaned"))

    removed = await store.prune(A_WHILE, now=NOW)

    assert removed["runs"] == 0


async def test_a_step_that_was_cut_off_goes_with_its_run(store: AnyStore) -> None:
    await old_and_new(store)
    await store.journal.begin(intent("call_of_run_old", "step", run_id="run_old"))

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["runs"], removed["journal"]) == (1, 1)
    assert await store.journal.find("call_of_run_old", "step") is None


async def test_a_run_that_begins_again_after_pruning_begins_at_one(store: AnyStore) -> None:
    await old_and_new(store)
    last = (await store.events.read())[-1].id
    await store.prune(A_WHILE, now=NOW)
    for each in whole_run("run_old", at=NEW):
        store.events.emit(each)

    stored = await store.events.read(run_id="run_old")

    assert [each.seq for each in stored] == [1, 2, 3]
    assert min(each.id for each in stored) > last
    assert await store.events.verify("run_old") == []


async def test_settled_leftovers_without_a_run_go_by_age(store: AnyStore) -> None:
    await store.journal.begin(intent(run_id="run_x"))
    await store.journal.finish("call_1", "", 1)
    await store.pending.add(question(run_id="run_x", expires_at=1100.0))
    await store.pending.expire(1100.0)
    await store.keys.reserve(ANN, "k1", key_record())
    await store.keys.settle(ANN, "k1", {})
    await store.keys.reserve(ANN, "k2", key_record())
    await store.cancels.request("run_x", tenant=None, by="acme:ann")

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["journal"], removed["pending"], removed["keys"], removed["cancels"]) == (1, 1, 1, 1)


async def test_artifacts_go_by_age(store: AnyStore) -> None:
    old = await store.artifacts.put(b"old", artifact(at=OLD))
    new = await store.artifacts.put(b"new", artifact(at=NEW))

    removed = await store.prune(A_WHILE, now=NOW)

    assert (removed["artifacts"], removed["files"]) == (1, 1)
    assert await store.artifacts.info(old.id, tenant=None) is None
    assert await store.artifacts.read(new.id, tenant=None) == b"new"


async def test_the_oldest_artifacts_go_until_the_rest_fits(store: AnyStore) -> None:
    refs = [await store.artifacts.put(bytes([n]) * 100, artifact(at=OLD + n)) for n in range(5)]

    removed = await store.prune(Retention(max_artifact_bytes=250), now=NOW)

    assert (removed["artifacts"], removed["files"]) == (3, 3)
    assert {ref.id for ref in await store.artifacts.list()} == {refs[3].id, refs[4].id}


async def test_content_that_is_shared_counts_once_and_stays_for_the_last(store: AnyStore) -> None:
    one = await store.artifacts.put(b"x" * 100, artifact(at=OLD))
    two = await store.artifacts.put(b"x" * 100, artifact(at=NEW))

    removed = await store.prune(Retention(max_age_s=5000.0, max_artifact_bytes=100), now=NOW)

    assert (removed["artifacts"], removed["files"]) == (1, 0)
    assert await store.artifacts.info(one.id, tenant=None) is None
    assert await store.artifacts.read(two.id, tenant=None) == b"x" * 100


async def test_files_that_nobody_names_go(sqlite: SQLiteStore, tmp_path: Path) -> None:
    folder = tmp_path / "artifacts" / "ab"
    folder.mkdir(parents=True)
    (folder / ("ab" * 32)).write_bytes(b"stray")
    fresh, stale = folder / "1.part", folder / "2.part"
    fresh.touch()
    stale.touch()
    os.utime(fresh, (NOW, NOW))
    os.utime(stale, (NOW - artifacts.STALE_S - 1,) * 2)

    removed = await sqlite.prune(Retention(), now=NOW)

    assert removed["files"] == 1
    assert list(folder.iterdir()) == [fresh]


async def test_pruning_beside_writers_loses_nothing(sqlite: SQLiteStore) -> None:
    async def put(number: int) -> bytes:
        ref = await sqlite.artifacts.put(b"%d" % (number % 7), artifact(at=NEW))
        return await sqlite.artifacts.read(ref.id, tenant=None)

    read, _ = await asyncio.gather(
        asyncio.gather(*(put(number) for number in range(100))),
        asyncio.gather(*(sqlite.prune(A_WHILE, now=NOW) for _ in range(20))),
    )

    assert read == [b"%d" % (number % 7) for number in range(100)]


async def test_more_runs_than_one_step_removes_all_go(sqlite: SQLiteStore) -> None:
    for number in range(450):
        for each in whole_run(f"run_{number}", at=OLD):
            sqlite.events.emit(each)

    removed = await sqlite.prune(A_WHILE, now=NOW)

    assert (removed["runs"], removed["events"]) == (450, 1350)
