"""Intents and results, on disk and in memory."""

import asyncio

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, intent
from toolpost.contracts.errors import StoreError


async def test_an_intent_is_found_unfinished(store: AnyStore) -> None:
    await store.journal.begin(intent())

    found = await store.journal.find("call_1", "")

    assert found == replace(intent(), owner=store.owner_id)
    assert await store.journal.find("call_1", "other") is None
    assert await store.journal.find("call_2", "") is None


@pytest.mark.parametrize("result", [None, False, {"sent": [1, 2]}, "text\ud800"])
async def test_a_result_is_kept_exactly_and_none_is_a_result(store: AnyStore, result: object) -> None:
    await store.journal.begin(intent())
    await store.journal.finish("call_1", "", result)

    found = await store.journal.find("call_1", "")

    assert found is not None
    assert found.done
    assert found.result == result


async def test_steps_of_one_call_stand_apart(store: AnyStore) -> None:
    await store.journal.begin(intent(step="fetch"))
    await store.journal.begin(intent(step="send"))
    await store.journal.finish("call_1", "fetch", 1)

    fetch, send = await store.journal.find("call_1", "fetch"), await store.journal.find("call_1", "send")

    assert fetch is not None
    assert send is not None
    assert (fetch.done, send.done) == (True, False)


async def test_a_call_that_runs_again_replaces_its_intent(store: AnyStore) -> None:
    await store.journal.begin(intent())
    await store.journal.finish("call_1", "", 1)
    await store.journal.begin(replace(intent(), at=1001.0, principal=ANN))

    found = await store.journal.find("call_1", "")

    assert found is not None
    assert (found.done, found.at) == (False, 1001.0)


async def test_a_forgotten_intent_is_gone(store: AnyStore) -> None:
    await store.journal.begin(intent())
    await store.journal.forget("call_1", "")
    await store.journal.forget("never", "")

    assert await store.journal.find("call_1", "") is None


async def test_a_result_without_an_intent_is_refused(store: AnyStore) -> None:
    with pytest.raises(StoreError, match="call 'call_1', step '': a result without an intent"):
        await store.journal.finish("call_1", "", 1)


async def test_a_result_that_is_not_json_is_refused_and_the_intent_stays_open(store: AnyStore) -> None:
    await store.journal.begin(intent())

    with pytest.raises(StoreError, match="not JSON"):
        await store.journal.finish("call_1", "", object())

    found = await store.journal.find("call_1", "")
    assert found is not None
    assert not found.done


async def test_what_a_caller_changes_afterwards_is_not_changed_in_the_store(store: AnyStore) -> None:
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


async def test_intents_of_the_living_are_not_orphans(store: AnyStore) -> None:
    await store.journal.begin(intent())

    assert await store.journal.adopt_orphans() == []


async def test_many_writers_at_once_are_all_served(store: AnyStore) -> None:
    async def one(number: int) -> None:
        await store.journal.begin(intent(f"call_{number}"))
        await store.journal.finish(f"call_{number}", "", number)

    await asyncio.gather(*(one(number) for number in range(200)))

    entries = await asyncio.gather(*(store.journal.find(f"call_{number}", "") for number in range(200)))
    assert [entry.result for entry in entries if entry] == list(range(200))
