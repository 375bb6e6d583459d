"""Who did what and when: runs and events by user, key, time and status."""

from typing import Any

from tests.stores.conftest import AnyStore
from tests.stores.samples import ANN, BOB, COMPLETED, FAILED, REQUESTED, call_ref, event
from toolpost.contracts.events import CALLER, EventCode, EventFilter, RunFilter
from toolpost.contracts.principal import Principal


def _add_runs(store: AnyStore) -> None:
    """Three runs, at 100, 200 and 300 s; the arguments of the last name the key of the second."""
    made: list[tuple[str, Principal, float, EventCode, dict[str, Any]]] = [
        ("run_1", ANN, 100.0, COMPLETED, {}),
        ("run_2", BOB, 200.0, FAILED, {CALLER: "key:one"}),
        ("run_3", BOB, 300.0, COMPLETED, {CALLER: "key:two", "params": {CALLER: "key:one"}}),
    ]
    for run_id, who, at, end, facts in made:
        call = call_ref(run_id, f"call_of_{run_id}", who=who)
        store.events.emit(event(REQUESTED, call=call, at=at, facts=facts))
        store.events.emit(event(end, call=call, at=at + 1))


async def test_runs_are_filtered_by_user_caller_time_and_status(store: AnyStore) -> None:
    _add_runs(store)

    async def found(only: RunFilter, limit: int = 50) -> list[str]:
        return [run.run_id for run in await store.events.runs(only=only, limit=limit)]

    assert await found(RunFilter()) == ["run_3", "run_2", "run_1"]
    assert await found(RunFilter(user="bob")) == ["run_3", "run_2"]
    assert await found(RunFilter(caller="key:one")) == ["run_2"]
    assert await found(RunFilter(status="completed")) == ["run_3", "run_1"]
    assert await found(RunFilter(since=150.0, until=250.0)) == ["run_2"]
    assert await found(RunFilter(status="completed"), limit=1) == ["run_3"]


async def test_events_are_filtered_by_user_caller_and_time(store: AnyStore) -> None:
    _add_runs(store)

    async def found(only: EventFilter) -> list[tuple[str, int]]:
        return [(one.run_id, int(one.code)) for one in await store.events.read(only=only)]

    assert await found(EventFilter(caller="key:one")) == [("run_2", 400), ("run_2", 420)]
    assert await found(EventFilter(until=200.0)) == [("run_1", 400), ("run_1", 410), ("run_2", 400)]
    assert await found(EventFilter(user="ann")) == [("run_1", 400), ("run_1", 410)]
