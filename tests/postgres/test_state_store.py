"""The state store of the documents on a real PostgreSQL."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

import psycopg
import pytest
from msgspec.structs import replace

from tests.postgres.planners import planner, said, written
from tests.stores.plain_chain import PlainRow, find_plain_breaks
from tests.stores.test_state_adapter import told
from toolpost.contracts.events import EventCode, StoredEvent
from toolpost.stores.pauses import PlannerPauses
from toolpost.stores.state_events import StateEvents
from toolpost.testing.stores.samples import BINDING, STATE_EVENT

pytestmark = pytest.mark.programs

Open = Callable[[], Any]


@pytest.fixture
async def opened(url: str, tmp_path: Path) -> AsyncIterator[Callable[[], Any]]:
    """Opens stores on the same database, as many processes would."""
    written(tmp_path)
    spec = spec_from_file_location("postgres_state", tmp_path / "postgres_state.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    async with AsyncExitStack() as stack:

        async def open_one() -> Any:
            return await stack.enter_async_context(module.PostgresStateStore(url))

        yield open_one


def asked(url: str, statement: str) -> list[Any]:
    with psycopg.connect(url, autocommit=True) as connection:
        return connection.execute(statement.encode()).fetchall()


async def history_of(store: Any, run_id: str, *, at_least: int) -> list[StoredEvent]:
    """A run's events, once there are so many."""
    async with asyncio.timeout(30):
        while len(events := await store.load_history(run_id)) < at_least:
            await asyncio.sleep(0.02)
    return list(events)


def breaks(history: list[StoredEvent]) -> list[str]:
    rows = [
        PlainRow(e.run_id, e.seq, int(e.code), e.at, e.call_id, e.tenant, json.dumps(e.payload), bytes.fromhex(e.hash))
        for e in history
    ]
    return find_plain_breaks(rows)


@pytest.mark.req("STATE-03", "STATE-02")
async def test_a_call_paused_by_a_process_that_was_killed_is_resumed_once_by_another(
    url: str, opened: Open, tmp_path: Path
) -> None:
    store = await opened()
    with planner(tmp_path, "ask", url) as victim:
        token = said(victim)
        ((run_id,),) = asked(url, "SELECT payload -> 'payload' ->> 'run_id' FROM planner_pauses")
        await history_of(store, run_id, at_least=2)
        victim.kill()
    with planner(tmp_path, "resume", url, token) as second, planner(tmp_path, "resume", url, token) as third:
        refused, completed = sorted([said(second), said(third)])

    assert completed == "completed sent to bob"
    assert refused.startswith(("'this pause was resumed before", "'this pause is being resumed"))
    assert (tmp_path / "letters.txt").read_text() == "bob\n"
    history = await store.load_history(run_id)
    assert [event.code for event in history] == [
        EventCode.TOOL_CALL_REQUESTED,
        EventCode.APPROVAL_REQUESTED,
        EventCode.APPROVAL_GRANTED,
        EventCode.TOOL_CALL_STARTED,
        EventCode.TOOL_CALL_COMPLETED,
    ]
    assert breaks(history) == []


@pytest.mark.req("STATE-03")
async def test_pauses_are_json_under_the_hash_of_their_token(url: str, opened: Open) -> None:
    store = await opened()
    odd = {"step": 1, "text": "é \0 \ud800 '", "large": 2**80, "small": 1e-320, "none": None}
    await store.save_planner_state("the-token", odd)

    columns = asked(
        url,
        "SELECT attname, atttypid::regtype::text FROM pg_attribute"
        " WHERE attrelid = 'planner_pauses'::regclass AND attnum > 0",
    )
    assert columns[:2] == [("token", "text"), ("payload", "json")]
    assert "the-token" not in str(asked(url, "SELECT token, payload::text FROM planner_pauses"))
    assert await (await opened()).load_planner_state("the-token") == odd
    assert await store.load_planner_state("another") == {}


@pytest.mark.req("STATE-03")
async def test_history_is_in_order_and_an_event_saved_twice_is_there_once(opened: Open) -> None:
    store = await opened()
    events = [replace(STATE_EVENT, seq=seq, payload={"z": 1, "a": "\0\ud800"}) for seq in (11, 2, 1)]
    for event in (*events, *events):
        await store.save_event(event)
    await store.save_event(replace(STATE_EVENT, run_id="trace_2"))

    assert await store.load_history("trace_1") == events[::-1]
    assert list((await store.load_history("trace_1"))[0].payload) == ["z", "a"]
    assert await store.load_history("trace_3") == []
    with pytest.raises(ValueError, match="'trace_1' has another event with the number 1"):
        await store.save_event(replace(STATE_EVENT, hash="cd"))


@pytest.mark.req("STATE-03")
async def test_a_remote_binding_is_kept_by_agent_and_task_and_the_last_one_counts(url: str, opened: Open) -> None:
    store = await opened()
    for binding in (BINDING, replace(BINDING, task_id="task_2"), replace(BINDING, metadata={"a": 2})):
        await store.save_remote_binding(binding)

    kept = asked(url, "SELECT task_id, binding -> 'metadata' ->> 'a' FROM remote_bindings ORDER BY task_id")
    assert kept == [("task_1", "2"), ("task_2", "1")]


async def test_of_many_processes_that_resume_at_once_one_does(opened: Open) -> None:
    stores = await asyncio.gather(*(opened() for _ in range(8)))  # they make the tables at once, too
    for _ in range(5):
        token = await PlannerPauses(stores[0]).keep({"step": 1})
        tried = (PlannerPauses(store).take(token) for store in (*stores, *stores))
        taken = await asyncio.gather(*tried, return_exceptions=True)

        assert [each for each in taken if not isinstance(each, KeyError)] == [{"step": 1}]


async def test_a_run_that_several_processes_tell_of_at_once_has_one_chain(opened: Open) -> None:
    tellers = [StateEvents(await opened()) for _ in range(3)]
    for number in range(30):
        tellers[number % 3].emit(told(number))
    await asyncio.gather(*(teller.close() for teller in tellers))

    history = await (await opened()).load_history("run_1")
    assert [teller.lost for teller in tellers] == [0, 0, 0]
    assert sorted(event.payload["number"] for event in history) == [*range(30)]
    assert breaks(history) == []


async def test_a_connection_that_was_cut_is_made_again(url: str, opened: Open) -> None:
    store = await opened()
    await store.save_planner_state("token", {"step": 1})
    asked(
        url,
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()",
    )

    assert await store.load_planner_state("token") == {"step": 1}


@pytest.mark.parametrize("saved", [True, False], ids=["the answer was lost", "nothing was saved"])
async def test_a_pause_whose_claim_failed_is_resumed_if_it_was_claimed_and_can_be_tried_again_if_not(
    opened: Open, saved: bool
) -> None:
    store = await opened()
    token = await PlannerPauses(store).keep({"step": 1})
    cut = CutOff(store, saved=saved)

    if saved:
        assert await PlannerPauses(cut).take(token) == {"step": 1}
    else:
        with pytest.raises(OSError, match="cut off"):
            await PlannerPauses(cut).take(token)
        assert await PlannerPauses(store).take(token) == {"step": 1}
    with pytest.raises(KeyError, match="resumed before"):
        await PlannerPauses(store).take(token)


async def test_an_event_whose_answer_was_lost_is_there_once(opened: Open) -> None:
    store = await opened()
    events = StateEvents(CutOff(store, saved=True))
    for number in range(3):
        events.emit(told(number))
    await events.close()

    history = await store.load_history("run_1")
    assert events.lost == 0
    assert [event.payload["number"] for event in history] == [0, 1, 2]
    assert breaks(history) == []


class CutOff:
    """A store behind a connection that breaks with every write, before it or after."""

    def __init__(self, store: Any, *, saved: bool) -> None:
        self.load_history = store.load_history
        self.load_planner_state = store.load_planner_state
        self.save_remote_binding = store.save_remote_binding
        self._store = store
        self._saved = saved

    async def save_event(self, event: StoredEvent) -> None:
        await self._write(self._store.save_event, event)

    async def save_planner_state(self, token: str, payload: dict[str, Any]) -> None:
        await self._write(self._store.save_planner_state, token, payload)

    async def _write(self, save: Any, *values: Any) -> None:
        if self._saved:
            await save(*values)
        raise OSError("cut off")
