"""Tests of waiting for events, pending actions and cancel requests."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures, emit
from toolpost.testing.stores.samples import ANN, APPROVE, EVE, call_ref, event, question

LONG_S = 30.0  # no test waits for so long
SHORT_S = 0.05


async def _add_event(store: Store) -> None:
    store.events.emit(event(call=call_ref("run_1")))


async def _claim(store: Store) -> None:
    assert await store.pending.claim("ask_1", APPROVE, by="acme:boss", at=1500.0) is not None


async def _request_cancel(store: Store) -> None:
    await store.cancels.request("call_9", tenant=ANN.tenant, by="acme:ann")


async def _wait_for_answer(store: Store) -> object:
    state = await store.pending.wait(["ask_1"])
    while await store.pending.list(status="open"):
        state = await store.pending.wait(["ask_1"], state, timeout_s=LONG_S)
    return True


Wait = Callable[[Store], Awaitable[object]]
Change = Callable[[Store], Awaitable[None]]
CHANGES: dict[str, tuple[Wait, Change]] = {
    "event": (lambda store: store.events.wait(0, timeout_s=LONG_S), _add_event),
    "event of a run": (lambda store: store.events.wait(0, timeout_s=LONG_S, run=(ANN.tenant, "run_1")), _add_event),
    "answer": (_wait_for_answer, _claim),
    "cancel request": (lambda store: store.cancels.wait(0, timeout_s=LONG_S), _request_cancel),
}


class WaitTests(StoreFixtures):
    """Tests of `wait` of the event log, of pending actions and of cancel requests."""

    @pytest.mark.parametrize("kind", CHANGES)
    @pytest.mark.parametrize("early", [True, False], ids=["before", "while"])
    async def test_a_change_ends_a_wait(self, store: Store, kind: str, *, early: bool) -> None:
        await store.pending.add(question())
        wait, change = CHANGES[kind]
        if early:
            await change(store)
            await store.events.flush()
        waiting = [asyncio.ensure_future(wait(store)) for _ in range(3)]
        if not early:
            await asyncio.sleep(SHORT_S)
            await change(store)

        async with asyncio.timeout(LONG_S / 2):
            assert all(await asyncio.gather(*waiting))

    async def test_a_wait_without_a_change_ends_after_its_time(self, store: Store) -> None:
        await store.pending.add(question())
        await emit(store, event(call=call_ref("run_2")))
        [stored] = await store.events.read()
        run = (ANN.tenant, "run_1")

        assert await store.events.wait(stored.id, timeout_s=SHORT_S) == stored.id
        assert await store.events.wait(0, timeout_s=SHORT_S, run=run) == 0
        state = await store.pending.wait(["ask_1"])
        assert await store.pending.wait(["ask_1"], state, timeout_s=SHORT_S) is state
        assert await store.cancels.wait(0, timeout_s=0) == 0

    async def test_the_position_of_a_run_is_that_of_its_newest_event(self, store: Store) -> None:
        await emit(store, event(call=call_ref("run_1")), event(call=call_ref("run_2")), event(call=call_ref("run_1")))
        events = await store.events.read()

        newest = await store.events.wait(0, timeout_s=LONG_S)
        of_run = await store.events.wait(0, timeout_s=LONG_S, run=(ANN.tenant, "run_2"))

        assert newest == max(one.id for one in events)
        assert [of_run] == [one.id for one in events if one.run_id == "run_2"]

    async def test_a_wait_for_a_run_is_not_ended_by_others(self, store: Store) -> None:
        waiting = asyncio.create_task(store.events.wait(0, timeout_s=LONG_S, run=(ANN.tenant, "run_1")))
        await asyncio.sleep(SHORT_S)
        await emit(store, event(call=call_ref("run_2")), event(call=call_ref("run_1", who=EVE)))

        await asyncio.sleep(4 * SHORT_S)
        assert not waiting.done()
        await emit(store, event(call=call_ref("run_1")))
        assert await waiting == (await store.events.read(newest=True, limit=1))[0].id

    async def test_an_outcome_and_a_missing_action_end_a_wait(self, store: Store) -> None:
        await store.pending.add(question())
        await _claim(store)
        claimed = await store.pending.wait(["ask_1", "ask_2"])
        waiting = asyncio.create_task(store.pending.wait(["ask_1", "ask_2"], claimed, timeout_s=LONG_S))
        await asyncio.sleep(SHORT_S)
        await store.pending.settle("ask_1", "answered", outcome={"a": 1})

        answered = await waiting
        assert answered != claimed
        await store.forget(ANN)
        assert await store.pending.wait(["ask_1", "ask_2"], answered, timeout_s=LONG_S) != answered

    async def test_positions_go_on_where_a_reader_stopped(self, store: Store) -> None:
        """A follower that waits and reads after the position that it knows gets every event once."""
        seen: list[int] = []

        async def follow() -> None:
            position = 0
            while len(seen) < 100:
                await store.events.wait(position, timeout_s=LONG_S)
                for one in await store.events.read(after=position):
                    position = one.id
                    seen.append(int(one.payload["number"]))

        following = asyncio.create_task(follow())
        for number in range(100):
            facts: dict[str, Any] = {"number": number}
            store.events.emit(event(call=call_ref(f"run_{number % 7}"), facts=facts))
            if number % 10 == 0:
                await asyncio.sleep(0)
        async with asyncio.timeout(LONG_S):
            await following

        assert sorted(seen) == list(range(100))
