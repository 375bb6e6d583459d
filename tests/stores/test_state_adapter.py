"""State stores of others at work here, and our own as one of theirs."""

import asyncio
import json
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from tests.stores.conftest import AnyStore
from tests.stores.plain_chain import PlainRow, find_plain_breaks
from tests.stores.state_stores import DatabaseState, EventsOnly, OverwritingState
from toolpost import Completed, Settings, Toolbox, ToolContext, tool
from toolpost.contracts.errors import ToolConflictError
from toolpost.contracts.events import CallRef, EventCode, RunEvent, StoredEvent
from toolpost.contracts.storage import PlannerStateStore, StateStore
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.state_events import StateEvents
from toolpost.testing.stores.samples import BINDING, STATE_EVENT


@pytest.fixture
def theirs(tmp_path: Path) -> Iterator[DatabaseState]:
    store = DatabaseState(tmp_path / "theirs.db")
    yield store
    store.close()


@tool(side_effects="pure")
async def add(a: int, password: str = "") -> int:
    """Add one."""
    return a + 1


def told(number: int, run_id: str = "run_1") -> RunEvent:
    call = CallRef(run_id, f"call_{number}", "t", "acme", "ann", "", dict)
    return RunEvent(EventCode.TOOL_CALL_REQUESTED, 1000.0 + number, call, {"number": number})


async def test_what_a_toolbox_tells_is_saved_in_a_store_of_others(theirs: DatabaseState) -> None:
    events = StateEvents(theirs)
    async with Toolbox(tools=[add], settings=Settings(data_dir=None), sinks=[events]) as box:
        done = await box.call("add", {"a": 1, "password": "canary"}, user="acme:ann")
        await events.close()
        own = await box.events(user="acme:ann", run_id=done.run_id)
    assert isinstance(done, Completed)
    saved = await theirs.load_history(done.run_id)
    assert [replace(event, id=0, hash="") for event in saved] == [replace(event, id=0, hash="") for event in own]
    assert "canary" not in repr(saved)
    assert events.lost == 0


async def test_progress_from_a_thread_is_saved_while_the_call_runs() -> None:
    half_done = threading.Event()

    class Watching(EventsOnly):
        async def save_event(self, event: StoredEvent) -> None:
            await super().save_event(event)
            if event.payload.get("text") == "half":
                half_done.set()

    @tool(side_effects="pure")
    def work(ctx: ToolContext) -> bool:
        ctx.progress("half", fraction=0.5)
        return half_done.wait(30)

    events = StateEvents(Watching())
    async with Toolbox(tools=[work], settings=Settings(data_dir=None), sinks=[events]) as box:
        done = await box.call("work")
        await events.close()

    assert (getattr(done, "content", done), events.lost) == (True, 0)


async def test_a_run_that_continues_in_another_process_is_numbered_and_chained_on(theirs: DatabaseState) -> None:
    for part in (range(3), range(3, 5)):
        events = StateEvents(theirs, most_runs=1)
        for number in part:
            events.emit(told(number))
            events.emit(told(number, "run_2"))
        await events.flush()
    history = await theirs.load_history("run_1")
    assert [(event.seq, event.payload["number"]) for event in history] == [(n + 1, n) for n in range(5)]
    assert _breaks(history) == []
    assert _breaks([*history[:2], replace(history[2], at=0.0), *history[3:]]) != []


def _breaks(history: Any) -> list[str]:
    rows = [
        PlainRow(e.run_id, e.seq, int(e.code), e.at, e.call_id, e.tenant, json.dumps(e.payload), bytes.fromhex(e.hash))
        for e in history
    ]
    return find_plain_breaks(rows)


async def test_a_store_that_fails_or_is_slow_loses_events_and_disturbs_no_one(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failing = EventsOnly(failures=2)
    events = StateEvents(failing, most_waiting=5)
    for number in range(7):
        events.emit(told(number))
    await events.flush()
    assert events.lost == 4
    assert [event.payload["number"] for event in failing.saved] == [2, 3, 4]
    assert [event.seq for event in failing.saved] == [1, 2, 3]
    assert "could not save TOOL_CALL_REQUESTED" in caplog.text
    await StateEvents(failing).flush()


@pytest.mark.req("STATE-02", "STATE-10", "OAUTH-28")
async def test_a_pause_is_resumed_once_in_any_process(theirs: DatabaseState) -> None:
    token = await PlannerPauses(theirs).keep({"step": 1, "tool_context": {"user_id": "ann", "api_key": "canary"}})
    assert await PlannerPauses(theirs).take(token) == {"step": 1, "tool_context": {"user_id": "ann"}}
    for unknown in (token, "unknown", ""):
        with pytest.raises(KeyError):
            await PlannerPauses(theirs).take(unknown)


@pytest.mark.req("STATE-10")
@pytest.mark.parametrize("kind", ["database", "overwriting", "memory"])
async def test_of_many_who_resume_at_once_one_does(kind: str, theirs: DatabaseState) -> None:
    pauses = PlannerPauses({"database": theirs, "overwriting": OverwritingState(), "memory": None}[kind])
    token = await pauses.keep({"step": 1})
    taken = await asyncio.gather(*(pauses.take(token) for _ in range(20)), return_exceptions=True)
    assert [each for each in taken if not isinstance(each, KeyError)] == [{"step": 1}]


@pytest.mark.req("STATE-10", "OAUTH-28")
async def test_what_a_store_has_nothing_for_is_missing_and_what_is_too_old_too() -> None:
    now, store = [1000.0], OverwritingState()
    pauses = PlannerPauses(store, ttl_s=600.0, clock=lambda: now[0])
    store.kept["empty"] = {}
    early, late = [await pauses.keep({"step": n}) for n in range(2)]
    with pytest.raises(KeyError, match="unknown, has expired"):
        await pauses.take("empty")
    now[0] += 599.0
    assert await pauses.take(early) == {"step": 0}
    now[0] += 1.0
    with pytest.raises(KeyError, match="unknown, has expired"):
        await pauses.take(late)


@pytest.mark.req("OAUTH-28")
async def test_a_store_without_the_optional_part_keeps_pauses_for_the_process_only() -> None:
    pauses = PlannerPauses(EventsOnly())
    token = await pauses.keep({"step": 1})
    with pytest.raises(KeyError):
        await PlannerPauses(EventsOnly()).take(token)
    assert await pauses.take(token) == {"step": 1}


class DownState(OverwritingState):
    """One that cannot write any more."""

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        raise OSError("the database is gone")


async def test_a_store_that_cannot_be_written_to_resumes_nothing() -> None:
    store = OverwritingState()
    token = await PlannerPauses(store).keep({"step": 1})
    down = DownState()
    down.kept = store.kept
    with pytest.raises(OSError, match="the database is gone"):
        await PlannerPauses(down).keep({"step": 2})
    with pytest.raises(OSError, match="the database is gone"):
        await PlannerPauses(down).take(token)
    assert await PlannerPauses(store).take(token) == {"step": 1}


def fulfils(state: StateStore, planner: PlannerStateStore) -> tuple[StateStore, PlannerStateStore]:
    """For the type checker: our own is both."""
    return state, planner


@pytest.mark.req("STATE-02")
async def test_our_own_store_is_a_state_store(store: AnyStore) -> None:
    ours = store.state
    state, planner = fulfils(ours, ours)
    await state.save_event(STATE_EVENT)
    await state.save_remote_binding(BINDING)
    await planner.save_planner_state("token", {"step": 1})

    assert list(await state.load_history("trace_1")) == [STATE_EVENT]
    assert list(await store.state.load_remote_bindings("trace_1")) == [BINDING]
    assert await planner.load_planner_state("token") == {"step": 1}
    assert await planner.load_planner_state("other") == {}


class Delegate:
    """The state of a store, in which a subclass replaces a method."""

    def __init__(self, store: AnyStore) -> None:
        self.load_planner_state = store.state.load_planner_state
        self.save_planner_state = store.state.save_planner_state
        self.claim_planner_state = store.state.claim_planner_state
        self.drop_planner_states = store.state.drop_planner_states
        self.is_claimed = store.state.is_claimed


class SeenEarly(Delegate):
    """Has read a pause and its claims before the pause was claimed."""

    def __init__(self, store: AnyStore, early: dict[str, Any]) -> None:
        super().__init__(store)
        seen, load = [early, {}], store.state.load_planner_state

        async def load_early(token: str) -> dict[str, Any]:
            return seen.pop(0) if seen else await load(token)

        self.load_planner_state = load_early


@pytest.mark.parametrize("finished", [True, False], ids=["finished", "claimed"])
async def test_two_processes_over_our_own_store_cannot_both_resume(store: AnyStore, finished: bool) -> None:
    token = await PlannerPauses(store.state).keep({"step": 1})
    early = await store.state.load_planner_state(token)
    claimed = await PlannerPauses(store.state).claim(token)
    if finished:
        await claimed.finish()

    for _ in range(2):
        with pytest.raises(KeyError, match="is being resumed"):
            await PlannerPauses(SeenEarly(store, early)).take(token)


@pytest.mark.parametrize("kind", ["ours", "theirs"])
async def test_what_a_dead_process_had_claimed_is_claimed_again_with_its_steps(
    kind: str, store: AnyStore, theirs: DatabaseState
) -> None:
    now, state = [1000.0], Mortal(store) if kind == "ours" else theirs
    pauses = PlannerPauses(state, lease_s=60.0, clock=lambda: now[0])
    token = await pauses.keep({"step": 1})
    first = await pauses.claim(token)
    await first.save({"step": 2})
    with pytest.raises(KeyError, match="is being resumed"):
        await pauses.claim(token)

    now[0] += 61.0
    if isinstance(state, Mortal):
        state.dead = True
    second = await pauses.claim(token)
    await second.save({"step": 3})
    with pytest.raises(ToolConflictError, match="another process has resumed this run"):
        await first.save({"step": 4})
    await second.release({"step": 5})

    last = await pauses.claim(token)
    assert (first.payload, first.steps, first.recovered) == ({"step": 1}, [], False)
    assert (second.payload, second.steps, second.recovered) == ({"step": 1}, [{"step": 2}], True)
    assert (last.payload, last.steps, last.recovered) == ({"step": 5}, [], False)
    await last.finish()
    with pytest.raises(KeyError, match="resumed before"):
        await pauses.take(token)


class Mortal(Delegate):
    """The state of a store whose process can be made to look as if it had ended."""

    def __init__(self, store: AnyStore) -> None:
        super().__init__(store)
        self.dead = False

        async def is_claimed(token: str) -> bool:
            return not self.dead and await store.state.is_claimed(token)

        self.is_claimed = is_claimed
