"""Tests of planner state: history, remote bindings and pauses."""

import asyncio

from msgspec.structs import replace

from toolpost.contracts.storage import Store
from toolpost.testing.stores.base import StoreFixtures
from toolpost.testing.stores.samples import BINDING, STATE_EVENT


class StateTests(StoreFixtures):
    """Tests of `Store.state`."""

    async def test_the_history_of_a_run_is_returned_in_order(self, store: Store) -> None:
        later = [replace(STATE_EVENT, seq=seq, id=seq) for seq in (11, 2, 1)]
        for one in [*later, later[0], replace(STATE_EVENT, run_id="trace_2")]:  # one of them twice
            await store.state.save_event(one)

        assert list(await store.state.load_history("trace_1")) == later[::-1]
        assert list(await store.state.load_history("trace_3")) == []

    async def test_a_remote_binding_is_identified_by_agent_and_task(self, store: Store) -> None:
        other = replace(BINDING, task_id="task_2", context_id="context")
        for binding in (BINDING, other, replace(BINDING, metadata={"a": 2})):
            await store.state.save_remote_binding(binding)

        bindings = await store.state.load_remote_bindings("trace_1")

        assert list(bindings) == [replace(BINDING, metadata={"a": 2}), other]
        assert list(await store.state.load_remote_bindings("trace_2")) == []

    async def test_a_pause_is_found_by_its_token(self, store: Store) -> None:
        state = store.state
        await state.save_planner_state("token_1", {"step": 1})
        await state.save_planner_state("token_1", {"step": 2, "text": "é"})

        assert await state.load_planner_state("token_1") == {"step": 2, "text": "é"}
        assert await state.load_planner_state("token_2") == {}

    async def test_one_of_many_claims_a_token(self, store: Store) -> None:
        state = store.state

        claims = await asyncio.gather(*(state.claim_planner_state("token_1", {"by": n}) for n in range(20)))

        assert claims.count(True) == 1
        assert await state.load_planner_state("token_1") == {"by": claims.index(True)}
        await state.drop_planner_states(["token_1", "never"])
        assert await state.load_planner_state("token_1") == {}
        assert await state.claim_planner_state("token_1", {}) is True

    async def test_a_token_is_claimed_while_its_process_runs(self, store: Store) -> None:
        await store.state.claim_planner_state("token_1", {"step": 1})
        await store.state.save_planner_state("token_2", {"step": 1})

        assert [await store.state.is_claimed(token) for token in ("token_1", "token_2", "token_3")] == [
            True,
            False,
            False,
        ]
