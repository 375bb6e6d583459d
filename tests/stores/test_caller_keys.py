"""Keys of callers, and what callers look up: runs page by page, events of one user, outcomes by call."""

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, BOB, EVE, key_record, whole_run
from toolpost.contracts.events import EventFilter, RunFilter
from toolpost.gateway.callers import new_caller_key


async def test_a_key_is_found_listed_by_tenant_and_removed_by_its_tenant_alone(store: AnyStore) -> None:
    ann, _ = new_caller_key("one", ANN, ["call"], by="acme:boss", expires_in_s=60)
    eve, _ = new_caller_key("two", EVE, ["answer", "admin"], by="evil:boss")
    for key in (ann, eve):
        await store.caller_keys.add(key)

    assert [await store.caller_keys.find(key.id) for key in (ann, eve)] == [ann, eve]
    assert await store.caller_keys.find("none") is None
    assert await store.caller_keys.list(tenant=ANN.tenant) == [ann]
    assert not await store.caller_keys.remove(ann.id, tenant=EVE.tenant)
    assert await store.caller_keys.remove(ann.id, tenant=ANN.tenant)
    assert await store.caller_keys.list() == [eve]


async def test_runs_go_on_before_a_run_and_are_those_of_a_user(store: AnyStore) -> None:
    for number, who in enumerate([ANN, BOB, ANN, EVE, ANN]):
        for event in whole_run(f"run_{number}", who=who):
            store.events.emit(event)

    async def found(user: str | None = None, before: str | None = None) -> list[str]:
        return [
            run.run_id for run in await store.events.runs(tenant=ANN.tenant, only=RunFilter(user=user), before=before)
        ]

    assert ANN.tenant == BOB.tenant != EVE.tenant
    assert await found() == ["run_4", "run_2", "run_1", "run_0"]
    assert await found(before="run_2") == ["run_1", "run_0"]
    assert await found(user=ANN.user, before="run_4") == ["run_2", "run_0"]
    assert await found(before="run_3") == []  # another tenant's
    assert await found(before="run_none") == []


async def test_events_are_filtered_by_user_and_name_theirs(store: AnyStore) -> None:
    for who in (ANN, BOB):
        for event in whole_run(f"run_{who.user}", who=who):
            store.events.emit(event)

    found = await store.events.read(tenant=ANN.tenant, only=EventFilter(user=BOB.user))

    assert {(event.run_id, event.user) for event in found} == {(f"run_{BOB.user}", BOB.user)}


async def test_the_record_of_a_call_is_found_without_its_key(store: AnyStore) -> None:
    await store.keys.reserve(ANN, "k1", key_record())
    begun = await store.keys.find(ANN, key_record().call_id)
    await store.keys.settle(ANN, "k1", {"status": "completed"})
    ended = await store.keys.find(ANN, key_record().call_id)

    assert begun is not None
    assert begun.outcome is None
    assert ended is not None
    assert ended.outcome == {"status": "completed"}
    assert await store.keys.find(BOB, key_record().call_id) is None
