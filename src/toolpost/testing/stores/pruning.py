"""Tests of retention: `Store.prune` removes finished runs with their records, and artifacts past the limits."""

import time
from typing import Any

from msgspec.structs import replace

from toolpost.contracts.storage import Retention, Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import (
    ANN,
    APPROVE,
    EVE,
    REQUESTED,
    STATE_EVENT,
    artifact,
    call_ref,
    event,
    intent,
    key_record,
    question,
    whole_run,
)

_OLD, _NEW, _NOW = 1000.0, 9000.0, 10_000.0
_A_WHILE = Retention(max_age_s=5000.0)


async def _emit_old_and_new(store: Store) -> None:
    await emit(store, *whole_run("run_old", at=_OLD), *whole_run("run_new", at=_NEW))


class PruningTests(StoreFixtures):
    """Tests of `Store.prune`."""

    async def test_old_finished_runs_are_removed(self, store: Store) -> None:
        await _emit_old_and_new(store)

        removed = await store.prune(_A_WHILE, now=_NOW)

        assert (removed["runs"], removed["events"], type(removed["events"])) == (1, 3, int)
        assert [run.run_id for run in await store.events.runs()] == ["run_new"]
        assert {stored.run_id for stored in await store.events.read()} == {"run_new"}
        assert await store.events.verify() == []

    async def test_without_limits_nothing_is_removed(self, store: Store) -> None:
        await _emit_old_and_new(store)
        await store.artifacts.put(b"x", artifact(at=_OLD))

        assert set((await store.prune(Retention(), now=_NOW)).values()) == {0}

    async def test_a_run_of_another_tenant_with_the_same_id_stays(self, store: Store) -> None:
        await emit(store, *whole_run("run_1", at=_OLD), *whole_run("run_1", who=EVE, at=_NEW))
        for who in (ANN, EVE):
            await store.journal.begin(intent(f"call_{who.user}", who=who))
            await store.journal.finish(f"call_{who.user}", "", 1)

        removed = await store.prune(_A_WHILE, now=_NOW)

        assert (removed["runs"], removed["events"], removed["journal"]) == (1, 3, 1)
        assert await store.journal.find("call_eve", "") is not None
        assert await store.events.run("run_1", tenant="evil") is not None
        assert await store.events.verify() == []

    async def test_the_records_of_a_run_are_removed_with_it(self, store: Store) -> None:
        await _emit_old_and_new(store)
        for step in ("", "unfinished step"):
            await store.journal.begin(intent("call_of_run_old", step, run_id="run_old"))
        await store.journal.finish("call_of_run_old", "", 1)
        await store.pending.add(question(run_id="run_old"))
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.pending.settle("ask_1", "answered", outcome={})
        await store.idempotency.reserve(ANN, "k1", key_record("call_of_run_old"))
        for run_id in ("run_old", "run_new"):
            await store.state.save_event(replace(STATE_EVENT, run_id=run_id))

        removed = await store.prune(_A_WHILE, now=_NOW)

        assert [removed[kind] for kind in ("runs", "journal", "pending", "keys", "state")] == [1, 2, 1, 1, 1]
        assert await store.journal.find("call_of_run_old", "") is None
        assert await store.pending.get("ask_1") is None
        assert [len(await store.state.load_history(run)) for run in ("run_old", "run_new")] == [0, 1]
        assert await store.events.verify() == []

    async def test_a_pause_is_removed_after_it_expired(self, store: Store) -> None:
        state = store.state
        times: dict[str, dict[str, Any]] = {
            "late": {"expires_at": _OLD},
            "timely": {"expires_at": _NEW},
            "open": {"a": 1},
        }
        for token, payload in times.items():
            await state.save_planner_state(token, payload)

        removed = await store.prune(_A_WHILE, now=_NOW)

        assert removed["state"] == 1
        assert [token for token in times if await state.load_planner_state(token)] == ["timely", "open"]

    async def test_a_run_with_a_pending_action_stays_with_its_artifacts(self, store: Store) -> None:
        await _emit_old_and_new(store)
        await store.pending.add(question(run_id="run_old"))
        ref = await store.artifacts.put(b"x", artifact(run_id="run_old", at=_OLD))

        for _ in range(2):  # while the action is open, and after it was claimed
            removed = await store.prune(Retention(max_age_s=5000.0, max_artifact_bytes=0), now=_NOW)
            assert set(removed.values()) == {0}
            await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)

        assert await store.events.run("run_old") is not None
        assert await store.artifacts.read(ref.id, tenant=None) == b"x"

    async def test_a_run_that_has_not_ended_stays(self, store: Store) -> None:
        await emit(store, event(REQUESTED, call=call_ref("run_old"), at=_OLD), *whole_run("run_orphaned", at=_OLD))
        await store.journal.begin(intent(run_id="run_orphaned"))

        assert (await store.prune(_A_WHILE, now=_NOW))["runs"] == 0

    async def test_a_removed_run_that_continues_is_numbered_from_one(self, store: Store) -> None:
        await _emit_old_and_new(store)
        last = (await store.events.read())[-1].id
        await store.prune(_A_WHILE, now=_NOW)
        await emit(store, *whole_run("run_old", at=_NEW))

        stored = await store.events.read(run_id="run_old")

        assert [one.seq for one in stored] == [1, 2, 3]
        assert min(one.id for one in stored) > last
        assert await store.events.verify("run_old") == []

    async def test_settled_records_without_a_run_are_removed_by_age(self, store: Store) -> None:
        await store.journal.begin(intent(run_id="run_x"))
        await store.journal.finish("call_1", "", 1)
        await store.pending.add(question(run_id="run_x", expires_at=1100.0))
        await store.pending.expire(1100.0)
        for key in ("k1", "k2"):
            await store.idempotency.reserve(ANN, key, key_record())
        await store.idempotency.settle(ANN, "k1", {})
        await store.cancels.request("run_x", tenant=None, by="acme:ann")

        removed = await store.prune(_A_WHILE, now=time.time() + 10_000.0)

        assert [removed[kind] for kind in ("journal", "pending", "keys", "cancels")] == [1, 1, 1, 1]

    async def test_artifacts_are_removed_by_age(self, store: Store) -> None:
        old, new = [await store.artifacts.put(str(at).encode(), artifact(at=at)) for at in (_OLD, _NEW)]

        removed = await store.prune(_A_WHILE, now=_NOW)

        assert (removed["artifacts"], removed["files"]) == (1, 1)
        assert await store.artifacts.info(old.id, tenant=None) is None
        assert await store.artifacts.read(new.id, tenant=None) == b"9000.0"

    async def test_the_oldest_artifacts_are_removed_until_the_rest_fits(self, store: Store) -> None:
        refs = [await store.artifacts.put(bytes([n]) * 100, artifact(at=_OLD + n)) for n in range(5)]

        removed = await store.prune(Retention(max_artifact_bytes=250), now=_NOW)

        assert (removed["artifacts"], removed["files"]) == (3, 3)
        assert {ref.id for ref in await store.artifacts.list()} == {refs[3].id, refs[4].id}

    async def test_shared_content_counts_once_and_stays_for_its_last_artifact(self, store: Store) -> None:
        one, two = [await store.artifacts.put(b"x" * 100, artifact(at=at)) for at in (_OLD, _NEW)]

        removed = await store.prune(Retention(max_age_s=5000.0, max_artifact_bytes=100), now=_NOW)

        assert (removed["artifacts"], removed["files"]) == (1, 0)
        assert await store.artifacts.info(one.id, tenant=None) is None
        assert await store.artifacts.read(two.id, tenant=None) == b"x" * 100
