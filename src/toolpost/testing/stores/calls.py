"""Tests of the records of calls: journal, idempotency keys and cancel requests."""

import asyncio

import pytest
from msgspec.structs import replace

from toolpost.contracts.errors import StoreError
from toolpost.contracts.principal import Principal
from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import ANN, BOB, EVE, intent, key_record, question, whole_run


class CallRecordTests(StoreFixtures):
    """Tests of `Store.journal`, `Store.idempotency` and `Store.cancels`."""

    async def test_an_intent_is_found_unfinished(self, store: Store) -> None:
        await store.journal.begin(intent())

        found = await store.journal.find("call_1", "")

        assert found is not None
        assert replace(found, owner="") == intent()
        assert await store.journal.find("call_1", "other") is None
        assert await store.journal.find("call_2", "") is None
        assert await store.journal.adopt_orphans() == []  # this process runs

    @pytest.mark.parametrize("result", [None, False, {"sent": [1, 2]}, "text\ud800"])
    async def test_a_result_is_returned_unchanged_and_none_is_a_result(self, store: Store, result: object) -> None:
        await store.journal.begin(intent())
        await store.journal.finish("call_1", "", result)

        found = await store.journal.find("call_1", "")

        assert found is not None
        assert (found.done, found.result) == (True, result)

    async def test_steps_of_a_call_are_separate_entries(self, store: Store) -> None:
        for step in ("fetch", "send"):
            await store.journal.begin(intent(step=step))
        await store.journal.finish("call_1", "fetch", 1)

        entries = [await store.journal.find("call_1", step) for step in ("fetch", "send")]

        assert [entry and entry.done for entry in entries] == [True, False]

    async def test_the_calls_nested_in_a_call_are_found_by_their_ids(self, store: Store) -> None:
        for call_id in ("call_1", "call_1.a", "call_1.a.b", "call_10", "call_2.a"):
            await store.journal.begin(intent(call_id))
        await store.journal.begin(intent("call_1.a", "step"))

        nested = await store.journal.inner("call_1")

        assert sorted(entry.call_id for entry in nested) == ["call_1.a", "call_1.a.b"]

    async def test_a_call_that_runs_again_replaces_its_intent(self, store: Store) -> None:
        await store.journal.begin(intent())
        await store.journal.finish("call_1", "", 1)
        await store.journal.begin(replace(intent(), at=1001.0))

        found = await store.journal.find("call_1", "")

        assert found is not None
        assert (found.done, found.at) == (False, 1001.0)

    async def test_a_removed_intent_is_not_found(self, store: Store) -> None:
        await store.journal.begin(intent())
        await store.journal.forget("call_1", "")
        await store.journal.forget("never", "")

        assert await store.journal.find("call_1", "") is None

    async def test_a_result_that_cannot_be_stored_is_refused(self, store: Store) -> None:
        with pytest.raises(StoreError, match="'call_1'"):  # without an intent
            await store.journal.finish("call_1", "", 1)
        await store.journal.begin(intent())
        with pytest.raises(StoreError, match="not JSON"):
            await store.journal.finish("call_1", "", object())

        found = await store.journal.find("call_1", "")
        assert found is not None
        assert not found.done

    async def test_a_stored_result_is_a_copy(self, store: Store) -> None:
        result = {"sent": [1]}
        await store.journal.begin(intent())
        await store.journal.finish("call_1", "", result)
        result["sent"].append(2)
        found = await store.journal.find("call_1", "")
        assert found is not None
        found.result["sent"].append(3)

        again = await store.journal.find("call_1", "")
        assert again is not None
        assert again.result == {"sent": [1]}

    async def test_many_calls_are_recorded_concurrently(self, store: Store) -> None:
        async def record(number: int) -> object:
            await store.journal.begin(intent(f"call_{number}"))
            await store.journal.finish(f"call_{number}", "", number)
            entry = await store.journal.find(f"call_{number}", "")
            return entry and entry.result

        assert await asyncio.gather(*map(record, range(200))) == list(range(200))

    # ---------------------------------------------------------------- idempotency keys

    async def test_the_first_use_of_a_key_reserves_it(self, store: Store) -> None:
        assert await store.idempotency.reserve(ANN, "k1", key_record("call_1")) is None
        assert await store.idempotency.reserve(ANN, "k1", key_record("call_2")) == key_record("call_1")
        for who in (BOB, EVE, Principal("acme:ann", "k1")):
            assert await store.idempotency.reserve(who, "k1", key_record()) is None

    async def test_one_of_many_concurrent_uses_reserves_a_key(self, store: Store) -> None:
        uses = (store.idempotency.reserve(ANN, "k1", key_record(f"call_{n}")) for n in range(50))

        assert (await asyncio.gather(*uses)).count(None) == 1

    async def test_a_settled_key_returns_its_last_outcome(self, store: Store) -> None:
        await store.idempotency.reserve(ANN, "k1", key_record())
        begun = await store.idempotency.find(ANN, "call_1")
        for outcome in ({"status": "paused"}, {"status": "completed", "content": [1]}):
            await store.idempotency.settle(ANN, "k1", outcome)
        await store.idempotency.settle(ANN, "never", {"status": "completed"})

        used = await store.idempotency.reserve(ANN, "k1", key_record("call_2"))

        assert used == replace(key_record(), outcome={"status": "completed", "content": [1]})
        assert (begun, await store.idempotency.find(ANN, "call_1")) == (key_record(), used)
        assert await store.idempotency.find(BOB, "call_1") is None

    @pytest.mark.parametrize(
        ("call_id", "settled", "is_free"),
        [("", False, True), ("call_1", False, True), ("call_2", False, False), ("", True, False)],
    )
    async def test_a_key_is_released_if_its_call_never_began(
        self, store: Store, call_id: str, settled: bool, is_free: bool
    ) -> None:
        await store.idempotency.reserve(ANN, "k1", key_record("call_1"))
        if settled:
            await store.idempotency.settle(ANN, "k1", {"status": "completed"})
        await store.idempotency.release(ANN, "k1", call_id=call_id)
        await store.idempotency.release(ANN, "never")

        assert (await store.idempotency.reserve(ANN, "k1", key_record("call_3")) is None) is is_free

    # ---------------------------------------------------------------- cancel requests

    async def test_a_cancel_request_is_found_by_its_target(self, store: Store) -> None:
        for user in ("ann", "bob"):
            await store.cancels.request("run_1", tenant=ANN.tenant, by=f"acme:{user}")

        assert (await store.cancels.requested(["run_1", "run_2"])).keys() == {"run_1"}
        assert await store.cancels.requested(["run_2"]) == await store.cancels.requested([]) == {}

    async def test_a_tenant_cannot_cancel_calls_of_another_but_the_operator_can(self, store: Store) -> None:
        await emit(store, *whole_run("run_1"))
        await store.journal.begin(intent("call_2"))
        await store.pending.add(question(call_id="call_3"))
        targets = ["run_1", "call_2", "call_3"]

        for target in targets:
            await store.cancels.request(target, tenant=EVE.tenant, by="evil:eve")
        assert await store.cancels.requested(targets) == {}

        for target in targets:
            await store.cancels.request(target, tenant=None, by="operator")
        assert (await store.cancels.requested(targets)).keys() == set(targets)

    async def test_two_tenants_with_one_run_id_cancel_their_own_run(self, store: Store) -> None:
        for who in (ANN, EVE):
            await emit(store, *whole_run("run_1", who=who))
            await store.cancels.request("run_1", tenant=who.tenant, by=str(who))

        requests = (await store.cancels.requested(["run_1"]))["run_1"]

        assert {request.tenant for request in requests} == {"acme", "evil"}
