"""Tests of erasing a user: `Store.forget` removes the user's records, and the content of events but not the events."""

from msgspec.structs import replace

from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import (
    ANN,
    APPROVE,
    BOB,
    EVE,
    STATE_EVENT,
    artifact,
    caller_key,
    event,
    intent,
    key_record,
    question,
    token_key,
    whole_run,
)

_KINDS = ("tokens", "pending", "journal", "keys", "caller_keys", "state", "artifacts", "files", "events", "runs")


async def add_records(store: Store, who: Principal) -> str:
    """Add one record of each kind for a user; return the id of the artifact."""
    name = f"{who.tenant}_{who.user}"
    run_id, call_id = f"run_{name}", f"call_{name}"
    await emit(store, *whole_run(run_id, who=who))
    await store.tokens.put(token_key(who), {"access": "token"})
    await store.pending.add(question(f"ask_{name}", who=who, run_id=run_id))
    await store.journal.begin(intent(call_id, who=who, run_id=run_id))
    await store.journal.finish(call_id, "", "result")
    await store.idempotency.reserve(who, "k1", key_record(call_id))
    await store.idempotency.settle(who, "k1", {"status": "completed"})
    await store.caller_keys.add(caller_key(name, who))
    await store.state.save_event(replace(STATE_EVENT, run_id=run_id))
    await store.state.save_planner_state(f"token_{name}", {"user": str(who)})
    return (await store.artifacts.put(f"content of {name}".encode(), artifact(who=who, run_id=run_id))).id


async def _found(store: Store, who: Principal, artifact_id: str) -> list[str]:
    name = f"{who.tenant}_{who.user}"
    records = {
        "tokens": await store.tokens.list(tenant=who.tenant, user=who.user),
        "pending": await store.pending.get(f"ask_{name}"),
        "journal": await store.journal.find(f"call_{name}", ""),
        "keys": await store.idempotency.find(who, f"call_{name}"),
        "caller_keys": await store.caller_keys.find(f"key_{name}"),
        "history": await store.state.load_history(f"run_{name}"),
        "pauses": await store.state.load_planner_state(f"token_{name}"),
        "artifacts": await store.artifacts.info(artifact_id, tenant=who.tenant),
    }
    return [kind for kind, value in records.items() if value]


async def _report(store: Store, run_id: str, who: Principal, **facts: str) -> None:
    await emit(
        store, *(replace(one, facts={"note": f"secret of {who.user}", **facts}) for one in whole_run(run_id, who=who))
    )


def _counted(counts: dict[str, int]) -> dict[str, int]:
    return {kind: count for kind, count in counts.items() if count}


class ErasureTests(StoreFixtures):
    """Tests of `Store.forget`."""

    async def test_all_records_of_a_user_are_removed_and_no_others(self, store: Store) -> None:
        users = [ANN, BOB, EVE, Principal("evil", "ann")]
        ids = {who: await add_records(store, who) for who in users}
        await store.tokens.put(token_key(ANN, "client-2"), {"access": "token"})
        complete = await _found(store, ANN, ids[ANN])

        counts = await store.forget(ANN)

        assert _counted(counts) == {**dict.fromkeys(_KINDS, 1), "tokens": 2, "state": 2, "events": 3}
        assert [await _found(store, who, ids[who]) for who in users] == [[], complete, complete, complete]
        assert len(complete) == 8
        assert await store.artifacts.read(ids[BOB], tenant="acme") == b"content of acme_bob"
        assert _counted(await store.forget(ANN)) == {}

    async def test_events_stay_in_the_log_without_their_content(self, store: Store) -> None:
        await _report(store, "run_ann", ANN)
        await _report(store, "run_bob", BOB)
        before = await store.events.read()

        assert (await store.forget(ANN))["events"] == 3
        events = await store.events.read()

        assert [(one.id, one.code, one.at, one.hash) for one in events] == [
            (one.id, one.code, one.at, one.hash) for one in before
        ]
        assert [one.is_forgotten for one in events] == [True] * 3 + [False] * 3
        assert dict(events[0].payload) == {"tool_name": "mail.send", "forgotten": True}
        assert events[3:] == before[3:]
        run = await store.events.run("run_ann")
        assert run is not None
        assert (run.user, run.status, run.tool_name) == ("", "completed", "mail.send")

        await _report(store, "run_ann", ANN)  # the chain of the run continues
        assert [one.is_forgotten for one in await store.events.read(run_id="run_ann")] == [True] * 3 + [False] * 3
        assert await store.events.verify() == []

    async def test_the_name_of_the_user_is_removed_from_events_of_others(self, store: Store) -> None:
        await _report(store, "run_1", BOB, by="acme:ann", error="acme:ann refused it")
        await _report(store, "run_2", BOB, by="acme:anna")
        await store.pending.add(question(who=BOB))
        await store.pending.claim("ask_1", APPROVE, by="acme:ann", at=1500.0)
        await store.pending.settle("ask_1", "answered")

        assert (await store.forget(ANN))["events"] == 3

        payloads = [str(one.payload) for one in await store.events.read()]
        assert [("acme:ann" in text, "acme:anna" in text) for text in payloads] == [(False, False)] * 3 + [
            (True, True)
        ] * 3
        answered = await store.pending.get("ask_1")
        assert answered is not None
        assert answered.answered_by == ""
        assert await store.events.verify() == []
        assert (await store.forget(BOB))["events"] == 6
        assert await store.events.verify() == []

    async def test_calls_in_a_run_of_another_user_are_erased(self, store: Store) -> None:
        for who in (BOB, ANN):
            await _report(store, "run_shared", who)
        ref = await store.artifacts.put(b"hers", artifact(run_id="run_shared", call_id="call_of_run_shared"))

        counts = await store.forget(ANN)

        assert (counts["events"], counts["runs"], counts["artifacts"]) == (3, 0, 1)
        assert [one.is_forgotten for one in await store.events.read()] == [False] * 3 + [True] * 3
        assert await store.artifacts.info(ref.id, tenant="acme") is None
        assert await store.events.verify() == []

    async def test_artifacts_are_removed_also_without_a_run(self, store: Store) -> None:
        shared = [
            await store.artifacts.put(b"the same", artifact(who=who, run_id=f"run_{who.user}")) for who in (ANN, BOB)
        ]
        await store.artifacts.put(b"of a run", artifact(run_id="run_new"))
        store.events.emit(event(call=whole_run("run_new")[0].call))

        counts = await store.forget(ANN)

        assert (counts["artifacts"], counts["files"]) == (2, 1)  # the content that BOB has too stays
        assert await store.artifacts.list() == shared[1:]
        assert await store.artifacts.read(shared[1].id, tenant="acme") == b"the same"

    async def test_running_calls_are_counted_and_erased_later(self, store: Store) -> None:
        await store.pending.add(question())
        await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0)
        await store.journal.begin(intent("call_1"))
        await store.idempotency.reserve(ANN, "k1", key_record())

        assert _counted(await store.forget(ANN)) == {"under_way": 2}
        await store.journal.finish("call_1", "", "result")
        await store.pending.settle("ask_1", "answered")
        await store.idempotency.settle(ANN, "k1", {"status": "completed"})
        assert _counted(await store.forget(ANN)) == {"journal": 1, "pending": 1, "keys": 1}

    async def test_an_unfinished_step_is_erased_after_its_run_ended(self, store: Store) -> None:
        first, *others = whole_run("run_1")
        await emit(store, first)
        await store.journal.begin(intent("call_1", "send"))
        assert (await store.forget(ANN))["under_way"] == 1

        await emit(store, *others)
        counts = await store.forget(ANN)

        assert (counts["journal"], counts["under_way"]) == (1, 0)
