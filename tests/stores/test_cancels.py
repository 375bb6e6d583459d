"""Wishes to cancel, on disk and in memory."""

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, EVE, intent, question, whole_run


async def test_a_wish_is_seen_by_whoever_asks_for_it(store: AnyStore) -> None:
    await store.cancels.request("run_1", tenant=ANN.tenant, by="acme:ann")
    await store.cancels.request("run_1", tenant=ANN.tenant, by="acme:bob")

    assert (await store.cancels.requested(["run_1", "run_2"])).keys() == {"run_1"}
    assert (await store.cancels.requested(["run_2"])) == {}
    assert (await store.cancels.requested([])) == {}


async def test_what_belongs_to_another_tenant_cannot_be_cancelled(store: AnyStore) -> None:
    for each in whole_run("run_1"):
        store.events.emit(each)
    await store.journal.begin(intent("call_2"))
    await store.pending.add(question(call_id="call_3"))

    for target in ("run_1", "call_2", "call_3"):
        await store.cancels.request(target, tenant=EVE.tenant, by="evil:eve")

    assert (await store.cancels.requested(["run_1", "call_2", "call_3"])) == {}


async def test_the_operator_can_cancel_anything(store: AnyStore) -> None:
    await store.journal.begin(intent("call_2"))
    await store.cancels.request("call_2", tenant=None, by="operator")

    assert (await store.cancels.requested(["call_2"])).keys() == {"call_2"}


async def test_two_tenants_that_share_an_id_cancel_their_own(store: AnyStore) -> None:
    for who in (ANN, EVE):
        for each in whole_run("run_1", who=who):
            store.events.emit(each)
        await store.cancels.request("run_1", tenant=who.tenant, by=str(who))

    wishes = (await store.cancels.requested(["run_1"]))["run_1"]

    assert {wish.tenant for wish in wishes} == {"acme", "evil"}
