"""A planner's memory, on disk and in memory."""

from pathlib import Path

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore, open_store
from toolpost.contracts.events import EventCode, RemoteBinding, StoredEvent
from toolpost.contracts.storage import PlannerStateStore, StateStore

EVENT = StoredEvent(
    id=1,
    run_id="trace_1",
    seq=1,
    code=EventCode.TOOL_CALL_REQUESTED,
    at=1000.0,
    call_id="call_1",
    tenant="acme",
    payload={"params": {"a": [1]}},
    hash="ab",
)
BINDING = RemoteBinding(
    trace_id="trace_1", context_id=None, task_id="task_1", agent_url="https://agent.example", metadata={"a": 1}
)


def fulfils(state: StateStore, planner: PlannerStateStore) -> tuple[StateStore, PlannerStateStore]:
    """For the type checker: the store's state is both."""
    return state, planner


@pytest.mark.req("MISC-08")
async def test_history_comes_back_in_order(store: AnyStore) -> None:
    state, _ = fulfils(store.state, store.state)
    later = [replace(EVENT, seq=seq, id=seq) for seq in (11, 2, 1)]
    for each in later:
        await state.save_event(each)
    await state.save_event(replace(EVENT, run_id="trace_2"))

    assert list(await state.load_history("trace_1")) == later[::-1]
    assert list(await state.load_history("trace_3")) == []


async def test_an_event_saved_twice_is_there_once(store: AnyStore) -> None:
    await store.state.save_event(EVENT)
    await store.state.save_event(EVENT)

    assert list(await store.state.load_history("trace_1")) == [EVENT]


@pytest.mark.req("MISC-08")
async def test_remote_bindings_are_kept_by_agent_and_task(store: AnyStore) -> None:
    other = replace(BINDING, task_id="task_2", context_id="context")
    for binding in (BINDING, other, replace(BINDING, metadata={"a": 2})):
        await store.state.save_remote_binding(binding)

    assert list(await store.state.load_remote_bindings("trace_1")) == [replace(BINDING, metadata={"a": 2}), other]
    assert list(await store.state.load_remote_bindings("trace_2")) == []


@pytest.mark.req("STATE-02")
async def test_a_pause_comes_back_by_its_token(store: AnyStore) -> None:
    _, planner = fulfils(store.state, store.state)
    await planner.save_planner_state("token_1", {"step": 1})
    await planner.save_planner_state("token_1", {"step": 2, "text": "é"})

    assert await planner.load_planner_state("token_1") == {"step": 2, "text": "é"}


@pytest.mark.req("STATE-02")
async def test_an_unknown_token_gives_nothing(store: AnyStore) -> None:
    assert await store.state.load_planner_state("token_1") == {}


@pytest.mark.req("STATE-02")
async def test_state_survives_a_restart_sealed(tmp_path: Path) -> None:
    async with open_store(tmp_path) as store:
        await store.state.save_event(replace(EVENT, payload={"note": "event-secret"}))
        await store.state.save_planner_state("the-token", {"note": "pause-secret"})
    raw = b"".join(path.read_bytes() for path in tmp_path.glob("toolpost.db*"))

    assert not [word for word in (b"event-secret", b"pause-secret", b"the-token") if word in raw]
    async with open_store(tmp_path) as store:
        assert await store.state.load_planner_state("the-token") == {"note": "pause-secret"}
        (event,) = await store.state.load_history("trace_1")
        assert event.payload == {"note": "event-secret"}
