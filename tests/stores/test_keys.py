"""Idempotency keys, on disk and in memory."""

import asyncio

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, BOB, EVE, key_record
from toolpost.contracts.principal import Principal


async def test_the_first_use_reserves_and_the_second_finds_it(store: AnyStore) -> None:
    assert await store.keys.reserve(ANN, "k1", key_record("call_1")) is None

    held = await store.keys.reserve(ANN, "k1", key_record("call_2"))

    assert held == key_record("call_1")


async def test_keys_of_users_do_not_meet(store: AnyStore) -> None:
    for who in (ANN, BOB, EVE, Principal("acme:ann", "k1")):
        assert await store.keys.reserve(who, "k1", key_record()) is None


async def test_of_many_uses_at_once_exactly_one_reserves(store: AnyStore) -> None:
    found = await asyncio.gather(*(store.keys.reserve(ANN, "k1", key_record(f"call_{n}")) for n in range(50)))

    assert found.count(None) == 1


async def test_a_settled_key_gives_its_outcome(store: AnyStore) -> None:
    await store.keys.reserve(ANN, "k1", key_record())
    await store.keys.settle(ANN, "k1", {"status": "paused"})
    await store.keys.settle(ANN, "k1", {"status": "completed", "content": [1]})
    await store.keys.settle(ANN, "never", {"status": "completed"})

    held = await store.keys.reserve(ANN, "k1", key_record("call_2"))

    assert held is not None
    assert (held.call_id, held.outcome) == ("call_1", {"status": "completed", "content": [1]})


async def test_a_released_key_is_free_again(store: AnyStore) -> None:
    await store.keys.reserve(ANN, "k1", key_record())
    await store.keys.release(ANN, "k1")
    await store.keys.release(ANN, "never")

    assert await store.keys.reserve(ANN, "k1", key_record("call_2")) is None


async def test_a_key_with_an_outcome_is_not_released(store: AnyStore) -> None:
    await store.keys.reserve(ANN, "k1", key_record())
    await store.keys.settle(ANN, "k1", {"status": "completed"})
    await store.keys.release(ANN, "k1")

    assert await store.keys.reserve(ANN, "k1", key_record("call_2")) is not None


async def test_a_key_is_released_only_for_the_call_that_is_meant(store: AnyStore) -> None:
    await store.keys.reserve(ANN, "k1", key_record("call_2"))
    await store.keys.release(ANN, "k1", call_id="call_1")

    assert await store.keys.reserve(ANN, "k1", key_record("call_3")) == key_record("call_2")

    await store.keys.release(ANN, "k1", call_id="call_2")
    assert await store.keys.reserve(ANN, "k1", key_record("call_3")) is None
